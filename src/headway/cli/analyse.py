"""headway analyse"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headway.cli.options import DEVICE, DTYPE, THREADS, check_model, use_threads
from headway.errors import InputError, nearest

if TYPE_CHECKING:
    from headway.explore.analyses.analysis import Analysis, Cell, Table, Traced

LONG = ("error", "skip")


def analyse(
    model: str = typer.Argument(None, metavar="MODEL", help="A model folder, or a run's folder."),
    data: list[str] = typer.Argument(None, metavar="DATA...", help="What the analysis reads: see --list."),
    what: str = typer.Option("heads", metavar="NAME", help="Which analysis: see --list."),
    settings: list[str] = typer.Option([], "--set", metavar="KEY=VALUE...", help="Of the analysis: see --list."),
    lines: int = typer.Option(None, min=1, metavar="N", help="Only the first N texts."),
    long: str = typer.Option("error", metavar="NAME", help="A text longer than the model reads: error, or skip."),
    out: str = typer.Option(None, metavar="FILE", help="The picture: .png, .svg or .pdf (default: NAME.png here)."),
    as_json: bool = typer.Option(False, "--json", help="The table as JSON; a picture only with --out."),
    listed: bool = typer.Option(False, "--list", help="What analyses there are, what they read, their settings."),
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """What a model's heads and layers do: a table, and a picture of it."""
    from headway.explore.analyses import ANALYSES
    from headway.explore.analyses.analysis import Traced
    from headway.explore.plots import check_path
    from headway.plain import change
    from headway.tasks.loading import load

    if listed:
        print("\n".join(_list(ANALYSES)))
        return
    if what not in ANALYSES:
        raise InputError(
            f"there is no analysis '{what}'{nearest(what, ANALYSES)} (all of them: headway analyse --list)"
        )
    one = ANALYSES[what]
    _check(one, model, data or [], long)
    options = change(one.options(), settings)
    path = check_path(out or f"{what}.png") if one.draw is not None and (out or not as_json) else None
    if out and one.draw is None:
        raise InputError(f"--what {what} has no picture: leave --out away")
    use_threads(threads)
    loaded = load(model, device, dtype)
    if one.takes == "pairs" and loaded.takes != "target":
        raise InputError(f"--what {what} is for translators: {model} is none")
    traced = Traced(loaded, one.tensors, long="skip" if long == "skip" else "error", lines=lines)
    table = one.run(traced, data or [], options)
    notes = [*table.notes, *_left_out(traced)]
    if as_json:
        print(json.dumps(_plain(one, model, table, notes, options), indent=1, ensure_ascii=False))
    else:
        print("\n".join([*printed(table), "", *notes]))
    if path is not None and one.draw is not None:
        one.draw(table, path)
        print(f"picture: {path}", file=sys.stderr)


def _check(one: Analysis, model: str | None, data: list[str], long: str) -> None:
    from headway.explore.analyses.analysis import DATA

    use = f"headway analyse MODEL{'' if one.takes == 'nothing' else ' DATA'} --what {one.name}"
    if model is None:
        raise InputError(f"there is no model to look into: {use}")
    check_model(model, use)
    if one.takes == "nothing" and data:
        raise InputError(f"--what {one.name} reads no file: leave {data[0]} away")
    if one.takes != "nothing" and not data:
        raise InputError(f"--what {one.name} needs DATA, {DATA[one.takes]}: {use}")
    if long not in LONG:
        raise InputError(f"--long is error or skip, not {long}")


def _left_out(traced: Traced) -> list[str]:
    if not traced.skipped:
        return []
    return [f"left out: {traced.skipped:,} of {traced.read:,} texts, longer than the model reads"]


def _list(analyses: dict[str, Analysis]) -> list[str]:
    from headway.explore.analyses.analysis import DATA
    from headway.plain import to_plain

    lines = []
    for one in analyses.values():
        lines += [f"{one.name}: {one.summary}", f"    reads {DATA[one.takes]}"]
        for key, value in to_plain(one.options()).items():
            lines.append(f"    --set {key}={'' if value is None else value}")
    return lines


def _plain(one: Analysis, model: str, table: Table, notes: list[str], options: Any) -> dict[str, Any]:
    from headway.plain import to_plain

    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return {
        "analysis": one.name, "model": Path(model).name, "options": to_plain(options), "notes": notes, "rows": rows,
        "more": table.more,
    }  # fmt: skip


def printed(table: Table) -> list[str]:
    """Columns of text: numbers on the right, words on the left."""
    columns = [[name, *(_shown(cell) for cell in table.column(name))] for name in table.columns]
    widths = [max(map(len, column)) for column in columns]
    words = [any(isinstance(cell, str) for cell in table.column(name)) for name in table.columns]
    return [
        "  ".join(
            cell.ljust(wide) if is_word else cell.rjust(wide)
            for cell, wide, is_word in zip(row, widths, words, strict=True)
        ).rstrip()
        for row in zip(*columns, strict=True)
    ]


def _shown(cell: Cell) -> str:
    if cell is None:
        return "–"
    return f"{cell:,.3f}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else cell

"""headway analyse"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.options import DEVICE, DTYPE, THREADS, argument, check_model, flag, option
from headway.cli.table import aligned
from headway.errors import InputError, nearest, refuse
from headway.plain import change, to_plain

if TYPE_CHECKING:
    from headway.explore.analyses.analysis import Analysis, Cell, Table

LONG = ("error", "skip")


def analyse(
    model: str = argument("MODEL", "A model folder, or a run's folder.", None),
    data: list[str] = argument("DATA...", "What the analysis reads: see --list.", None),
    what: str = option("heads", "NAME", "Which analysis: see --list."),
    settings: list[str] = option([], "KEY=VALUE...", "Of the analysis: see --list.", "--set"),
    lines: int = option(None, "N", "Only the first N texts.", min=1),
    long: str = option("error", "NAME", "A text longer than the model reads: error, or skip."),
    out: str = option(None, "FILE", "The picture: .png, .svg or .pdf (default: NAME.png here)."),
    as_json: bool = flag("--json", "The table as JSON; a picture only with --out."),
    listed: bool = flag("--list", "What analyses there are, what they read, their settings."),
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """What a model's heads and layers do: a table, and a picture of it."""
    from headway.explore.analyses import ANALYSES
    from headway.explore.analyses.analysis import Traced
    from headway.explore.plots import check_path
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
    refuse(out and one.draw is None, f"--what {what} has no picture: leave --out away")
    loaded = load(model, device, dtype)
    refuse(one.takes == "pairs" and loaded.takes != "target", f"--what {what} is for translators: {model} is none")
    traced = Traced(loaded, one.tensors, long="skip" if long == "skip" else "error", lines=lines)
    table = one.run(traced, data or [], options)
    notes = [*table.notes]
    if traced.skipped:
        notes.append(f"left out: {traced.skipped:,} of {traced.read:,} texts, longer than the model reads")
    if as_json:
        rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        plain = {
            "analysis": what, "model": Path(model).name, "options": to_plain(options), "notes": notes, "rows": rows,
            "more": table.more,
        }  # fmt: skip
        print(json.dumps(plain, indent=1, ensure_ascii=False))
    else:
        print("\n".join([*printed(table), "", *notes]))
    if path is not None and one.draw is not None:
        one.draw(table, path)
        print(f"picture: {path}", file=sys.stderr)


def _check(one: Analysis, model: str, data: list[str], long: str) -> None:
    from headway.explore.analyses.analysis import DATA

    use = f"headway analyse MODEL{'' if one.takes == 'nothing' else ' DATA'} --what {one.name}"
    refuse(model is None, f"there is no model to look into: {use}")
    check_model(model, use)
    if one.takes == "nothing" and data:
        raise InputError(f"--what {one.name} reads no file: leave {data[0]} away")
    refuse(one.takes != "nothing" and not data, f"--what {one.name} needs DATA, {DATA[one.takes]}: {use}")
    refuse(long not in LONG, f"--long is error or skip, not {long}")


def _list(analyses: dict[str, Analysis]) -> list[str]:
    from headway.explore.analyses.analysis import DATA

    lines = []
    for one in analyses.values():
        lines += [f"{one.name}: {one.summary}", f"    reads {DATA[one.takes]}"]
        for key, value in to_plain(one.options()).items():
            lines.append(f"    --set {key}={'' if value is None else value}")
    return lines


def printed(table: Table) -> list[str]:
    """Columns of text: numbers on the right, words on the left."""
    words = [any(isinstance(cell, str) for cell in table.column(name)) for name in table.columns]
    rows = [table.columns, *([_shown(cell) for cell in row] for row in table.rows)]
    return aligned(rows, left=[number for number, is_word in enumerate(words) if is_word])


def _shown(cell: Cell) -> str:
    if cell is None:
        return "–"
    return f"{cell:,.3f}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else cell

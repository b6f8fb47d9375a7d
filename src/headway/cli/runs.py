"""headway runs"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.options import AS_JSON, argument, run_folder
from headway.errors import refuse

if TYPE_CHECKING:
    from rich.console import Console

    from headway.train.status import Status

RUNS = "runs"
TITLES = ("run", "recipe", "state", "step", "validation", "test", "touched")
NUMBERS = ("step", "validation", "test")
COLOURS = {"finished": "green", "running": "cyan", "stopped": "yellow", "not started": "dim", "broken": "red"}


def runs(
    folders: list[str] = argument("FOLDER", f"Runs, or folders with runs below them (default: {RUNS}).", None),
    as_json: bool = AS_JSON,
) -> None:
    """List training runs: state, step, scores, and the command to run next."""
    from headway.train.status import read_status

    found = sorted(map(read_status, _find(folders)), key=lambda status: -status.touched)
    if as_json:
        print(json.dumps([_plain(status) for status in found], indent=1))
    elif not found:
        print(f"headway: no runs below {RUNS} yet; `headway train` makes one", file=sys.stderr)
    elif sys.stdout.isatty():
        from rich.console import Console

        show(found, Console(highlight=False))
    else:
        print("\n".join(_lines(found)))


def _find(folders: list[str] | None) -> list[Path]:
    """Each run once, under the path it was found by. Finding none is an error only where a folder was named."""
    from headway.train.status import find_runs

    places: dict[Path, Path] = {}
    for name in folders or [RUNS]:
        below = list(find_runs(run_folder(name, ", or one with runs below it") if folders else Path(name)))
        refuse(folders and not below, f"there is no run in {name}: a run's folder has a run.json")
        for place in below:
            places.setdefault(place.resolve(), place)
    return list(places.values())


def next_command(status: Status) -> str:
    """The command to run next; of a broken run, what is wrong."""
    folder = shlex.quote(str(status.folder))
    if status.state == "broken":
        return str(status.problem)
    if status.state == "running":
        return f"headway plot {folder}"
    if status.state == "finished":
        return f"headway {status.verb} {folder}"
    if status.checkpoint is not None:
        return f"headway train {folder} --resume"
    if status.recipe == "demo" and status.own_data:
        return f"headway demo --out {folder} --overwrite" + (f" --steps {status.steps}" if status.steps else "")
    again = f"headway train {shlex.quote(str(status.folder / 'run.json'))} --out"
    # Replacing the folder would delete the files that it trains on.
    return f"{again} {shlex.quote(f'{status.folder}-2')}" if status.own_data else f"{again} {folder} --overwrite"


def show(found: Sequence[Status], console: Console) -> None:
    """Print a table to a terminal, and below it the commands, one a line, to be copied."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for title in TITLES:
        side: Any = "right" if title in NUMBERS else "left"
        table.add_column(title, justify=side, overflow="fold")
    for status in found:
        name, recipe, state, *rest = _cells(status)
        table.add_row(Text(name), Text(recipe), Text(state, COLOURS[status.state]), *map(Text, rest))
    console.print(table)
    console.print(Text("\nnext:", "dim"))
    for status in found:
        console.print(Text(f"  {_clean(next_command(status))}"), soft_wrap=True)


def _lines(found: Sequence[Status]) -> list[str]:
    """For a file or a pipe: a line a run, the command last."""
    from rich.cells import cell_len, set_cell_size

    rows = [(*TITLES, "next"), *((*_cells(status), _clean(next_command(status))) for status in found)]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(set_cell_size, row, widths)).rstrip() for row in rows]


def _cells(status: Status) -> tuple[str, ...]:
    return (
        _clean(str(status.folder)),
        _clean(status.recipe or "–"),
        _state(status),
        _steps(status),
        _score(status.figure, status.validation),
        _score(status.figure, status.test),
        ago(time.time() - status.touched, status.touched),
    )


def _state(status: Status) -> str:
    if status.state != "stopped":
        return status.state
    return f"stopped at step {status.checkpoint:,}" if status.checkpoint is not None else "stopped, no checkpoint"


def _steps(status: Status) -> str:
    if status.steps is None:
        return "–" if status.step is None else f"{status.step:,}"
    if status.state == "finished" and not status.step:
        return "–"  # counted, not trained in steps
    return f"{status.step or 0:,} of {status.steps:,}"


def _score(figure: str | None, value: float | None) -> str:
    return "–" if value is None else f"{figure} {value:,.{4 if abs(value) < 1 else 2}f}"


def ago(seconds: float, moment: float) -> str:
    """How long ago, in the largest fitting unit; the date where it is more than a month."""
    for unit, size, many in (("s", 1, 60), ("min", 60, 60), ("h", 3600, 24), ("d", 86400, 30)):
        if seconds < size * many:
            return f"{max(0, int(seconds / size))} {unit} ago"
    return f"{datetime.fromtimestamp(moment):%Y-%m-%d}"


def _clean(text: str) -> str:
    """One line, without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _plain(status: Status) -> dict[str, Any]:
    plain = {name: value for name, value in vars(status).items() if name not in ("verb", "own_data")}
    touched = datetime.fromtimestamp(status.touched).astimezone().isoformat(timespec="seconds")
    command = None if status.state == "broken" else next_command(status)
    return plain | {"folder": str(status.folder), "touched": touched, "next": command}

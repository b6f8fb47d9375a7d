"""headway plot"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.options import argument, option, run_folder
from headway.errors import InputError

if TYPE_CHECKING:
    from headway.train.history import History


def plot(
    names: list[str] = argument("RUN", "The folders of the runs."),
    out: str = option(None, "FILE", "The picture: .png, .svg or .pdf (default: curves.png in the first run's folder)."),
    value: str = option(None, "NAME", "Only this value of the log: loss, bleu, rate …"),
) -> None:
    """Draw what runs have logged: loss, score, learning rate, gradient, speed. Several runs in one picture."""
    from headway.explore.curves import curves_picture
    from headway.explore.plots import check_path

    runs = {name: _read(name) for name in names}
    path = check_path(out if out is not None else Path(names[0]) / "curves.png")
    curves_picture(runs, path, value=value)
    for name, history in runs.items():
        print(f"{name}: {_summary(history, value)}")
    print(f"picture: {path}")


def _read(name: str) -> History:
    from headway.train.history import read_history

    log = run_folder(name) / "log.jsonl"
    if not log.is_file():
        raise InputError(f"{name} is no run that has begun (log.jsonl is missing): `headway runs FOLDER` lists runs")
    history = read_history(log)
    if history.unreadable:
        lines = ", ".join(map(str, history.unreadable[:5])) + (" …" if len(history.unreadable) > 5 else "")
        print(f"headway: {log}: left out what cannot be read, line {lines}", file=sys.stderr)
    return history


def _summary(history: History, value: str | None) -> str:
    """Its last step and its scores: `step 5,000, loss 1.871 (validation 2.013), best BLEU 42.50 at step 4,000`."""
    if history.last_step is None:
        return "nothing logged yet"
    parts = [f"step {history.last_step:,}"]
    for name in dict.fromkeys(("loss", value or "loss")):
        trained, judged = history.last("train", name), history.last("validation", name)
        if trained is not None:
            parts.append(f"{name} {trained:,.4g}" + (f" (validation {judged:,.4g})" if judged is not None else ""))
        elif judged is not None:
            parts.append(f"validation {name} {judged:,.4g}")
        else:
            parts.append(f"no {name}")
    if best := history.best("bleu"):
        parts.append(f"best BLEU {best[1]:.2f} at step {best[0]:,}")
    return ", ".join(parts)

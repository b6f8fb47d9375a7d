"""A comparison of recipes on the same data under the same budget: its runs, its results, its table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headway.durations import spoken
from headway.errors import InputError
from headway.outside import read_object
from headway.train.history import read_history
from headway.train.run import Run

JUDGED = 10  # times in a run
PROBED = 20  # steps at most that a budget in seconds is measured with
STEPPING = 3 / 4  # of the seconds that are left are planned for steps; the rest is for scoring
PROBING = 1 / 4  # of the seconds, that measuring may take


def on_one_text(runs: dict[str, Run], own: bool) -> dict[str, Run]:
    """The runs on the same data, with the same tokens and a held-out test part.

    `own`: the data is the user's, tokenised as in the first recipe; otherwise recipes with different data are refused.
    """
    (first_name, first), *others = runs.items()
    for name, run in others:
        if run.task is not first.task:
            raise InputError(f"{first_name} learns from {first.data.name}, {name} from {run.data.name}: not comparable")
        if not own and (differs := _differs(first.data, run.data)):
            raise InputError(
                f"{first_name} and {name} do not learn from the same text (data.{differs}): compare them on one of "
                "your own with --data"
            )
    like = first.data if own else None  # a model that a run starts from brings its own tokens
    return {name: replace(run, data=run.task.level(run.data, None if run.init else like)) for name, run in runs.items()}


def _differs(a: object, b: object) -> str | None:
    """The first setting in which the data of two recipes differ, the order of reading apart."""
    names = [name for name in vars(a) if name not in ("order", "jitter", "apart", "weights")]
    return next((name for name in names if getattr(a, name) != getattr(b, name)), None)


def within(run: Run, tokens: int, seconds: float = 0.0) -> Run:
    """The run with as many steps as the budget allows; `seconds`: a limit of its time, beside the tokens.
    It is validated ten times; steps of the rate and the averaged
    snapshots keep their share of it, and the warm-up takes a tenth at most."""
    if run.objective.one_pass:
        return run
    steps = max(1, round(tokens / run.task.tokens_a_step(run)))
    often = max(1, steps // JUDGED)
    schedule: Any = run.schedule.stretched(steps / run.engine.steps)
    schedule = replace(schedule, warmup=min(schedule.warmup, often))
    averaged = max(1, round(run.engine.snapshot * steps / run.engine.steps))
    engine = replace(
        run.engine, steps=steps, seconds=seconds or run.engine.seconds,
        log=max(1, min(run.engine.log, often)), checkpoint=often,
        snapshot=averaged if run.engine.average > 1 else often,
    )  # fmt: skip
    validation = replace(run.validation, every=often, score_every=often)
    return replace(run, schedule=schedule, engine=engine, validation=validation)


def probe(run: Run, seconds: float) -> Run:
    """The run with a few steps, to measure its speed, in a small part of these seconds."""
    often = replace(run.validation, every=PROBED, score_every=PROBED)
    engine = replace(
        run.engine, steps=PROBED, log=1, snapshot=PROBED, checkpoint=PROBED, average=0, seconds=seconds * PROBING
    )
    return replace(run, engine=engine, validation=often)


def seconds_of(folder: Path) -> float:
    """How long a finished run took, from its start to its last score."""
    return read_history(folder / "log.jsonl").seconds


def tokens_per_second(folder: Path) -> float:
    """The median of the speeds in a run's log, without the first, which may include compiling."""
    points = [value for _, value in read_history(folder / "log.jsonl").curve("train", "tokens_per_second")]
    return statistics.median(points[1:] or points) if points else math.nan


@dataclass
class Entry:
    """A recipe's results, a value for each seed."""

    name: str
    figure: str  # that is compared: perplexity, BLEU, accuracy
    parameters: int = 0
    operations: float | None = None  # by token of a forward pass
    seeds: list[int] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    test: list[float] = field(default_factory=list)
    speed: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    tokens: int = 0
    unit: str = "tokens"  # what these are
    epochs: list[float] = field(default_factory=list)  # how often the training data was seen
    share: float = 1.0  # of the validation and test data that was scored
    allowed: float = 0.0  # seconds; 0: as many as it takes
    path: int | None = None  # longest between two positions
    by: str = ""  # what the test figure is broken down by, where the task does that
    breakdown: list[list[dict[str, Any]]] = field(default_factory=list)

    def add(self, seed: int, run: Run, folder: Path) -> None:
        """What a finished run in `folder` came to."""
        path = folder / "model" / "headway.json"
        try:
            score = read_object(path)["score"]
            self.seeds.append(seed)
            self.validation.append(_number(score[f"validation {self.figure}"]))
            if f"test {self.figure}" in score:
                self.test.append(_number(score[f"test {self.figure}"]))
            self.unit, self.share = run.task.unit, min(self.share, float(score.get("share scored", 1.0)))
            history = read_history(folder / "log.jsonl")
            if history.breakdown:
                self.by = str(history.breakdown["by"])
                self.breakdown.append(list(history.breakdown["rows"]))
            if not run.objective.one_pass:
                self.tokens = int(history.last("train", "tokens") or 0)
                self.speed.append(tokens_per_second(folder))
                self.epochs += [float(score["epochs"])] if "epochs" in score else []  # not of earlier versions
            else:
                amount, duration = run.task.at_once
                seconds, self.tokens = float(score[duration]), int(score[amount])
                self.speed.append(self.tokens / max(seconds, 1e-3))
            self.seconds.append(round(history.seconds, 1))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path}: the run's score cannot be read ({error}): delete {folder} to train it again"
            ) from error

    def notes(self) -> list[str]:
        """What stands in the way of comparing its figures with those of the others."""
        found = []
        if self.epochs and (least := min(self.epochs)) < 1:
            found.append(f"saw {least:.2g} epochs: less than all of the training data, so it is not trained to its end")
        if self.share < 1:
            found.append(f"is scored on {100 * self.share:.2g} % of the validation and test data, for lack of time")
        if self.allowed and (most := max(self.seconds)) > 1.1 * self.allowed:
            found.append(f"took {spoken(most)} of {spoken(self.allowed)}: too short for a step of it and its scoring")
        return found

    def to_plain(self) -> dict[str, Any]:
        plain = {name: value for name, value in vars(self).items() if value not in ([], None, "") and name != "allowed"}
        return plain | {"notes": self.notes()}


def _number(value: Any) -> float:
    """A score; infinite where it is given in words (a chain that gives a word the probability 0)."""
    return float(value) if isinstance(value, int | float) else math.inf


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation: `82.4 ± 0.3`, `0.848 ± 0.004`."""
    if not values:
        return "–"
    mean = statistics.mean(values)
    digits = 1 if abs(mean) >= 10 else 2 if abs(mean) >= 1 else 3
    return f"{mean:,.{digits}f} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else f"{mean:,.{digits}f}"


def table(entries: Sequence[Entry]) -> list[list[str]]:
    """Titles, then a row for each."""
    rows = [
        {
            "recipe": entry.name + (" *" if entry.notes() else ""),
            f"test {entry.figure}": spread(entry.test),
            f"validation {entry.figure}": spread(entry.validation),
            "parameters": f"{entry.parameters:,}",
            "operations/token": short(entry.operations),
            "longest path": "–" if entry.path is None else f"{entry.path:,}",
            f"{entry.unit} seen": short(entry.tokens),
            "epochs": spread(entry.epochs),
            f"{entry.unit}/s": short(statistics.median(entry.speed)),
            "time": spoken(statistics.median(entry.seconds)),
        }
        for entry in entries
    ]
    return [list(rows[0]), *(list(row.values()) for row in rows)]


def footer(entries: Sequence[Entry]) -> str:
    """Lines below a table: what to know before its rows are compared."""
    return "".join(f"* {entry.name} {'; '.join(notes)}\n" for entry in entries if (notes := entry.notes()))


def short(value: float | None) -> str:
    """`1.3 M`: two digits that matter and a unit."""
    if value is None or math.isnan(value):
        return "–"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    rule = "|" + "|".join(["---"] + ["---:"] * (len(rows[0]) - 1)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]]) + "\n"


def as_text(rows: Sequence[Sequence[str]]) -> str:
    first, *rest = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [[row[0].ljust(first), *map(str.rjust, row[1:], rest)] for row in rows]
    return "\n".join("  ".join(line) for line in lines)

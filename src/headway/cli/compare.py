"""headway compare"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.atomic import replaced
from headway.cli import train
from headway.cli.options import (
    DEVICE,
    DTYPE,
    LABEL_COLUMN,
    TEXT_COLUMN,
    THREADS,
    argument,
    engine_settings,
    flag,
    option,
)
from headway.cli.place import beside, holds_run, is_taken, refuse_stranger, settle, worked_in
from headway.errors import InputError, refuse
from headway.outside import read_object

if TYPE_CHECKING:
    from headway.train.comparison import Entry
    from headway.train.run import Run

PLAN = "comparison.json"
COUNTED = 128  # tokens of a text whose operations are counted, where the model takes as many


def compare(
    names: list[str] = argument(
        "RECIPE",
        "Names from `headway recipes`; `ladder`: all its rungs; `road`: translators from LSTM to Transformer; "
        "`classifiers`: labels of texts from a bag of words to BERT.",
    ),
    data: list[str] = option([], "FILE...", "Your own text, for all recipes."),
    valid: list[str] = option([], "FILE...", "Validation text (default: some is held out)."),
    test: list[str] = option([], "FILE...", "Test text (default: some is held out)."),
    text_column: list[str] = TEXT_COLUMN,
    label_column: str = LABEL_COLUMN,
    init: str = option(None, "MODEL", "Of recipes that start from an encoder which has read much before: that model."),
    tokens: str = option(None, "N", "The budget: tokens that each may see in training (2M, 500k)."),
    seconds: float = option(None, "S", "The budget: seconds that each may take, from its start to its last score."),
    seeds: int = option(1, "N", "Train each recipe with N different seeds."),
    settings: list[str] = option([], "KEY=VALUE...", "A setting of all the runs.", "--set"),
    out: str = option(None, "FOLDER", "Folder for runs and results (default: runs/compare-NAMES)."),
    overwrite: bool = flag("--overwrite", "Delete the folder's results and train again."),
    download: bool = flag("--download", "Fetch the recipes' data if it is missing."),
    as_json: bool = flag("--json", "The results as JSON."),
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """Train several recipes on the same text under the same budget: a table and a plot.

    The same command resumes a comparison that was stopped; more recipes or seeds are added to the results there.
    """
    from headway.tasks.files import look_for_known, look_for_own

    budget = _budget(tokens, seconds)
    refuse(seeds < 1, f"--seeds is {seeds}: each recipe is trained at least once")
    files: dict[str, Any] = {"train": tuple(data), "valid": tuple(valid), "test": tuple(test)}
    files |= {"text_column": tuple(text_column), "label_column": label_column}
    files = {key: value for key, value in files.items() if value}
    wanted, left_out = _wanted(names, init)
    runs = _runs(wanted, files, init, [*engine_settings(device, dtype), *settings])
    if left_out:
        print(f"left out: {', '.join(left_out)}: give --init MODEL to compare them too", file=sys.stderr)
    place = Path(out or f"runs/compare-{'-'.join(names[:3])}{'-…' if len(names) > 3 else ''}")
    for run in runs.values():
        look_for_own(run)
        if not download:
            look_for_known(run)
    settle(place)
    refuse_stranger(place, PLAN, "a comparison")
    goal, resume = place, is_taken(place)
    if overwrite and resume:
        place = beside(goal)  # the earlier results stay until the new ones are whole
        resume = _is_same(place, runs, budget)
    with worked_in(place, goal, resume, lambda place: any(place.glob("*/seed-*/run.json"))):
        text, results = _compared(runs, budget, seeds, place, download)
    print(json.dumps(results) if as_json else text)
    print(f"picture: {goal / 'comparison.png'}; table.md, table.txt and results.json beside it", file=sys.stderr)


def _compared(runs: dict[str, Run], budget: dict[str, float], seeds: int, place: Path, download: bool) -> Any:
    """Train what is not trained yet; the table with its notes, and all results."""
    from headway.explore.curves import breakdown_picture, comparison_picture
    from headway.plain import finite
    from headway.train.comparison import as_markdown, as_text, footer, table

    runs = _planned(runs, budget, place, download)
    entries = [_trained(name, run, seeds, place, download) for name, run in runs.items()]
    for entry in entries:
        entry.allowed = budget.get("seconds", 0.0)
    rows, notes = table(entries), footer(entries) + _remarks(runs, entries, place)
    text = f"{as_text(rows)}\n\n{notes}".rstrip("\n")
    marked = f"{as_markdown(rows)}\n{notes}"
    results = finite({"budget": budget, "runs": [entry.to_plain() for entry in entries]})
    texts = {"results.json": json.dumps(results, indent=1), "table.md": marked, "table.txt": text}
    for name, text in texts.items():
        _write(place / name, text.rstrip("\n") + "\n")
    comparison_picture(entries, place / "comparison.png", _headline(next(iter(runs.values())))[1])
    breakdown_picture(entries, place / "breakdown.png")
    return text, results


def _headline(run: Run) -> tuple[str, bool]:
    return run.task.headline_of(run)


def _remarks(runs: dict[str, Run], entries: list[Entry], place: Path) -> str:
    """What the task says of its data and of what was found: lines below the table."""
    from headway.train.history import read_history

    name, first = next(iter(runs.items()))
    data = read_history(place / name / "seed-1" / "log.jsonl").data
    figures = {entry.name: statistics.mean(entry.test or entry.validation) for entry in entries}
    return "".join(f"{line}\n" for line in first.task.remarks(data, runs, figures))


def _write(path: Path, text: str) -> None:
    with replaced(path) as part:
        part.write_text(text, encoding="utf-8")


def _is_same(place: Path, runs: dict[str, Run], budget: dict[str, float]) -> bool:
    """Whether the folder holds this comparison, stopped on its way."""
    try:
        kept = _plan(place / PLAN)["budget"] == budget
        # the number of steps comes with the budget
        return kept and all(_holds(place / name / "seed-1", run) for name, run in runs.items())
    except InputError:
        return False


def _plan(path: Path) -> dict[str, Any]:
    """The budget of a comparison, and of each recipe the tokens and the seconds that were measured for it."""
    plan = {"seconds": {}} | read_object(path)
    for key in ("budget", "tokens", "seconds"):
        numbers = plan.get(key)
        if not isinstance(numbers, dict) or not all(isinstance(one, int | float) for one in numbers.values()):
            raise InputError(f"{path}: {key} must have numbers by their names; pass --overwrite to begin again")
    return plan


def _holds(folder: Path, run: Run) -> bool:
    from headway.train.run import read_run

    if not (folder / "run.json").is_file():
        return True
    there = read_run(folder / "run.json")
    return replace(there, engine=run.engine, schedule=run.schedule, validation=run.validation) == run


def _budget(tokens: str | None, seconds: float | None) -> dict[str, float]:
    refuse(tokens is not None and seconds is not None, "--tokens and --seconds are two budgets: give one")
    if seconds is not None:
        refuse(not seconds > 0, f"a budget of {seconds:g} seconds is too small: give more than 0")
        return {"seconds": seconds}
    if tokens is None:
        return {}
    try:
        unit = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}.get(tokens[-1:].lower(), 1)
        count = float(tokens.rstrip("kKmMgG").replace(",", "").replace("_", "")) * unit
    except ValueError:
        raise InputError(f"--tokens {tokens} is no number: write 2000000, 500k or 2M") from None
    refuse(not 1 <= count < float("inf"), f"a budget of {tokens} tokens is too small: give more than 0")
    return {"tokens": round(count)}


def _wanted(names: list[str], init: str | None) -> tuple[list[str], list[str]]:
    """The recipes that these names stand for, and those of a group that are left out for lack of --init."""
    from headway.recipes import GROUPS, RECIPES

    refuse(not names, "name the recipes to compare: headway compare ladder --data my.txt")
    found = list(dict.fromkeys(recipe for name in names for recipe in GROUPS.get(name, (name,))))
    starting = [name for name in found if name in RECIPES and RECIPES[name].pretrained]
    refuse(init is not None and not starting, "none of these recipes starts from a model: leave --init out")
    left_out = [name for name in starting if init is None and name not in names]
    return [name for name in found if name not in left_out], left_out


def _runs(names: list[str], files: dict[str, Any], init: str | None, settings: list[str]) -> dict[str, Run]:
    from headway.recipes import RECIPES
    from headway.train.comparison import on_one_text

    found: dict[str, Run] = {}
    for name in names:
        # A run.json is named after its folder.
        label = Path(name).resolve().parent.name if Path(name).is_file() else name
        refuse(label in found, f"two of the runs are called {label}: rename the folder of one")
        start = init if name in RECIPES and RECIPES[name].pretrained else None
        try:
            found[label] = train.resolve(name, files, None, start, settings)
        except InputError as error:
            raise InputError(f"{label}: {error}") from None
    return on_one_text(found, own="train" in files)


def _planned(runs: dict[str, Run], budget: dict[str, float], place: Path, download: bool) -> dict[str, Run]:
    """The runs with the steps that the budget allows. A speed in seconds is measured once and stored in the plan."""
    from headway.train.comparison import STEPPING, probe, seconds_of, tokens_per_second, within

    path = place / PLAN
    plan: dict[str, Any] = _plan(path) if path.is_file() else {"budget": budget, "tokens": {}, "seconds": {}}
    if plan["budget"] != budget:
        kept, asked = (
            ", ".join(f"{value:,g} {name}" for name, value in one.items()) or "each recipe's own"
            for one in (plan["budget"], budget)
        )
        raise InputError(
            f"{place} holds a comparison under another budget ({kept}, not {asked}): choose another --out, or pass "
            "--overwrite"
        )
    place.mkdir(parents=True, exist_ok=True)
    _write(path, json.dumps(plan, indent=1) + "\n")
    planned = {}
    for name, run in runs.items():
        if "seconds" in budget and not run.objective.one_pass and name not in plan["tokens"]:
            print(f"{name}: a few steps, to time them", file=sys.stderr)
            trial = place / f".{name}-probe"
            shutil.rmtree(trial, ignore_errors=True)
            _carried_out(probe(run, budget["seconds"]), trial, download)
            left = max(budget["seconds"] - seconds_of(trial), budget["seconds"] / 2)
            plan["seconds"][name], plan["tokens"][name] = (
                round(left, 3),
                round(left * STEPPING * tokens_per_second(trial)),
            )
            shutil.rmtree(trial)
            _write(path, json.dumps(plan, indent=1) + "\n")
        tokens = plan["tokens"].get(name, budget.get("tokens"))
        planned[name] = run if tokens is None else within(run, int(tokens), plan["seconds"].get(name, 0.0))
    return planned


def _trained(name: str, run: Run, seeds: int, place: Path, download: bool) -> Entry:
    """A recipe's results over all seeds; finished runs are read, not trained again."""
    from headway.evaluate.cost import Sketch
    from headway.folder import find_model, read_card
    from headway.models.configs import window
    from headway.train.comparison import Entry

    entry = Entry(name, _headline(run)[0])
    for seed in range(1, (1 if run.objective.one_pass else seeds) + 1):
        seeded = replace(run, engine=replace(run.engine, seed=seed))
        folder = place / name / f"seed-{seed}"
        print(f"{name}, seed {seed}", file=sys.stderr)
        _carried_out(seeded, folder, download)
        entry.add(seed, seeded, folder)
    card = read_card(find_model(folder))
    sketch = Sketch(card.family, card.config, card.sizes, head=card.head)
    length = min(window(card.config, 1), COUNTED)
    entry.parameters = sketch.size().parameters
    cost = sketch.cost(length)
    entry.operations, entry.path = cost.flops / length, cost.path
    return entry


def _carried_out(run: Run, folder: Path, download: bool) -> None:
    """Train the run, or resume it, unless the folder has it finished."""
    there = holds_run(folder, run)
    if not there or train.finished(folder, run) is None:
        train.carry_out(run, folder, download, resume=there)

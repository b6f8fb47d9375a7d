"""headway compare"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headway.cli.options import DEVICE, DTYPE, THREADS, engine_settings, use_threads
from headway.errors import InputError

if TYPE_CHECKING:
    from headway.train.comparison import Entry
    from headway.train.run import Run

PLAN = "comparison.json"


def compare(
    names: list[str] = typer.Argument(
        metavar="RECIPE", help="Names from `headway recipes`, or `ladder`: all its rungs."
    ),
    data: list[str] = typer.Option([], metavar="FILE...", help="Your own text, for all recipes."),
    valid: list[str] = typer.Option([], metavar="FILE...", help="Validation text (default: some is held out)."),
    test: list[str] = typer.Option([], metavar="FILE...", help="Test text (default: some is held out)."),
    tokens: str = typer.Option(None, metavar="N", help="The budget: tokens that each may see in training (2M, 500k)."),
    seconds: float = typer.Option(None, metavar="S", help="The budget: seconds that each may train."),
    seeds: int = typer.Option(1, metavar="N", help="Train each recipe with N different seeds."),
    settings: list[str] = typer.Option([], "--set", metavar="KEY=VALUE...", help="A setting of all the runs."),
    out: str = typer.Option(None, metavar="FOLDER", help="Folder for runs and results (default: runs/compare-NAMES)."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Delete the folder's results and train again."),
    download: bool = typer.Option(False, "--download", help="Fetch the recipes' data if it is missing."),
    as_json: bool = typer.Option(False, "--json", help="The results as JSON."),
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """Train several recipes on the same text under the same budget: a table and a plot.

    The same command resumes a comparison that was stopped; more recipes or seeds are added to the results there.
    """
    from headway.explore.curves import comparison_picture
    from headway.plain import finite
    from headway.tasks.files import look_for_known, look_for_own
    from headway.train.comparison import as_markdown, as_text, table

    budget = _budget(tokens, seconds)
    if seeds < 1:
        raise InputError(f"--seeds is {seeds}: each recipe is trained at least once")
    use_threads(threads)
    files = {"train": tuple(data), "valid": tuple(valid), "test": tuple(test)}
    runs = _runs(names, files, [*engine_settings(device, dtype), *settings])
    place = Path(out or f"runs/compare-{'-'.join(names[:3])}{'-…' if len(names) > 3 else ''}")
    for run in runs.values():
        look_for_own(run)
        if not download:
            look_for_known(run)
    if overwrite and place.exists():
        if not (place / PLAN).is_file():
            raise InputError(f"{place} is not the folder of a comparison: it is left alone, choose another --out")
        shutil.rmtree(place)
    runs = _planned(runs, budget, place, download)
    entries = [_trained(name, run, seeds, place, download) for name, run in runs.items()]
    rows = table(entries)
    results = finite({"budget": budget, "runs": [entry.to_plain() for entry in entries]})
    (place / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (place / "table.md").write_text(as_markdown(rows), encoding="utf-8")
    (place / "table.txt").write_text(as_text(rows) + "\n", encoding="utf-8")
    comparison_picture(entries, place / "comparison.png", next(iter(runs.values())).task.headline[1])
    print(json.dumps(results) if as_json else as_text(rows))
    print(f"picture: {place / 'comparison.png'}; table.md, table.txt and results.json beside it", file=sys.stderr)


def _budget(tokens: str | None, seconds: float | None) -> dict[str, float]:
    if tokens is not None and seconds is not None:
        raise InputError("--tokens and --seconds are two budgets: give one")
    if seconds is not None:
        if not seconds > 0:
            raise InputError(f"a budget of {seconds:g} seconds is too small: give more than 0")
        return {"seconds": seconds}
    if tokens is None:
        return {}
    try:
        unit = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}.get(tokens[-1:].lower(), 1)
        count = float(tokens.rstrip("kKmMgG").replace(",", "").replace("_", "")) * unit
    except ValueError:
        raise InputError(f"--tokens {tokens} is no number: write 2000000, 500k or 2M") from None
    if not 1 <= count < float("inf"):
        raise InputError(f"a budget of {tokens} tokens is too small: give more than 0")
    return {"tokens": round(count)}


def _runs(names: list[str], files: dict[str, tuple[str, ...]], settings: list[str]) -> dict[str, Run]:
    from headway.cli.train import resolve
    from headway.recipes import GROUPS
    from headway.train.comparison import on_one_text

    wanted = dict.fromkeys(recipe for name in names for recipe in GROUPS.get(name, (name,)))
    if not wanted:
        raise InputError("name the recipes to compare: headway compare ladder --data my.txt")
    found: dict[str, Run] = {}
    for name in wanted:
        # A run.json is named after its folder.
        label = Path(name).resolve().parent.name if Path(name).is_file() else name
        if label in found:
            raise InputError(f"two of the runs are called {label}: rename the folder of one")
        try:
            found[label] = resolve(name, dict(files), None, None, settings)
        except InputError as error:
            raise InputError(f"{label}: {error}") from None
    return on_one_text(found, own=bool(files["train"]))


def _planned(runs: dict[str, Run], budget: dict[str, float], place: Path, download: bool) -> dict[str, Run]:
    """The runs with the steps that the budget allows. A speed in seconds is measured once and stored in the plan."""
    from headway.train.comparison import probe, tokens_per_second, within

    plan: dict[str, Any] = {"budget": budget, "tokens": {}}
    path = place / PLAN
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["budget"] != budget:
            raise InputError(
                f"{place} holds a comparison under another budget ({_words(kept['budget'])}, not {_words(budget)}): "
                "choose another --out, or pass --overwrite"
            )
        plan = kept
    place.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")
    planned = {}
    for name, run in runs.items():
        if "seconds" in budget and not run.objective.one_pass and name not in plan["tokens"]:
            trial = place / f".{name}-probe"
            shutil.rmtree(trial, ignore_errors=True)
            _carried_out(probe(run), trial, download)
            plan["tokens"][name] = round(budget["seconds"] * tokens_per_second(trial))
            shutil.rmtree(trial)
            path.write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")
        tokens = plan["tokens"].get(name, budget.get("tokens"))
        planned[name] = run if tokens is None else within(run, int(tokens))
    return planned


def _words(budget: dict[str, float]) -> str:
    return ", ".join(f"{value:,g} {name}" for name, value in budget.items()) or "each recipe's own"


def _trained(name: str, run: Run, seeds: int, place: Path, download: bool) -> Entry:
    """A recipe's results over all seeds; finished runs are read, not trained again."""
    from headway.evaluate.cost import Sketch
    from headway.folder import find_model, read_card
    from headway.models.configs import window
    from headway.train.comparison import Entry

    entry = Entry(name, run.task.headline[0])
    for seed in range(1, (1 if run.objective.one_pass else seeds) + 1):
        seeded = replace(run, engine=replace(run.engine, seed=seed))
        folder = place / name / f"seed-{seed}"
        print(f"{name}, seed {seed}", file=sys.stderr)
        _carried_out(seeded, folder, download)
        entry.add(seed, seeded, folder)
    card = read_card(find_model(folder))
    sketch, length = Sketch(card.family, card.config, card.sizes, head=card.head), window(card.config, 1)
    entry.parameters = sketch.size().parameters
    entry.operations = sketch.cost(length).flops / length
    return entry


def _carried_out(run: Run, folder: Path, download: bool) -> None:
    """Train the run, or resume it, unless the folder has it finished."""
    from headway.cli.place import holds_run
    from headway.cli.train import carry_out, is_finished

    if (there := holds_run(folder, run)) and is_finished(folder, run):
        return
    carry_out(run, folder, download, resume=there)

"""headway train"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headway.cli.options import DEVICE, DTYPE, THREADS, use_threads
from headway.errors import InputError, nearest

if TYPE_CHECKING:
    from headway.train.run import Run


def train(
    recipe: str = typer.Argument(metavar="RECIPE", help="A name from `headway recipes`, or an earlier run's run.json."),
    data: list[str] = typer.Option(
        [], metavar="FILE...", help="Training pairs: two aligned files, a .tsv or a .jsonl."
    ),
    valid: list[str] = typer.Option([], metavar="FILE...", help="Validation pairs (default: some are held out)."),
    test: list[str] = typer.Option([], metavar="FILE...", help="Test pairs, scored once at the end."),
    source: str = typer.Option(None, metavar="NAME", help="Source language, a name or a code."),
    target: str = typer.Option(None, metavar="NAME", help="Target language."),
    size: str = typer.Option(None, metavar="NAME", help="Model size: tiny, base or big."),
    init: str = typer.Option(None, metavar="MODEL", help="Go on from this model's weights and vocabulary."),
    settings: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE...", help="Any value of the run: engine.steps=5000. --dry-run shows them all."
    ),
    out: str = typer.Option(None, metavar="FOLDER", help="Folder for the run (default: runs/RECIPE)."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace the folder if it is there."),
    download: bool = typer.Option(False, "--download", help="Fetch the recipe's data if it is not at hand."),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Show the run, its size and an estimate of the time; train nothing."
    ),
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """Train a model: a recipe's own data, or yours (`headway train translate --data a.en a.de`)."""
    files = {"train": tuple(data), "valid": tuple(valid), "test": tuple(test)}
    named = {"source": source, "target": target}
    run = resolve(recipe, files | named, size, init, settings, {"device": device, "dtype": dtype})
    use_threads(threads)
    if dry_run:
        from headway.train.estimate import describe

        print(describe(run))
        return
    from headway.cli.place import claimed
    from headway.train.log import Log
    from headway.train.translation import train_translator

    place = Path(out or f"runs/{run.recipe}")
    with claimed(place, overwrite), closing(Log(place, run.engine.tensorboard)) as log:
        outcome = train_translator(run, place, log, download=download)
    for key, value in outcome.scores.items():
        print(f"{key}: {value}")
    print(f"model: {outcome.folder} ({outcome.seconds:.0f} s in all)")


def resolve(
    recipe: str,
    data: dict[str, Any],
    size: str | None,
    init: str | None,
    settings: list[str],
    engine: dict[str, str],
) -> Run:
    """The run that the command line describes."""
    from headway.folder import find_model, read_card
    from headway.models.transformer import SIZES
    from headway.plain import change
    from headway.recipes import RECIPES
    from headway.train.run import read_run

    if recipe in RECIPES:
        run = RECIPES[recipe].make()
    elif Path(recipe).is_file():
        run = read_run(Path(recipe))
    elif (again := Path(recipe) / "run.json").is_file():
        raise InputError(f"{recipe} is an earlier run: headway train {again} does it again, --init takes its weights")
    else:
        raise InputError(f"there is no recipe '{recipe}'{nearest(recipe, RECIPES)}")
    if size is not None:
        if init is not None:
            raise InputError("--init brings a model with its own size: leave --size out")
        if size not in SIZES:
            raise InputError(f"there is no size '{size}'{nearest(size, SIZES)}")
        run = replace(run, model=SIZES[size])
    if init is not None:
        card = read_card(find_model(init))
        data_of_card = replace(run.data, text=card.text, source=card.source, target=card.target)
        run = replace(run, init=init, model=card.config, data=data_of_card)
    run = replace(run, data=replace(run.data, **{key: value for key, value in data.items() if value}))
    if run.recipe == "demo" and not run.data.train:
        raise InputError("the demo makes its own sentences: run `headway demo`, or give --data SOURCE TARGET")
    given = [f"engine.{key}={value}" for key, value in engine.items() if value != "auto"]
    return change(run, [*given, *settings])

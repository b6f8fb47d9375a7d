"""headway train"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from headway.cli.place import chosen, goal_of, settle, worked_in
from headway.cli.processes import is_first, report_once
from headway.durations import spoken
from headway.errors import InputError, nearest, refuse
from headway.outside import read_object
from headway.plain import change, to_plain

if TYPE_CHECKING:
    from headway.train.job import Outcome
    from headway.train.run import Run


@report_once()
def train(
    recipe: str = argument(
        "RECIPE", "A name from `headway recipes`, an earlier run's run.json, or with --resume its folder."
    ),
    data: list[str] = option(
        [],
        "FILE...",
        "Training pairs (two aligned files, a .tsv or a .jsonl), text, or labelled text (.csv, .tsv, .jsonl).",
    ),
    valid: list[str] = option([], "FILE...", "Validation pairs (default: some are held out)."),
    test: list[str] = option([], "FILE...", "Test pairs, scored once at the end."),
    source: str = option(None, "NAME", "Source language, a name or a code."),
    target: str = option(None, "NAME", "Target language."),
    size: str = option(None, "NAME", "Model size: tiny, base, big; char, 124M … 1.5B."),
    text_column: list[str] = TEXT_COLUMN,
    label_column: str = LABEL_COLUMN,
    init: str = option(
        None, "MODEL", "Start from this model's weights and vocabulary, or from a file of word vectors."
    ),
    lr: float = option(None, "RATE", "Peak learning rate: short for --set schedule.peak=RATE."),
    steps: int = option(None, "N", "Updates: short for --set engine.steps=N."),
    batch_size: int = option(None, "N", "Tokens of a batch: short for --set engine.batch=N."),
    seed: int = option(None, "N", "Of the random generators: short for --set engine.seed=N."),
    settings: list[str] = option(
        [], "KEY=VALUE...", "Any value of the run: engine.steps=5000. --dry-run shows them all.", "--set"
    ),
    out: str = option(None, "FOLDER", "Folder for the run (default: runs/RECIPE)."),
    overwrite: bool = flag("--overwrite", "Replace the folder if it is there."),
    resume: bool = flag("--resume", "Resume the run in the folder; --set may change its steps, rates and checks."),
    download: bool = flag("--download", "Fetch the recipe's data if it is missing."),
    dry_run: bool = flag("--dry-run", "Show the run, its size and an estimate of the time; train nothing."),
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """Train a model: a recipe's own data, or yours (`headway train translate --data a.en a.de`)."""
    done = perform(
        recipe, data=data, valid=valid, test=test, source=source, target=target, size=size,
        text_column=text_column, label_column=label_column, init=init, lr=lr, steps=steps, batch_size=batch_size,
        seed=seed, settings=settings, out=out, overwrite=overwrite, resume=resume, download=download,
        dry_run=dry_run, device=device, dtype=dtype,
    )  # fmt: skip
    if done is not None and is_first():
        print("\n".join([*(f"{key}: {value}" for key, value in done.scores.items()), f"model: {done}"]))


@dataclass(frozen=True)
class Done:
    """A finished run: its model's folder and scores. note: how it came about."""

    model: Path
    scores: dict[str, Any]
    note: str

    def __str__(self) -> str:
        return f"{self.model} ({self.note})"


def perform(
    recipe: str, *, data: Sequence[str] = (), valid: Sequence[str] = (), test: Sequence[str] = (),
    source: str | None = None, target: str | None = None, size: str | None = None, text_column: Sequence[str] = (),
    label_column: str | None = None, init: str | None = None, lr: float | None = None, steps: int | None = None,
    batch_size: int | None = None, seed: int | None = None,
    settings: Sequence[str] = (), out: str | None = None, overwrite: bool = False, resume: bool = False,
    download: bool = False, dry_run: bool = False, device: str = "auto", dtype: str = "auto",
) -> Done | None:  # fmt: skip
    """What `headway train` does, for the shell and for Python; None after a dry run."""
    files = {"train": tuple(data), "valid": tuple(valid), "test": tuple(test), "source": source, "target": target}
    files |= {"text_column": tuple(text_column), "label_column": label_column}
    files = {key: value for key, value in files.items() if value}
    short = {"engine.steps": steps, "schedule.peak": lr, "engine.batch": batch_size, "engine.seed": seed}
    given = [f"{key}={value}" for key, value in short.items() if value is not None]
    settings = [*engine_settings(device, dtype), *given, *settings]
    refuse(resume and overwrite, "--resume continues a run, --overwrite starts it again: pass one of them")
    if resume:
        place, run = resumed(recipe, out, files, size, init, settings)
    else:
        run = resolve(recipe, files, size, init, settings)
        place = Path(out or f"runs/{run.recipe}")
    first = is_first()
    if dry_run:
        from headway.train.estimate import describe

        if first:
            print(describe(run))
        return None
    settle(place)
    # Each of several processes checks the folder before the first one changes it.
    if resume:
        settle(goal := goal_of(place))
    else:
        place, resume = chosen(goal := place, run, overwrite)
    if resume and (scores := finished(place, run)) is not None:
        if first and place != goal:  # it was stopped just before it took its place
            with worked_in(place, goal, resume):
                pass
        return Done(goal / "model", scores, "finished before; --overwrite trains it again")
    outcome = carry_out(run, place, download, goal, first=first, resume=resume)
    return Done(goal / "model", outcome.scores, f"{spoken(outcome.seconds)} in all")


def carry_out(
    run: Run, place: Path, download: bool, goal: Path | None = None, *, first: bool = True, resume: bool = False
) -> Outcome:  # fmt: skip
    """Train a run in a folder, or resume it there; then the folder takes the place of `goal`."""
    from headway.train.job import train
    from headway.train.log import Log

    with ExitStack() as stack:
        if first:
            stack.enter_context(worked_in(place, goal or place, resume))
        log = stack.enter_context(closing(Log(place if first else None, run.engine.tensorboard)))
        return train(run, place, log, download=download, resume=resume)


def finished(place: Path, run: Run) -> dict[str, Any] | None:
    """The scores of the folder's model, if it is of exactly this run, with as many steps."""
    from headway.train.run import run_from

    try:
        card = read_object(place / "model" / "headway.json")
        scores = card.get("score", {})
        same = isinstance(scores, dict) and to_plain(run_from(card.get("run"))) == to_plain(run)
        return scores if same else None
    except InputError:
        return None


def resumed(
    recipe: str, out: str | None, data: dict[str, Any], size: str | None, init: str | None, settings: list[str]
) -> tuple[Path, Run]:
    """The run in a folder, with the changes that resuming allows; any other change is refused by name."""
    from headway.recipes import RECIPES
    from headway.train.run import read_run, refused_changes

    place = Path(out or (f"runs/{recipe}" if recipe in RECIPES else recipe))
    if place.name == "run.json":
        place = place.parent
    refuse(not (place / "run.json").is_file(), f"{place} holds no run to resume (run.json is missing)")
    stored = read_run(place / "run.json")
    if size is not None or init is not None:
        raise InputError("a resumed run keeps its model: leave --size and --init out, or start another run")
    _check_data(stored, data)
    run = change(replace(stored, data=replace(stored.data, **data)), settings)
    if refused := refused_changes(stored, run):
        raise InputError(f"{place} cannot resume with {'; '.join(refused)}: start another run with --out")
    return place, run


def resolve(recipe: str, data: dict[str, Any], size: str | None, init: str | None, settings: list[str]) -> Run:
    """The run that the command line describes."""
    from headway.models import FAMILIES

    has_vectors = init is not None and Path(init).is_file()
    run = _named(recipe, pretrained=init is not None and not has_vectors)
    if size is not None:
        sizes = FAMILIES[run.model.name].sizes
        refuse(init is not None and not has_vectors, "--init brings a model with its own size: leave --size out")
        refuse(size not in sizes, f"there is no size '{size}'{nearest(size, sizes)}")
        run = replace(run, model=sizes[size])
    _check_data(run, data)
    if init is not None:
        run = replace(run, init=init) if has_vectors else _begun_with(run, init)
    run = replace(run, data=replace(run.data, **data))
    if run.recipe == "demo" and not run.data.train:
        raise InputError("the demo makes its own sentences: run `headway demo`, or give --data SOURCE TARGET")
    return change(run, settings)


def _check_data(run: Run, data: dict[str, Any]) -> None:
    """Refuse an option for data of another kind."""
    if strange := sorted(data.keys() - {f.name for f in fields(run.data)}):
        option = strange[0].replace("_", "-")
        raise InputError(f"the recipe '{run.recipe}' takes no --{option}: it learns from {run.data.name}")


def _named(recipe: str, pretrained: bool = False) -> Run:
    from headway.recipes import RECIPES
    from headway.train.run import read_run

    if recipe in RECIPES:
        needs = RECIPES[recipe].pretrained and not pretrained
        refuse(needs, f"the recipe '{recipe}' starts from a model that has read much before: pass --init MODEL")
        return RECIPES[recipe].make(pretrained)
    if Path(recipe).is_file() and Path(recipe).suffix != ".json":
        raise InputError(f"{recipe} is a file and no recipe; data come behind one: headway train gpt --data {recipe}")
    if Path(recipe).is_file():
        return read_run(Path(recipe))
    if (again := Path(recipe) / "run.json").is_file():
        raise InputError(
            f"{recipe} is an earlier run: --resume continues it, headway train {again} runs it again, "
            "--init takes its weights"
        )
    raise InputError(f"there is no recipe '{recipe}'{nearest(recipe, RECIPES, '`headway recipes`')}")


def _begun_with(run: Run, init: str) -> Run:
    """The run started from another model: with its weights, config, vocabulary and languages."""
    from headway.folder import find_model, read_card
    from headway.models import FAMILIES

    card = read_card(find_model(init))
    if FAMILIES[card.family].role != FAMILIES[run.model.name].role:
        raise InputError(
            f"{init} is a model of the family '{card.family}': '{run.recipe}' needs one like '{run.model.name}'"
        )
    known = {f.name for f in fields(run.data)}
    brought: dict[str, Any] = {}
    for name, config in card.processors.items():
        brought = config.settings(name) | brought
    settings = {key: value for key, value in brought.items() if key in known}
    try:
        return replace(run, init=init, model=card.config, data=replace(run.data, **settings))
    except InputError as error:
        if card.family == run.model.name:
            raise
        raise InputError(
            f"{init} is a model of the family '{card.family}', '{run.recipe}' is for '{run.model.name}': {error}"
        ) from None

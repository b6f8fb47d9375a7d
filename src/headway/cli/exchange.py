"""headway import, headway export"""

from __future__ import annotations

from pathlib import Path

import typer

from headway.cli.options import check_model
from headway.errors import InputError

ARPA = (".arpa", ".arpa.gz", ".lm", ".lm.gz")
ENDINGS = "an ARPA file of n-grams ends in " + ", ".join(ARPA)


def export(
    model: str = typer.Argument(metavar="MODEL", help="A model folder, or a run's folder."),
    file: str = typer.Argument(metavar="FILE", help="What to write: n-grams as .arpa or .arpa.gz."),
) -> None:
    """Write a model in a form that other programs read."""
    check_model(model, "headway export MODEL FILE")
    _check_ending(file)
    if Path(file).exists():
        raise InputError(f"{file} is there already: choose another name, or delete it first")
    from headway.hub.arpa import export_arpa

    export_arpa(model, file)
    print(f"written: {file}")


def take_in(
    file: str = typer.Argument(metavar="FILE", help="What to read: n-grams as .arpa or .arpa.gz."),
    folder: str = typer.Argument(metavar="FOLDER", help="The model folder to make of it."),
    like: str = typer.Option(
        None, metavar="MODEL", help="A model with the same vocabulary, where that is not of words between spaces."
    ),
) -> None:
    """Make a model folder of another program's file."""
    from headway.cli.place import is_taken
    from headway.hub.arpa import import_arpa

    _check_ending(file)
    if is_taken(Path(folder)):
        raise InputError(f"{folder} is there already: choose another name, or delete it first")
    import_arpa(file, folder, like)
    print(f"model: {folder}")


def _check_ending(file: str) -> None:
    if not file.endswith(ARPA):
        raise InputError(f"{file} is of no known form: {ENDINGS}")

"""Whether the files that a run reads are there, before anything is begun."""

from __future__ import annotations

from pathlib import Path

from headway.data.catalog import find_all
from headway.data.labelled import in_archive
from headway.data.readers import must_be_there
from headway.errors import InputError
from headway.train.corpus import is_own
from headway.train.run import Run


def files_of(run: Run) -> list[str]:
    """What it learns from and is judged by, each once; of an archive's members the archive."""
    names = (*run.data.train, *run.data.valid, *run.data.test)
    return list(dict.fromkeys(in_archive(name)[0] for name in names))


def look_for_own(run: Run) -> None:
    for path in map(Path, filter(is_own, files_of(run))):
        if path.is_dir():
            continue
        must_be_there(path)
        if path.is_file() and not path.stat().st_size:
            raise InputError(f"file {path} is empty")


def look_for_known(run: Run) -> None:
    """Files of known data sets, which may yet be fetched."""
    for file in files_of(run):
        if not is_own(file):
            find_all(file)

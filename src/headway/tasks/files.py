"""The files of a run: the user's own, or those of a data set in the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from headway import checksums
from headway.atomic import replaced
from headway.data.catalog import find, find_all
from headway.data.readers import must_be_there
from headway.data.table import in_archive
from headway.errors import refuse
from headway.tasks.start import RunContext
from headway.text.tokenizer import Tokenizer

NAMED = 20  # numbers that a line lists
PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class DataFiles:
    """Abstract. What the data of every run has: the user's files, or names of a data set that headway knows.

    wanted: what `--data` takes.
    """

    name: ClassVar[str]
    wanted: ClassVar[str]
    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()

    @property
    def without_files(self) -> str:
        """What a run without files learns from, for a reader."""
        return "none yet, pass --data"

    def parts(self) -> dict[str, tuple[str, ...]]:
        """The names of each part that has any."""
        refuse(not self.train, f"no training data: pass --data {self.wanted}")
        return {part: names for part in PARTS if (names := getattr(self, part))}


@dataclass(frozen=True)
class DividedFiles(DataFiles):
    """Abstract. Without `valid`, the share `hold_out` of the training data is."""

    hold_out: float = 0.1

    def __post_init__(self) -> None:
        refuse(not 0 < self.hold_out < 1, f"data.hold_out must lie between 0 and 1, not {self.hold_out}")

    def refuse_test_share(self, share: float) -> None:
        """For data of which a share can be held out for a last test."""
        wrong = not 0 <= share < 1 - self.hold_out
        refuse(wrong, f"data.hold_out_test must be at least 0 and leave something to learn from, not {share}")


def is_own(name: str) -> bool:
    """Whether a name is a file of the user's, existing or mistyped, and not one of a known data set."""
    path = Path(name)
    return path.exists() or path.is_absolute() or path.parent.is_dir()


def files_of(run: Any) -> list[str]:
    """The training, validation and test files of a run, each once; of an archive's members the archive."""
    names = (*run.data.train, *run.data.valid, *run.data.test)
    return list(dict.fromkeys(in_archive(name)[0] for name in names))


def look_for_own(run: Any) -> None:
    """Refuse a run whose files are missing or empty, before it starts."""
    for path in map(Path, filter(is_own, files_of(run))):
        if path.is_dir():
            continue
        must_be_there(path)
        refuse(path.is_file() and not path.stat().st_size, f"file {path} is empty")


def look_for_known(run: Any) -> None:
    """Refuse a run whose known data sets are not on this machine; --download fetches them."""
    for file in files_of(run):
        if not is_own(file):
            find_all(file)


def found(names: Iterable[str], context: RunContext, folders: bool = False) -> list[Path]:
    """The user's files as they are, those of a known data set where they are on this machine, with `download` from the
    network; a member of an archive stays behind it. folders: a name may stand for all files of a known folder."""
    paths: list[Path] = []
    for name in names:
        file, member = in_archive(name)
        places = [Path(file)]
        if not is_own(file):
            with context.log.bar(f"fetching {file}", None, " bytes") if context.download else nullcontext() as show:
                how: dict[str, Any] = {"download": True, "progress": lambda done, total: show(done)} if show else {}
                places = find_all(file, **how) if folders else [find(file, **how)]
        paths += [place / member for place in places]
    return paths


def divided(
    data: DividedFiles, context: RunContext, read: Callable[[list[Any]], Any],
    hold_out: Callable[[Any, float], tuple[Any, Any]], test: float = 0.0, folders: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The examples of each part; where there are none for validation, some of the training examples, and where there
    are none for a test, the share `test` of all."""
    parts = {part: read(found(names, context, folders)) for part, names in data.parts().items()}
    if "valid" not in parts:
        parts["train"], parts["valid"] = hold_out(parts["train"], data.hold_out)
    if test and "test" not in parts:
        parts["train"], parts["test"] = hold_out(parts["train"], test / (1 if data.valid else 1 - data.hold_out))
    return parts


def listed(numbers: Sequence[object], count: int) -> str:
    """The first of `count` numbers, for a message."""
    shown = numbers[:NAMED]
    return ", ".join(map(str, shown)) + (" …" if count > len(shown) else "")


def vocabularies(
    context: RunContext, learn: Callable[[], Sequence[Any]], names: Sequence[str] = ("joint",),
    load: Callable[[Path], Any] = Tokenizer.load,
) -> list[Any]:  # fmt: skip
    """Tokenizers kept in the run's folder under these names: as a resumed run left them, or learned now. What is in
    that folder then has checksums: another vocabulary, or other held-out pairs, would give another model."""
    folder = context.out / "data"
    paths = [folder / f"{name}.tokenizer.json" for name in names]
    kept = context.resumed and all(path.is_file() for path in paths)
    if kept:
        checksums.verify(folder)
        tokenizers = [load(path) for path in paths]
    else:
        context.log.say("learning the vocabulary")
        tokenizers = list(learn())
        folder.mkdir(exist_ok=True)
        for path, tokenizer in zip(paths, tokenizers, strict=False):
            with replaced(path) as part:
                tokenizer.save(part)
    if not (kept and (folder / checksums.NAME).is_file()):
        for left in folder.glob(".*.part"):  # by a process that was killed
            left.unlink()
        checksums.write(folder, sorted(path.name for path in folder.iterdir() if path.name != checksums.NAME))
    return tokenizers

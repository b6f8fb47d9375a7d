"""A translator's data: files found, some pairs held out, vocabularies learned, pairs encoded."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path

from headway.data.catalog import cache_folder, find
from headway.data.readers import read_pairs
from headway.data.split import held_out, split_corpus
from headway.data.store import PairStore, prepare, train_tokenizers
from headway.errors import InputError
from headway.folder import Loaded
from headway.text.tokenizer import Tokenizer
from headway.train.log import Log
from headway.train.run import ParallelText, Run

NAMED = 20  # numbers of pairs that a line for a person lists


@dataclass
class Corpus:
    """A run's data, ready: files of each part, tokenizers, and the encoded pairs."""

    files: dict[str, list[Path]]
    tokenizers: tuple[Tokenizer, Tokenizer]
    train: PairStore
    valid: PairStore


def locate(data: ParallelText, download: bool, log: Log) -> dict[str, list[Path]]:
    """The files of each part: paths as they are, known names from the data folder or, if asked, the network."""
    if not data.train:
        raise InputError("no training data: pass --data SOURCE TARGET (two aligned files), a .tsv or a .jsonl")
    parts: dict[str, list[Path]] = {}
    for part, names in (("train", data.train), ("valid", data.valid), ("test", data.test)):
        parts[part] = [Path(name) if is_own(name) else _known(name, download, log) for name in names]
    return parts


def _known(name: str, download: bool, log: Log) -> Path:
    if not download:
        return find(name)
    with log.bar(f"fetching {name}", None, " bytes") as show:
        return find(name, download=True, progress=lambda done, total: show(done))


def is_own(name: str) -> bool:
    """Whether a name means a file of one's own, there or mistyped, and not one of a known data set."""
    path = Path(name)
    return path.exists() or path.is_absolute() or path.parent.is_dir()


def open_corpus(
    run: Run, out: Path, log: Log, download: bool = False, init: Loaded | None = None, known: bool = False,
    split: bool = True,
) -> Corpus:  # fmt: skip
    """Find the files, hold some pairs out where that is needed, learn the vocabularies, encode the pairs.

    The vocabularies are kept in `out`; where they are `known`, those are taken. Held-out pairs are written there;
    without `split` another process has just done so.
    """
    data = run.pairs
    files = locate(data, download, log)
    for part in ("valid", "test"):  # a fault there is told now, not when all that is to be learned has been encoded
        if files[part]:
            deque(read_pairs(files[part], data.source, data.target), maxlen=0)
    if not files["valid"]:
        if split:
            split_corpus(files["train"], out / "data", data.hold_out, data.source, data.target)
        held = held_out(out / "data")
        files = {part: list(paths) for part, paths in held.items()} | ({"test": files["test"]} if files["test"] else {})
    if init is not None:
        tokenizers = (init.source_tokenizer, init.target_tokenizer)
    else:
        tokenizers = _vocabularies(run, files["train"], out / "data", log, known)
    stores = {part: _encode(run, files[part], tokenizers, part, log) for part in ("train", "valid")}
    return Corpus(files, tokenizers, stores["train"], stores["valid"])


def _vocabularies(run: Run, files: list[Path], folder: Path, log: Log, known: bool) -> tuple[Tokenizer, Tokenizer]:
    """Learned from the text, or, of a run that goes on, as it learned them."""
    data = run.pairs
    paths = [folder / f"{side}.tokenizer.json" for side in (("joint",) if data.text.joint else ("source", "target"))]
    if known and all(path.is_file() for path in paths):
        found = [Tokenizer.load(path) for path in paths]
        return found[0], found[-1]
    log.say("learning the vocabulary")
    tokenizers = train_tokenizers(files, data.text, source=data.source, target=data.target)
    folder.mkdir(exist_ok=True)
    for path, tokenizer in zip(paths, tokenizers, strict=False):
        tokenizer.save(path)
    return tokenizers


def _encode(run: Run, files: list[Path], tokenizers: tuple[Tokenizer, Tokenizer], part: str, log: Log) -> PairStore:
    longest = run.max_length - max(1, len(tokenizers[0].opening) + len(tokenizers[0].closing))
    with log.bar(f"encoding {part}", None, " pairs") as show:
        store = prepare(
            files, *tokenizers, cache_folder() / "stores", max_length=longest,
            source=run.pairs.source, target=run.pairs.target, progress=show,
        )  # fmt: skip
    tokens = int(store.source_lengths.sum()), int(store.target_lengths.sum())
    before = " (encoded before)" if store.reused else ""
    log.say(f"{part}: {len(store):,} pairs, {tokens[0]:,} + {tokens[1]:,} pieces{before}")
    log.event("data", part=part, pairs=len(store), skipped=store.skipped, too_long=store.too_long)
    if store.skipped["too_long"]:
        which = listed(store.too_long, store.skipped["too_long"])
        log.say(f"{part}: {store.skipped['too_long']:,} pairs longer than {longest} pieces left out (pairs {which})")
    if store.skipped["empty"]:
        log.say(f"{part}: {store.skipped['empty']:,} pairs with an empty side left out")
    return store


def listed(numbers: list[int], count: int) -> str:
    """The first of `count` numbers, for a line that a person reads."""
    shown = numbers[:NAMED]
    return ", ".join(map(str, shown)) + (" …" if count > len(shown) else "")

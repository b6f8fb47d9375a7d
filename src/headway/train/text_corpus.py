"""A language model's data: documents found, some held out, the vocabulary learned, all of it encoded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headway.data.catalog import cache_folder, find_all
from headway.data.documents import Corpus, Documents, left_out
from headway.data.split import hold_out
from headway.data.token_store import TokenStore, prepare_documents, train_document_tokenizer
from headway.errors import InputError
from headway.folder import Loaded
from headway.text.tokenizer import Tokenizer
from headway.train.corpus import NAMED, is_own
from headway.train.log import Log
from headway.train.run import PlainText


@dataclass
class TextCorpus:
    """A run's data, ready. `train` has a store for each corpus of a mixture."""

    tokenizer: Tokenizer
    train: list[TokenStore]
    valid: TokenStore
    test: TokenStore | None

    def names(self) -> dict[str, str]:
        """What a run learns from, by what is in it."""
        return {"train": " ".join(store.folder.name for store in self.train), "valid": self.valid.folder.name}


def open_text(
    data: PlainText, out: Path, log: Log, *, download: bool = False, known: bool = False, init: Loaded | None = None
) -> TextCorpus:  # fmt: skip
    """The vocabulary is kept in `out`; where it is `known`, that one is taken. `init` brings its own."""
    train_parts, held = _parts(data, log, download)
    if init is not None:
        tokenizer = init.source_tokenizer
    else:
        tokenizer = _tokenizer(data, train_parts, out / "data" / "joint.tokenizer.json", log, known)
    stores = [_encode(part, tokenizer, "train", log) for part in train_parts]
    encoded = {name: _encode(part, tokenizer, name, log) for name, part in held.items()}
    return TextCorpus(tokenizer, stores, encoded["valid"], encoded.get("test"))


def _parts(data: PlainText, log: Log, download: bool) -> tuple[list[Corpus], dict[str, Corpus]]:
    """The corpora to learn from, one for each name, and the texts that are held out of all of them."""
    if not data.train:
        raise InputError("no training data: pass --data FILE (text, a folder of it, or .jsonl)")
    corpora: list[Documents] = [Documents.at(_found(name, log, download), lines=data.text.lines) for name in data.train]
    held: dict[str, Corpus] = {
        part: Documents.at([path for name in names for path in _found(name, log, download)], lines=data.text.lines)
        for part, names in (("valid", data.valid), ("test", data.test))
        if names
    }
    if "valid" in held:
        return list(corpora), held
    if len(corpora) > 1:
        raise InputError("a mixture of several corpora needs --valid: say what it is to be judged on")
    parts: dict[str, Corpus] = {**hold_out(corpora[0], data.hold_out, 0.0 if held else data.hold_out_test)}
    return [parts.pop("train")], parts | held


def _found(name: str, log: Log, download: bool) -> list[Path]:
    if is_own(name):
        if others := left_out([name]):
            shown = ", ".join(file.name for file in others[:NAMED]) + (" …" if len(others) > NAMED else "")
            log.say(f"{name}: {len(others):,} files that are no .txt or .jsonl are left out ({shown})")
        return [Path(name)]
    return list(find_all(name, download=download))


def _tokenizer(data: PlainText, parts: list[Corpus], path: Path, log: Log, known: bool) -> Tokenizer:
    if known and path.is_file():
        return Tokenizer.load(path)
    log.say("learning the vocabulary")
    files = tuple(file for part in parts if isinstance(part, Documents) for file in part.files)
    everything = parts[0] if len(parts) == 1 else Documents(files, lines=data.text.lines)
    tokenizer = train_document_tokenizer(everything, data.text)
    path.parent.mkdir(exist_ok=True)
    tokenizer.save(path)
    return tokenizer


def _encode(part: Corpus, tokenizer: Tokenizer, name: str, log: Log) -> TokenStore:
    with log.bar(f"encoding {name}", None, " characters") as show:
        store = prepare_documents(part, tokenizer, cache_folder() / "stores", progress=show)
    before = " (encoded before)" if store.reused else ""
    unknown = f", {store.amount.unknown:,} unknown" if store.amount.unknown else ""
    log.say(f"{name}: {store.amount.characters:,} characters, {store.tokens:,} tokens{unknown}{before}")
    log.event("data", part=name, characters=store.amount.characters, tokens=store.tokens)
    return store

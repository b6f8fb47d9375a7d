"""Training a language model: documents, windows, and the loss on held-out text as the judge."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headway.data.catalog import cache_folder, find_all
from headway.data.documents import Corpus, Documents, left_out
from headway.data.split import hold_out
from headway.data.token_store import TokenStore, prepare_documents, train_document_tokenizer
from headway.data.windows import WindowBatch, WindowBatches, evaluation_windows
from headway.errors import InputError
from headway.evaluate.perplexity import score_store
from headway.folder import Card, Loaded, read_model
from headway.models.gpt import GPT, GPTConfig
from headway.plain import to_plain
from headway.text.tokenizer import Tokenizer
from headway.train.corpus import NAMED, is_own
from headway.train.job import Desk, Job, Outcome, entropy, fresh_model, train
from headway.train.log import Log
from headway.train.run import PlainText, Run


def train_language_model(run: Run, out: Path, log: Log, *, download: bool = False, resume: bool = False) -> Outcome:
    return train(run, out, log, open_language, download=download, resume=resume)


def open_language(run: Run, desk: Desk) -> Job:
    assert isinstance(run.model, GPTConfig)
    earlier = read_model(run.init) if run.init else None
    with desk.ranks.in_turn():
        train_parts, valid_part = _parts(run.documents, desk)
        tokenizer = _tokenizer(run.documents, train_parts, desk, earlier)
        stores = [_encode(part, tokenizer, "train", desk) for part in train_parts]
        valid = _encode(valid_part, tokenizer, "valid", desk)
    size = earlier.card.vocabularies[0] if earlier else len(tokenizer)
    config = run.model
    model = fresh_model(run, desk, lambda: GPT(config, size))
    card = Card("gpt", config, (size,), earlier.card.text if earlier else run.data.text, run=to_plain(run))
    return LanguageJob(run, desk, model, card, tokenizer, stores, valid)


def _parts(data: PlainText, desk: Desk) -> tuple[list[Corpus], Corpus]:
    """The corpora to learn from, one for each name, and the text that is held out of all of them."""
    if not data.train:
        raise InputError("no training data: pass --data FILE (text, a folder of it, or .jsonl)")
    corpora = [Documents.at(_found(name, desk)) for name in data.train]
    if data.valid:
        return list(corpora), Documents.at([path for name in data.valid for path in _found(name, desk)])
    if len(corpora) > 1:
        raise InputError("a mixture of several corpora needs --valid: say what it is to be judged on")
    train_part, valid_part = hold_out(corpora[0], data.hold_out)
    return [train_part], valid_part


def _found(name: str, desk: Desk) -> list[Path]:
    if is_own(name):
        if others := left_out([name]):
            shown = ", ".join(file.name for file in others[:NAMED]) + (" …" if len(others) > NAMED else "")
            desk.log.say(f"{name}: {len(others):,} files that are no .txt or .jsonl are left out ({shown})")
        return [Path(name)]
    return list(find_all(name, download=desk.download))


def _tokenizer(data: PlainText, parts: list[Corpus], desk: Desk, earlier: Loaded | None) -> Tokenizer:
    if earlier is not None:
        return earlier.source_tokenizer
    path = desk.out / "data" / "joint.tokenizer.json"
    if desk.resumed and path.is_file():
        return Tokenizer.load(path)
    desk.log.say("learning the vocabulary")
    files = tuple(file for part in parts if isinstance(part, Documents) for file in part.files)
    everything = parts[0] if len(parts) == 1 else Documents(files)
    tokenizer = train_document_tokenizer(everything, data.text)
    path.parent.mkdir(exist_ok=True)
    tokenizer.save(path)
    return tokenizer


def _encode(part: Corpus, tokenizer: Tokenizer, name: str, desk: Desk) -> TokenStore:
    with desk.log.bar(f"encoding {name}", None, " characters") as show:
        store = prepare_documents(part, tokenizer, cache_folder() / "stores", progress=show)
    before = " (encoded before)" if store.reused else ""
    unknown = f", {store.amount.unknown:,} unknown" if store.amount.unknown else ""
    desk.log.say(f"{name}: {store.amount.characters:,} characters, {store.tokens:,} tokens{unknown}{before}")
    desk.log.event("data", part=name, characters=store.amount.characters, tokens=store.tokens)
    return store


class LanguageJob(Job):
    """Judged by the loss on held-out text, in windows side by side."""

    figure, digits = "loss", 4

    def __init__(
        self, run: Run, desk: Desk, model: Any, card: Card, tokenizer: Tokenizer, stores: list[TokenStore],
        valid: TokenStore,
    ) -> None:  # fmt: skip
        super().__init__(run, desk, model, card, (tokenizer, tokenizer))
        data, self.length = run.documents, run.model.max_length
        rows = max(1, run.engine.batch // self.length)
        self.valid, self.rows = valid, rows
        self.batches = WindowBatches(
            stores, rows, self.length, run.engine.seed, data.order, data.weights or None, data.apart
        )  # fmt: skip
        counts = sum((store.counts() for store in stores[1:]), stores[0].counts())
        names = {"train": " ".join(store.folder.name for store in stores), "valid": valid.folder.name}
        self.begin(names, entropy(counts))

    def batch(self, step: int) -> WindowBatch:
        return self.batches.batch(step)

    def valid_batches(self) -> Iterable[WindowBatch]:
        return evaluation_windows(self.valid, self.length, rows=self.rows, segments=self.run.documents.apart)

    def score(self) -> float:
        return -self.valid_losses()["loss"]

    def said(self, score: float) -> float:
        return -score

    def shown(self, example: int) -> str:
        corpus, place = self.batches.where(example)
        ids = self.batches.corpora[corpus].windows([place], min(32, self.length))[0]
        return self.tokenizers[0].decode(ids.tolist())

    def test_scores(self) -> dict[str, Any]:
        """The same text once more as others count: by word, by character."""
        found = score_store(self.plain_model, self.valid, self.length)
        return {
            "validation perplexity": round(found.perplexity, 4),
            "bits per character": round(found.bits_per_character, 4),
            "perplexity per word": round(found.word_perplexity, 2),
        }

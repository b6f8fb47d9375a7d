"""Language modelling: documents, windows or streams of them, judged by the loss on held-out text."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import nn

from headway.batch import TokenBatch
from headway.card import Loaded
from headway.data.catalog import cache_folder
from headway.data.documents import Corpus, Documents, left_out
from headway.data.split import hold_out
from headway.data.streams import StreamBatch, StreamBatches
from headway.data.token_store import TokenStore, prepare_documents, train_document_tokenizer
from headway.data.windows import WindowBatches, evaluation_windows
from headway.errors import InputError, refuse
from headway.evaluate.perplexity import Perplexity, score_store
from headway.generate.generator import Generator
from headway.tasks.files import DividedFiles, found, listed, vocabularies
from headway.tasks.objective import Carried, Counting, CrossEntropy, NextToken
from headway.tasks.start import RunContext, earlier_model
from headway.tasks.task import Prediction, Report, Task, entropy, random_ids, refuse_unknown, with_perplexity
from headway.text.tokenizer import END, TextOptions

EXAMPLE = 16  # tokens of a continuation that a validation shows
OPTIONS = {"max_new_tokens": "max_new", "seed": "seed"}  # of an answer, and the generator's names for them


@dataclass(frozen=True)
class TextFiles(DividedFiles):
    """Files, folders, .jsonl, or names of a data set that headway knows.

    Without `valid`, the share `hold_out` is: of one text its end, of many documents some, chosen by a hash; and so is
    the share `hold_out_test` for a test at the very end.
    """

    name: ClassVar[str] = "files"
    wanted: ClassVar[str] = "FILE (text, a folder of it, or .jsonl)"
    hold_out_test: float = 0.0
    text: TextOptions = field(default_factory=lambda: TextOptions(exact=True), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_test_share(self.hold_out_test)


@dataclass(frozen=True)
class PlainText(TextFiles):
    """Text whose next token is predicted.

    order: `random` starts every window anywhere; `epoch` gives each part of the text once before any comes again;
    `stream` continues each row of a batch where it ended in the last, for models that carry their state; the cuts are
    moved by up to the share `jitter` of a window.
    apart: attention stays inside a document. weights: of each name in `train`, the share of the windows (none: by
    their sizes).
    """

    name: ClassVar[str] = "plain-text"
    order: Literal["random", "epoch", "stream"] = "epoch"
    jitter: float = 0.0
    apart: bool = False
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order == "stream" and self.weights:
            raise InputError("data.weights mix windows: data.order=stream reads one corpus from front to back")
        refuse(self.order != "stream" and self.jitter, "data.jitter moves the cuts of a stream: set data.order=stream")
        if self.weights and len(self.weights) != len(self.train):
            raise InputError(f"data.weights has {len(self.weights)} shares for {len(self.train)} corpora")


@dataclass
class TextCorpus:
    """A run's text, ready. `train` has a store for each corpus of a mixture."""

    tokenizer: Any
    train: list[TokenStore]
    valid: TokenStore
    test: TokenStore | None

    def names(self) -> dict[str, str]:
        """The stores of the run, named by a hash of their content."""
        return {"train": " ".join(store.folder.name for store in self.train), "valid": self.valid.folder.name}


def open_text(data: TextFiles, context: RunContext, earlier: Loaded | None = None) -> TextCorpus:
    """Find the documents, hold some out, learn the vocabulary (or use that of `earlier`), encode everything."""
    with context.ranks.in_turn():
        train_parts, held = _parts(data, context)
        if earlier is not None:
            tokenizer = earlier.source_tokenizer
        else:
            everything = train_parts[0]
            if len(train_parts) > 1:
                files = tuple(file for part in train_parts for file in part.files)  # type: ignore[attr-defined]
                everything = Documents(files, lines=data.text.lines)
            [tokenizer] = vocabularies(context, lambda: [train_document_tokenizer(everything, data.text)])
        stores = [_encode(part, tokenizer, "train", context) for part in train_parts]
        encoded = {name: _encode(part, tokenizer, name, context) for name, part in held.items()}
    return TextCorpus(tokenizer, stores, encoded["valid"], encoded.get("test"))


def _parts(data: TextFiles, context: RunContext) -> tuple[list[Corpus], dict[str, Corpus]]:
    """The corpora to learn from, one for each name, and the texts that are held out of all of them."""
    lines, names = data.text.lines, data.parts()
    corpora = [Documents.at(found_text([name], context), lines=lines) for name in names.pop("train")]
    held: dict[str, Corpus] = {
        part: Documents.at(found_text(some, context), lines=lines) for part, some in names.items()
    }
    if "valid" in held:
        return list(corpora), held
    refuse(
        len(corpora) > 1,
        "several files are several corpora, which are mixed: name the text they are judged on with --valid, or put "
        "them into one file or folder",
    )
    parts: dict[str, Corpus] = {**hold_out(corpora[0], data.hold_out, 0.0 if held else data.hold_out_test)}
    return [parts.pop("train")], parts | held


def found_text(names: Sequence[str], context: RunContext) -> list[Path]:
    """The files and folders of these names; says which files of a folder are left out."""
    for name in names:
        if others := left_out([name]):
            shown = listed([file.name for file in others], len(others))
            context.log.say(f"{name}: {len(others):,} files that are no .txt or .jsonl are left out ({shown})")
    return found(names, context, folders=True)


def _encode(part: Corpus, tokenizer: Any, name: str, context: RunContext) -> TokenStore:
    with context.log.bar(f"encoding {name}", None, " characters") as show:
        store = prepare_documents(part, tokenizer, cache_folder() / "stores", progress=show)
    before = " (encoded before)" if store.reused else ""
    unknown = f", {store.amount.unknown:,} unknown" if store.amount.unknown else ""
    context.log.say(f"{name}: {store.amount.characters:,} characters, {store.tokens:,} tokens{unknown}{before}")
    context.log.event("data", part=name, characters=store.amount.characters, tokens=store.tokens)
    return store


class Language(Task):
    """Judged by the loss on held-out text, in windows side by side, or read through by a model that carries its
    state."""

    name = "language"
    data = PlainText
    objectives = (NextToken, Carried, CrossEntropy, Counting)
    roles = ("steps", "scores")
    headline = ("perplexity", False)
    verb = "generate"
    verbs = ("score",)
    opens = Generator.of
    shown_losses = with_perplexity

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        if run.objective.one_pass:
            refuse(run.init, "a model that is counted starts from nothing: leave --init out")
            refuse(run.data.weights, "a model that is counted takes every text once: leave data.weights out")
            refuse(context.ranks.count > 1, "counting takes one process: start it without torchrun")
        if run.data.order == "stream" and context.ranks.count > 1:
            raise InputError(
                f"a carried state stays with its rows: {context.ranks.count} processes cannot share them. Start one, "
                "or set data.order=epoch objective=next-token"
            )
        earlier = earlier_model(run)
        self.corpus = corpus = open_text(run.data, context, earlier)
        self.data_names = corpus.names()
        self.begin([corpus.tokenizer], earlier)
        if not run.objective.one_pass:
            self._check_order()
            self.length = run.max_length
            self.rows = max(1, run.engine.batch // self.length)
            self.batches = self._batches()

    def _check_order(self) -> None:
        data, family = self.run.data, self.run.model.name
        if data.apart and self.model.context is None:
            raise InputError(
                f"data.apart keeps attention inside a document, for models that see a window of the text: the family "
                f"'{family}' reads all of it from front to back as it is set here"
            )
        if data.order == "stream" and not self.model.carries:
            raise InputError(
                f"data.order=stream is for models that pass a state from batch to batch, as recurrent ones do: set "
                f"data.order=epoch objective=next-token for the family '{family}'"
            )

    def _batches(self) -> WindowBatches | StreamBatches:
        data, corpora, seed = self.run.data, self.corpus.train, self.run.engine.seed
        if data.order == "stream":
            return StreamBatches(corpora, self.rows, self.length, seed, data.jitter)
        return WindowBatches(corpora, self.rows, self.length, seed, data.order, data.weights or None, data.apart)

    def valid_batches(self) -> Iterable[TokenBatch]:
        return evaluation_windows(self.corpus.valid, self.length, rows=self.rows, segments=self.run.data.apart)

    def valid_losses(self, objective: nn.Module) -> dict[str, float]:
        if self.model.context is not None:
            return super().valid_losses(objective)
        found = score_store(self.model, self.corpus.valid, None, streams=self.rows, share=self.share)
        return {"loss": found.per_token, "nll": found.per_token}

    def final_figures(self) -> dict[str, Any]:
        """Perplexity by token and by word, bits per character, on the validation data and on the test data."""
        window = None if self.model.context is None else self.length
        scores = in_words("validation", score_store(self.model, self.corpus.valid, window, share=self.share))
        if self.corpus.test is not None:
            scores |= in_words("test", score_store(self.model, self.corpus.test, window, share=self.share))
        return scores

    def learn_at_once(self) -> dict[str, Any]:
        """Count the n-grams of the whole text."""
        from headway.models import FAMILIES

        stores = [store.windows([0], store.tokens)[0] for store in self.corpus.train]
        ids_T = np.concatenate([[END], *stores])
        started = time.perf_counter()
        config = self.run.model
        self.model = FAMILIES[config.name].model.count(config, len(self.corpus.tokenizer), ids_T)
        seconds = time.perf_counter() - started
        self.card.config = self.model.config
        sizes = {f"{order}-grams": size for order, size in enumerate(self.model.config.sizes, 2)}
        self.log.say(f"counted {len(ids_T) - 1:,} tokens in {seconds:.2f} s, smoothed by {config.smoothing.name}")
        for name, size in sizes.items():
            self.log.say(f"{size:,} {name}")
        self.log.event("counted", tokens=len(ids_T) - 1, **sizes)
        scores = self.final_figures()
        if note := config.smoothing.note:
            scores["note"] = note
        return scores | {"tokens counted": len(ids_T) - 1, "counting seconds": round(seconds, 2)}

    def example(self) -> str:
        """A continuation of the beginning of the validation text, drawn with a seed of its own."""
        tokenizer = self.corpus.tokenizer
        first = min(EXAMPLE // 2, self.corpus.valid.tokens)
        prompt = str(tokenizer.decode(self.corpus.valid.windows([0], first)[0].tolist()))
        [text] = self.generator.generate([prompt], max_new=EXAMPLE, temperature=0.8, seed=1)
        return f"{prompt} → {text.strip() or '(nothing yet)'}"

    @cached_property
    def generator(self) -> Generator:
        loaded = Loaded(self.model, self.card, self.processors)
        return Generator.of(loaded, self.context.device, self.context.dtype)

    def shown(self, example: int) -> str:
        corpus, place = self.batches.where(example)
        ids = self.batches.corpora[corpus].windows([place], min(32, self.length))[0]
        return str(self.corpus.tokenizer.decode(ids.tolist()))

    def guess(self) -> float:
        return entropy(sum((store.counts() for store in self.corpus.train[1:]), self.corpus.train[0].counts()))

    @classmethod
    def check(cls, run: Any) -> None:
        if (run.data.order == "stream") != run.objective.carries:
            raise InputError(
                "a state is carried along contiguous streams: data.order=stream and objective=carried go together"
            )

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> TokenBatch:
        ids = random_ids(run, size, device, run.max_length)
        return StreamBatch(ids, ids, fresh=torch.tensor(True, device=device))

    @classmethod
    def tokens_a_step(cls, run: Any) -> int:
        length = max(1, run.max_length)
        return max(1, run.engine.batch // length) * length

    @classmethod
    def level(cls, data: Any, like: Any) -> Any:
        data = super().level(data, like)
        return data if data.test or data.hold_out_test else replace(data, hold_out_test=data.hold_out)

    @classmethod
    def answer(cls, model: Generator, values: Sequence[str], options: dict[str, Any]) -> Iterator[Prediction]:
        """A continuation of each text."""
        refuse_unknown(options, OPTIONS, "a language model")
        settings = {OPTIONS[name]: value for name, value in options.items()}
        for prompt, text in zip(values, model.generate(values, **settings), strict=True):
            yield Prediction(" ".join((prompt + text).split()), {"text": prompt, "continuation": text})

    @classmethod
    def evaluate(cls, model: Generator, files: Sequence[str], options: dict[str, Any]) -> Report:
        """Perplexity of these documents. `stride`: by how many tokens the window moves."""
        refuse_unknown(options, ("stride",), "a language model")
        documents = Documents.at(list(files), lines=model.card.text.lines)
        store = prepare_documents(documents, model.tokenizer, cache_folder() / "stores")
        network: Any = model.model
        found = score_store(network, store, network.context, options.get("stride"))
        how = f"windows of {found.window} moved by {found.stride}" if found.window else "read from front to back"
        unknown = f"; {found.unknown:,} tokens are unknown to the model, so not all of the text is predicted"
        lines = [
            f"loss per token         {found.per_token:.4f}",
            f"perplexity per token   {found.perplexity:.4f}",
            f"perplexity per word    {found.word_perplexity:,.2f}",
            f"bits per character     {found.bits_per_character:.4f}",
            f"{found.tokens:,} tokens, {how}" + (unknown if found.unknown else ""),
        ]
        return Report(found.values(), lines)


def in_words(part: str, found: Perplexity) -> dict[str, Any]:
    """Figures of a card: by token, by character and, where there are words, by word."""
    if not math.isfinite(found.nll):
        return {f"{part} perplexity": "infinite: some words were never counted after their history"}
    figures = {"perplexity": round(found.perplexity, 4), "bits per character": round(found.bits_per_character, 4)}
    if found.words:
        figures["perplexity per word"] = round(found.word_perplexity, 2)
    return {f"{part} {name}": figure for name, figure in figures.items()}

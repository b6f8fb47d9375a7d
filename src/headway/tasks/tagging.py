"""Tagging: a label of each word of a text, by an encoder with a head for words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch

from headway.batch import IGNORED, TextInputs
from headway.card import Loaded
from headway.data.batches import BucketedBatches
from headway.data.catalog import find
from headway.data.tagged import (
    OUTSIDE,
    WORD,
    Sentence,
    TaggedBatch,
    TaggedStore,
    align,
    hold_out_tagged,
    labels_of,
    read_tagged,
)
from headway.errors import InputError
from headway.evaluate.entities import EntityScores, TagJudge
from headway.generate.encoder import Encoder, Tagged
from headway.tasks.encoding import Encoding, answered
from headway.tasks.files import is_own, vocabulary
from headway.tasks.objective import Config, HeadObjective
from headway.tasks.start import earlier_model, first_model
from headway.tasks.task import Figure, Prediction, Report, RunContext, entropy, refuse
from headway.text.framing import frame
from headway.text.tokenizer import TextOptions

LENGTH = 24  # of the texts that an estimate is made with


@dataclass(frozen=True)
class TaggedText:
    """Sentences with a label for each word: files (CoNLL's columns, or .jsonl), or names of a data set below
    HEADWAY_DATA.

    Without `valid`, the share `hold_out` of the training sentences is. text: for a vocabulary of its own, where the run
    starts from nothing; capitals mark names, so case is kept.
    """

    name: ClassVar[str] = "tagged-text"
    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    hold_out: float = 0.1
    text: TextOptions = field(default_factory=TextOptions)

    def __post_init__(self) -> None:
        if not 0 < self.hold_out < 1:
            raise InputError(f"data.hold_out must lie between 0 and 1, not {self.hold_out}")


@dataclass(frozen=True)
class WordLabels(Config):
    """The loss of a head for words, per word. `judge`: the figure by which the best weights are chosen: F1 of whole
    entities, or the share of words with their own label."""

    name: ClassVar[str] = "word-labels"
    smoothing: float = 0.0
    judge: TagJudge = "f1"

    def build(self, model: torch.nn.Module) -> HeadObjective:
        return HeadObjective(model, self.smoothing)


class Tagger(Encoder):
    """Of a model that was trained on given words: a text's words are what white space separates."""

    def tag(self, texts: Sequence[str], *, truncate: bool = False) -> list[list[Tagged]]:
        framed = self._framed(texts, truncate, spans=True)
        words = [[found.span() for found in WORD.finditer(text)] for text in texts]
        return self.tagged(texts, [align(one, spans) for one, spans in zip(framed, words, strict=True)])


class Tagging(Encoding):
    """Evaluated by the entities that it finds in held-out sentences."""

    name = "tagging"
    data = TaggedText
    objectives = (WordLabels,)
    headline = ("f1", True)
    verb = "predict"

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        earlier = earlier_model(run)
        with context.ranks.in_turn():
            self._open(earlier)
        head = replace(run.head, labels=self.labels)
        sizes = earlier.card.sizes if earlier else (len(self.tokenizer),)
        self.model = first_model(run, context, sizes, [self.tokenizer], head, earlier)
        self.describe(sizes, [self.tokenizer], earlier, head=head)
        batch, captured = run.engine.batch, context.device.type == "cuda"
        self.batches = self.stores["train"].batches(batch, run.engine.seed, full=captured)
        self.valid = self.stores["valid"].batches(4 * batch, 0, shuffle=False)

    def _open(self, earlier: Loaded | None) -> None:
        """Read, hold some out where that is needed, learn a vocabulary where there is none, encode."""
        data, longest = self.run.data, self.run.max_length
        parts = self._parts()
        self.labels = labels_of([sentence for part in parts.values() for sentence in part])
        if len(self.labels) < 2:
            raise InputError(f"every word has the label '{self.labels[0]}': at least two labels are needed")
        if self.run.objective.judge == "f1" and not any(label.startswith("B-") for label in self.labels):
            raise InputError(f"no label begins with B- or I- ({', '.join(self.labels[:5])} …), so there are no "
                             "entities: set objective.judge=accuracy")  # fmt: skip
        self.tokenizer: Any = (
            earlier.source_tokenizer
            if earlier
            else vocabulary(self.context, lambda: (sentence.text for sentence in parts["train"]), data.text)
        )
        number_of = {label: number for number, label in enumerate(self.labels)}
        self.stores: dict[str, TaggedStore] = {}
        self.names: dict[str, str] = {}
        for part, sentences in parts.items():
            texts = [sentence.text for sentence in sentences]
            framed = frame(self.tokenizer, texts, longest, truncate=True, spans=True)
            store = TaggedStore(sentences, framed, number_of, self.tokenizer.pad or 0)
            cut = int((store.lengths == longest).sum())
            at_limit = f", {cut:,} of them at the most tokens that the model takes, or cut there" if cut else ""
            words = sum(len(sentence.words) for sentence in sentences)
            self.log.say(
                f"{part}: {len(texts):,} texts, {words:,} words, {int(store.lengths.sum()):,} tokens{at_limit}"
            )
            self.log.event("data", part=part, texts=len(texts), labels=len(self.labels))
            content = json.dumps([sentences, self.tokenizer.fingerprint]).encode()
            self.stores[part], self.names[part] = store, hashlib.blake2b(content, digest_size=16).hexdigest()

    def _parts(self) -> dict[str, list[Sentence]]:
        data, download = self.run.data, self.context.download
        if not data.train:
            raise InputError("no training data: pass --data FILE (CoNLL's columns, or .jsonl with words and labels)")
        named = {"train": data.train, "valid": data.valid, "test": data.test}
        parts = {
            part: read_tagged([name if is_own(name) else find(name, download=download) for name in names])
            for part, names in named.items()
            if names
        }
        if "valid" not in parts:
            parts["train"], parts["valid"] = hold_out_tagged(parts["train"], data.hold_out)
        return parts

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        name = self.run.objective.judge
        return name, Figure(self._scores("valid", self.valid).by(name), True, 4)

    def final_figures(self) -> dict[str, Any]:
        if "test" not in self.stores:
            return {}
        found = self._scores("test", self.stores["test"].batches(4 * self.run.engine.batch, 0, shuffle=False))
        return {f"test {name}": round(value, 4) for name, value in found.figures().items()}

    @torch.no_grad()
    def _scores(self, part: str, batches: BucketedBatches[TaggedBatch]) -> EntityScores:
        self.model.eval()
        store, found = self.stores[part], dict[int, list[str]]()
        for whole in batches.epoch():
            batch = whole.map(lambda tensor: tensor.to(self.context.device))
            label_BT, _ = self.model.head.tags(self.model.encode(batch.inputs), batch.labels_BT != IGNORED)
            for example, labels in zip(batch.examples, label_BT.tolist(), strict=False):  # empty rows are no example
                found[example] = store.named(example, labels, self.labels)
        return EntityScores.of(
            [sentence.labels for sentence in store.sentences], [found[number] for number in range(len(found))]
        )

    def shown(self, example: int) -> str:
        return self.stores["train"].sentences[example].text

    def data_names(self) -> dict[str, str]:
        return self.names

    def guess(self) -> float:
        labels = np.array([label for row in self.stores["train"].labels for label in row])
        return entropy(np.bincount(labels[labels != IGNORED]))

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> TaggedBatch:
        rows = max(1, run.engine.batch // LENGTH)
        ids = torch.randint(4, size, (rows, LENGTH), device=device)
        return TaggedBatch(TextInputs(ids).with_lengths(), torch.ones_like(ids))

    @classmethod
    def open(cls, loaded: Loaded, device: torch.device, dtype: torch.dtype) -> Encoder:
        """A model that headway trained gets its words as its data gave them, another as its tokenizer divides them."""
        return (Tagger if loaded.card.run else Encoder)(loaded, device, dtype)

    @classmethod
    def answer(cls, model: Encoder, values: Sequence[str], options: dict[str, Any]) -> Iterator[Prediction]:
        refuse(options, ("truncate",), "a model that labels words")
        found = answered(values, lambda texts: model.tag(texts, truncate="truncate" in options))
        for text, words in zip(values, found, strict=True):
            labels = [
                {"text": word.text, "start": word.start, "end": word.end, "label": word.label,
                 "probability": round(word.probability, 6)}
                for word in words
            ]  # fmt: skip
            yield Prediction(" ".join(f"{word.text}/{word.label}" for word in words), {"text": text, "labels": labels})

    @classmethod
    def evaluate(cls, model: Encoder, files: Sequence[str], options: dict[str, Any]) -> Report:
        """F1, precision and recall of the entities that an encoder finds in these sentences, cut where they are longer
        than it takes, as they were in training."""
        refuse(options, (), "a model that labels words")
        sentences = read_tagged(list(files))
        texts = [sentence.text for sentence in sentences]
        framed = frame(model.tokenizer, texts, model.limit, truncate=True, spans=True)
        aligned = [align(one, sentence.spans) for one, sentence in zip(framed, sentences, strict=True)]
        given = []
        for sentence, words in zip(sentences, model.tagged(texts, aligned), strict=True):
            label_at = {word.start: word.label for word in words}
            given.append([label_at.get(start, OUTSIDE) for start, _ in sentence.spans])
        found = EntityScores.of([sentence.labels for sentence in sentences], given)
        rows = [f"{name:<22}  {value:.4f}" for name, value in found.figures().items()]
        return Report(found.to_dict(), [*rows, f"{len(sentences):,} sentences, {found.true:,} entities"])

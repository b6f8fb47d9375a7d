"""Tagging: a label of each word of a text, by an encoder with a head for words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from headway.batch import IGNORED, TextInputs
from headway.card import Loaded
from headway.data import tagged
from headway.data.tagged import Sentence, TaggedBatch, TaggedStore, align, read_tagged
from headway.errors import InputError, refuse
from headway.evaluate.entities import EntityScores, TagJudge
from headway.generate.encoder import Encoder, Tagged
from headway.generate.one_or_many import is_text, one_or_many
from headway.tasks.encoding import answered
from headway.tasks.files import DividedFiles
from headway.tasks.labelling import TextLabelling
from headway.tasks.objective import Labels
from headway.tasks.task import Prediction, Report, entropy, random_ids, refuse_unknown
from headway.text.framing import Framed, frame
from headway.text.tokenizer import TextOptions


@dataclass(frozen=True)
class TaggedText(DividedFiles):
    """Sentences with a label for each word: files (CoNLL's columns, or .jsonl), or names of a data set below
    HEADWAY_DATA.

    Without `valid`, the share `hold_out` of the training sentences is. text: for a vocabulary of its own, where the run
    starts from nothing; capitals mark names, so case is kept.
    """

    name: ClassVar[str] = "tagged-text"
    wanted: ClassVar[str] = "FILE (CoNLL's columns, or .jsonl with words and labels)"
    text: TextOptions = field(default_factory=TextOptions)


@dataclass(frozen=True)
class WordLabels(Labels):
    """The loss of a head for words, per word. `judge`: the figure by which the best weights are chosen: F1 of whole
    entities, or the share of words with their own label."""

    name: ClassVar[str] = "word-labels"
    judge: TagJudge = "f1"


class Tagger(Encoder):
    """Of a model that was trained on given words: a text's words are what white space separates."""

    @one_or_many(is_text)
    def tag(self, texts: Sequence[str], *, truncate: bool = False) -> list[list[Tagged]]:
        framed = self._framed(texts, truncate, spans=True)
        words = [[found.span() for found in tagged.WORD.finditer(text)] for text in texts]
        return self.tagged(texts, [align(one, spans) for one, spans in zip(framed, words, strict=True)])


class Tagging(TextLabelling):
    """Evaluated by the entities that it finds in held-out sentences."""

    unit = "words"
    name = "tagging"
    data = TaggedText
    objectives = (WordLabels,)
    headline = ("f1", True)
    spans = True

    def open_parts(self) -> dict[str, list[Sentence]]:
        parts = self.divided(read_tagged, tagged.hold_out_tagged)
        self.labels = tagged.labels_of([sentence for part in parts.values() for sentence in part])
        refuse(len(self.labels) < 2, f"every word has the label '{self.labels[0]}': at least two labels are needed")
        if self.run.objective.judge == "f1" and not any(label.startswith("B-") for label in self.labels):
            raise InputError(f"no label begins with B- or I- ({', '.join(self.labels[:5])} …), so there are no "
                             "entities: set objective.judge=accuracy")  # fmt: skip
        return parts

    def store(self, part: str, texts: Sequence[Sentence], framed: Sequence[Framed]) -> TaggedStore:
        number_of = {label: number for number, label in enumerate(self.labels)}
        return TaggedStore(texts, framed, number_of, self.tokenizer.pad or 0)

    def amount(self, texts: Sequence[Sentence]) -> str:
        return f"{super().amount(texts)}, {sum(len(sentence.words) for sentence in texts):,} words"

    @torch.no_grad()
    def scores(self, part: str) -> EntityScores:
        self.model.eval()
        store, found = self.stores[part], dict[int, list[str]]()
        for whole in self.held[part].epoch():
            batch = whole.map(lambda tensor: tensor.to(self.context.device))
            label_BT, _ = self.model.head.tags(self.model.encode(batch.inputs), batch.labels_BT != IGNORED)
            for example, labels in zip(batch.examples, label_BT.tolist(), strict=False):  # empty rows are no example
                found[example] = store.named(example, labels, self.labels)
        true = [sentence.labels for sentence in store.sentences]
        return EntityScores.of(true, [found[number] for number in range(len(found))])

    def shown(self, example: int) -> str:
        return self.stores["train"].sentences[example].text

    def guess(self) -> float:
        labels = np.array([label for row in self.stores["train"].labels for label in row])
        return entropy(np.bincount(labels[labels != IGNORED]))

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> TaggedBatch:
        ids = random_ids(run, size, device)
        return TaggedBatch(TextInputs(ids).with_lengths(), torch.ones_like(ids))

    @staticmethod
    def opens(loaded: Loaded, device: torch.device, dtype: torch.dtype) -> Encoder:
        """A model that headway trained gets its words as its data gave them, another as its tokenizer divides them."""
        return (Tagger if loaded.card.run else Encoder)(loaded, device, dtype)

    @classmethod
    def answer(cls, model: Encoder, values: Sequence[str], options: dict[str, Any]) -> Iterator[Prediction]:
        refuse_unknown(options, ("truncate",), "a model that labels words")
        found = answered(values, lambda texts: model.tag(texts, truncate="truncate" in options))
        for text, words in zip(values, found, strict=True):
            labels = [asdict(word) | {"probability": round(word.probability, 6)} for word in words]
            yield Prediction(" ".join(f"{word.text}/{word.label}" for word in words), {"text": text, "labels": labels})

    @classmethod
    def evaluate(cls, model: Encoder, files: Sequence[str], options: dict[str, Any]) -> Report:
        """F1, precision and recall of the entities that an encoder finds in these sentences, cut where they are longer
        than it takes, as they were in training."""
        refuse_unknown(options, (), "a model that labels words")
        sentences = read_tagged(list(files))
        texts = [sentence.text for sentence in sentences]
        framed = frame(model.tokenizer, texts, model.limit, truncate=True, spans=True)
        aligned = [align(one, sentence.spans) for one, sentence in zip(framed, sentences, strict=True)]
        given = []
        for sentence, words in zip(sentences, model.tagged(texts, aligned), strict=True):
            label_at = {word.start: word.label for word in words}
            given.append([label_at.get(start, tagged.OUTSIDE) for start, _ in sentence.spans])
        found = EntityScores.of([sentence.labels for sentence in sentences], given)
        rows = [f"{name:<22}  {value:.4f}" for name, value in found.figures().items()]
        return Report(found.to_dict(), [*rows, f"{len(sentences):,} sentences, {found.true:,} entities"])

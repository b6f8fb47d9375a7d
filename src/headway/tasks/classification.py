"""Classification: a label of each text, or pair of texts, by an encoder with a head for labels."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch

from headway.batch import TextInputs
from headway.card import Loaded
from headway.data.batches import BucketedBatches
from headway.data.catalog import find
from headway.data.labelled import (
    LabelBatch,
    Labelled,
    LabelStore,
    hold_out_labelled,
    in_archive,
    labels_in,
    read_labelled,
)
from headway.errors import InputError, nearest
from headway.evaluate.labels import LabelScores, score_labels
from headway.generate.encoder import Encoder
from headway.tasks.encoding import Encoding, answered, pair_of
from headway.tasks.files import is_own, vocabulary
from headway.tasks.objective import Labels
from headway.tasks.start import earlier_model, first_model
from headway.tasks.task import Figure, Prediction, Report, RunContext, entropy, refuse
from headway.text.framing import frame
from headway.text.tokenizer import TextOptions

LENGTH = 24  # of the texts that an estimate is made with


@dataclass(frozen=True)
class LabelledText:
    """Texts, or pairs of them, with a label each: files (.jsonl, .tsv, or label and text with a space between them), or
    names of a data set that headway knows.

    Without `valid`, the share `hold_out` of the training texts is. names: what the labels of the data, in their order,
    are called (none: as they are written there). text: for a vocabulary of its own, where the run starts from nothing.
    """

    name: ClassVar[str] = "labelled-text"
    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    hold_out: float = 0.1
    names: tuple[str, ...] = ()
    text: TextOptions = field(default_factory=lambda: TextOptions(lowercase=True))

    def __post_init__(self) -> None:
        if not 0 < self.hold_out < 1:
            raise InputError(f"data.hold_out must lie between 0 and 1, not {self.hold_out}")


class Classification(Encoding):
    """Judged by the labels that it gives to held-out texts."""

    name = "classification"
    data = LabelledText
    objectives = (Labels,)
    headline = ("accuracy", True)
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
        labels = labels_in(parts["train"])
        if len(labels) < 2:
            raise InputError(f"every training text has the label '{labels[0]}': at least two labels are needed")
        if data.names and len(data.names) != len(labels):
            raise InputError(f"data.names has {len(data.names)} names for {len(labels)} labels ({', '.join(labels)})")
        self.texts, self.labels = parts["train"], data.names or labels
        self.tokenizer: Any = earlier.source_tokenizer if earlier else vocabulary(self.context, self._sides, data.text)
        number_of = {label: number for number, label in enumerate(labels)}
        self.stores: dict[str, LabelStore] = {}
        self.names: dict[str, str] = {}
        for part, texts in parts.items():
            if strange := sorted({text.label for text in texts} - number_of.keys()):
                raise InputError(f"{part}: no training text has the label '{strange[0]}'{nearest(strange[0], labels)}")
            framed = frame(self.tokenizer, [text.text for text in texts], longest, truncate=True)
            store = LabelStore(framed, [number_of[text.label] for text in texts], self.tokenizer.pad or 0)
            cut = int((store.lengths == longest).sum())
            at_limit = f", {cut:,} of them at the most tokens that the model takes, or cut there" if cut else ""
            self.log.say(f"{part}: {len(texts):,} texts, {int(store.lengths.sum()):,} tokens{at_limit}")
            self.log.event("data", part=part, texts=len(texts), labels=len(labels))
            content = json.dumps([texts, self.tokenizer.fingerprint]).encode()
            self.stores[part], self.names[part] = store, hashlib.blake2b(content, digest_size=16).hexdigest()

    def _parts(self) -> dict[str, list[Labelled]]:
        data = self.run.data
        if not data.train:
            raise InputError("no training data: pass --data FILE (.jsonl, .tsv, or a label and a text a line)")
        named = {"train": data.train, "valid": data.valid, "test": data.test}
        parts = {part: read_labelled([self._found(name) for name in names]) for part, names in named.items() if names}
        for part, texts in parts.items():
            if not texts:
                raise InputError(f"{', '.join(named[part])}: there is no text in it")
        if "valid" not in parts:
            parts["train"], parts["valid"] = hold_out_labelled(parts["train"], data.hold_out)
        return parts

    def _found(self, name: str) -> str:
        """A path as it is, a known name below the data folder; a member of an archive stays behind it."""
        file, member = in_archive(name)
        place = file if is_own(file) else str(find(file, download=self.context.download))
        return f"{place}/{member}" if member else place

    def _sides(self) -> Iterable[str]:
        return (side for text in self.texts for side in ((text.text,) if isinstance(text.text, str) else text.text))

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        name = self.run.objective.judge
        return name, Figure(self._scores(self.valid).by(name), True, 4)

    def final_figures(self) -> dict[str, Any]:
        if "test" not in self.stores:
            return {}
        found = self._scores(self.stores["test"].batches(4 * self.run.engine.batch, 0, shuffle=False))
        return {f"test {name}": round(value, 4) for name, value in found.to_dict().items() if name != "texts"}

    @torch.no_grad()
    def _scores(self, batches: BucketedBatches[LabelBatch]) -> LabelScores:
        self.model.eval()
        true: list[int] = []
        given: list[int] = []
        for batch in batches.epoch():
            logits_BL = self.model(batch.inputs.map(lambda tensor: tensor.to(self.context.device)))
            true += batch.labels_B.tolist()
            given += logits_BL.argmax(-1).tolist()
        return LabelScores.of(true, given, len(self.labels))

    def shown(self, example: int) -> str:
        text = self.texts[example].text
        return text if isinstance(text, str) else " | ".join(text)

    def data_names(self) -> dict[str, str]:
        return self.names

    def guess(self) -> float:
        return entropy(np.bincount(self.stores["train"].labels))

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> LabelBatch:
        rows = max(1, run.engine.batch // LENGTH)
        ids = torch.randint(4, size, (rows, LENGTH), device=device)
        return LabelBatch(TextInputs(ids).with_lengths(), torch.ones_like(ids[:, 0]))

    @classmethod
    def answer(cls, model: Encoder, values: Sequence[Any], options: dict[str, Any]) -> Iterator[Prediction]:
        refuse(options, ("pairs", "all", "truncate"), "a model that labels texts")
        given = [pair_of(value, number) for number, value in enumerate(values, 1)] if "pairs" in options else values
        found = answered(given, lambda texts: model.classify(texts, truncate="truncate" in options))
        for value, guesses in zip(values, found, strict=True):
            shown = guesses if "all" in options else guesses[:1]
            line = "\t".join(f"{guess.text}\t{guess.probability:.4f}" for guess in shown)
            labels = [[guess.text, round(guess.probability, 6)] for guess in guesses]
            yield Prediction(line, {"text": value, "labels": labels})

    @classmethod
    def evaluate(cls, model: Encoder, files: Sequence[str], options: dict[str, Any]) -> Report:
        """Accuracy, F1 and correlation of the labels that an encoder gives these texts."""
        refuse(options, (), "a model that labels texts")
        found = score_labels(model, read_labelled(list(files))).to_dict()
        names = {"accuracy": "accuracy", "f1": "macro-F1", "matthews": "Matthews' correlation"}
        rows = [f"{shown:<22}  {found[name]:.4f}" for name, shown in names.items()]
        return Report(found, [*rows, f"{found['texts']:,} texts"])

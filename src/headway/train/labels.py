"""Training an encoder to label texts: from nothing, or from a model that has read much before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

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
from headway.evaluate.labels import LabelScores
from headway.folder import Card, Loaded
from headway.models.bert import Bert, BertConfig, TextLabels
from headway.plain import to_plain
from headway.text.framing import frame
from headway.text.tokenizer import Tokenizer
from headway.train.corpus import is_own
from headway.train.job import Desk, Job, Outcome, entropy, train
from headway.train.log import Log
from headway.train.objective import Labels
from headway.train.pretrained import earlier_model
from headway.train.random_states import process_seed
from headway.train.run import LabelledText, Run

TRANSFERRED = ("embed.", "encoder.", "task.first.")  # what a model brings to another task


def train_classifier(run: Run, out: Path, log: Log, *, download: bool = False, resume: bool = False) -> Outcome:
    return train(run, out, log, open_labels, download=download, resume=resume)


@dataclass
class LabelCorpus:
    """A run's data, ready. `texts` are those to learn from, for a line that names one."""

    tokenizer: Any
    labels: tuple[str, ...]
    stores: dict[str, LabelStore]
    texts: list[Labelled]
    names: dict[str, str]  # what each part holds, as a hash


def open_labels(run: Run, desk: Desk) -> Job:
    earlier = earlier_model(run)
    if earlier is not None and not isinstance(earlier.model, Bert):
        raise InputError(f"{run.init} is no encoder ({earlier.card.family}): labels are learned from one")
    config = run.model
    assert isinstance(config, BertConfig) and isinstance(config.task, TextLabels)
    with desk.ranks.in_turn():
        corpus = open_labelled(run.labelled, config.max_length, desk, earlier)
    config = replace(config, task=replace(config.task, labels=corpus.labels))
    size = earlier.card.vocabularies[0] if earlier else len(corpus.tokenizer)
    text = earlier.card.text if earlier else run.labelled.text
    foreign = bool(earlier and earlier.card.foreign_text)
    card = Card("bert", config, (size,), text, run=to_plain(run), foreign_text=foreign)
    return LabelJob(run, desk, _first_model(run, desk, config, size, earlier), card, corpus)


def _first_model(run: Run, desk: Desk, config: BertConfig, size: int, earlier: Loaded | None) -> Bert:
    """The model at its start, the same in every process; then chance goes its own way in each."""
    torch.manual_seed(run.engine.seed)
    model = Bert(config, size)
    if earlier is not None:
        new = take_over(model, earlier.model, run.init)
        desk.log.say(f"weights of {run.init}" + (f"; new: {', '.join(new)}" if new else ""))
    if desk.ranks.count > 1:
        torch.manual_seed(process_seed(run.engine.seed, desk.ranks.rank))
    return model.to(desk.device, desk.dtype)


@torch.no_grad()
def take_over(model: Bert, earlier: Any, where: str) -> list[str]:
    """The weights of an earlier encoder; those of its head only if it gives the same labels. Returns what stays new."""
    task, before = model.config.task, earlier.config.task
    same = isinstance(before, TextLabels) and isinstance(task, TextLabels) and before.labels == task.labels
    theirs = {n: w for n, w in earlier.named_parameters() if same or n.startswith(TRANSFERRED)}
    ours = dict(model.named_parameters())
    for name in ours.keys() & theirs.keys():
        shapes = [list(weights[name].shape) for weights in (theirs, ours)]
        if shapes[0] != shapes[1]:
            raise InputError(f"{where}: {name} has shape {shapes[0]}, in the run's model {shapes[1]}: leave its sizes")
        ours[name].copy_(theirs[name])
    return [name for name in ours if name not in theirs]


def open_labelled(data: LabelledText, longest: int, desk: Desk, earlier: Loaded | None) -> LabelCorpus:
    """Read, hold some out where that is needed, learn a vocabulary where there is none, encode."""
    parts = _parts(data, desk)
    labels = labels_in(parts["train"])
    if len(labels) < 2:
        raise InputError(f"every training text has the label '{labels[0]}': there is nothing to tell apart")
    if data.names and len(data.names) != len(labels):
        raise InputError(f"data.names has {len(data.names)} names for {len(labels)} labels ({', '.join(labels)})")
    tokenizer = earlier.source_tokenizer if earlier else _vocabulary(data, parts["train"], desk)
    number_of = {label: number for number, label in enumerate(labels)}
    stores, names = {}, {}
    for part, texts in parts.items():
        if strange := sorted({text.label for text in texts} - number_of.keys()):
            raise InputError(f"{part}: no training text has the label '{strange[0]}'{nearest(strange[0], labels)}")
        framed = frame(tokenizer, [text.text for text in texts], longest, truncate=True)
        stores[part] = LabelStore(framed, [number_of[text.label] for text in texts], tokenizer.pad or 0)
        cut = int((stores[part].lengths == longest).sum())
        at_limit = f", {cut:,} of them at the most tokens that the model takes, or cut there" if cut else ""
        desk.log.say(f"{part}: {len(texts):,} texts, {int(stores[part].lengths.sum()):,} tokens{at_limit}")
        desk.log.event("data", part=part, texts=len(texts), labels=len(labels))
        names[part] = hashlib.blake2b(json.dumps([texts, tokenizer.fingerprint]).encode(), digest_size=16).hexdigest()
    return LabelCorpus(tokenizer, data.names or labels, stores, parts["train"], names)


def _parts(data: LabelledText, desk: Desk) -> dict[str, list[Labelled]]:
    if not data.train:
        raise InputError("no training data: pass --data FILE (.jsonl, .tsv, or a label and a text a line)")
    named = {"train": data.train, "valid": data.valid, "test": data.test}
    parts = {part: read_labelled([_found(name, desk) for name in names]) for part, names in named.items() if names}
    for part, texts in parts.items():
        if not texts:
            raise InputError(f"{', '.join(named[part])}: there is no text in it")
    if "valid" not in parts:
        parts["train"], parts["valid"] = hold_out_labelled(parts["train"], data.hold_out)
    return parts


def _found(name: str, desk: Desk) -> str:
    """A path as it is, a known name below the data folder; a member of an archive stays behind it."""
    file, member = in_archive(name)
    place = file if is_own(file) else str(find(file, download=desk.download))
    return f"{place}/{member}" if member else place


def _vocabulary(data: LabelledText, texts: Sequence[Labelled], desk: Desk) -> Tokenizer:
    """Learned from the texts, or, of a run that goes on, as it learned it."""
    path = desk.out / "data" / "joint.tokenizer.json"
    if desk.resumed and path.is_file():
        return Tokenizer.load(path)
    desk.log.say("learning the vocabulary")
    sides = (side for text in texts for side in ((text.text,) if isinstance(text.text, str) else text.text))
    tokenizer = Tokenizer.train(sides, data.text)
    path.parent.mkdir(exist_ok=True)
    tokenizer.save(path)
    return tokenizer


class LabelJob(Job):
    """Judged by the labels that it gives to held-out texts."""

    digits = 4

    def __init__(self, run: Run, desk: Desk, model: Any, card: Card, corpus: LabelCorpus) -> None:
        super().__init__(run, desk, model, card, (corpus.tokenizer, corpus.tokenizer))
        assert isinstance(run.objective, Labels)
        self.corpus, self.figure = corpus, run.objective.judge
        self.batches = corpus.stores["train"].batches(
            run.engine.batch, run.engine.seed, full=desk.device.type == "cuda"
        )
        self.valid = corpus.stores["valid"].batches(4 * run.engine.batch, 0, shuffle=False)
        self.begin(corpus.names, entropy(np.bincount(corpus.stores["train"].labels)))

    def batch(self, step: int) -> LabelBatch:
        return self.batches.batch(step)

    def valid_batches(self) -> Iterable[LabelBatch]:
        return self.valid.epoch()

    def valid_losses(self) -> dict[str, float]:
        return {"loss": super().valid_losses()["loss"]}

    def score(self, losses: dict[str, float] | None = None) -> float:
        return self.judge(self.valid).by(self.figure)  # type: ignore[arg-type]

    def shown(self, example: int) -> str:
        text = self.corpus.texts[example].text
        return text if isinstance(text, str) else " | ".join(text)

    def test_scores(self) -> dict[str, Any]:
        if "test" not in self.corpus.stores:
            return {}
        found = self.judge(self.corpus.stores["test"].batches(4 * self.run.engine.batch, 0, shuffle=False))
        return {f"test {name}": round(value, 4) for name, value in found.to_dict().items() if name != "texts"}

    @torch.no_grad()
    def judge(self, batches: BucketedBatches[LabelBatch]) -> LabelScores:
        self.judged.eval()
        true: list[int] = []
        given: list[int] = []
        for batch in batches.epoch():
            here = batch.map(lambda tensor: tensor.to(self.device))
            logits_BL = self.plain_model(here.inputs.ids_BT, here.inputs.lengths_B, here.inputs.types_BT)
            true += batch.labels_B.tolist()
            given += logits_BL.argmax(-1).tolist()
        return LabelScores.of(true, given, len(self.corpus.labels))

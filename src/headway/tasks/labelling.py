"""What the tasks with labels share: examples are read, some are held out, and the labels of those judge a head."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch

from headway.batch import sampled
from headway.data.replaced_words import ChangedWords
from headway.errors import InputError, Notice, nearest, refuse
from headway.evaluate.labels import ERRORS, LabelScores
from headway.models.configs import letters
from headway.tasks.encoding import Encoding
from headway.tasks.files import divided, vocabularies
from headway.tasks.objective import Labels
from headway.tasks.start import RunContext, earlier_model
from headway.tasks.task import Figure, Prediction, Report, refuse_unknown
from headway.text.codec import hashed
from headway.text.framing import Framed, Text, frame
from headway.text.tokenizer import Tokenizer


class Labelling(Encoding):
    """Abstract. A label of each example, by an encoder with a head; judged by the labels of held-out examples.

    what: the examples in messages. options, evaluation_options: those that an answer, an evaluation may have.
    """

    objectives: ClassVar[tuple[Any, ...]] = (Labels,)
    headline = ("accuracy", True)
    unit = "texts"
    verb = "predict"
    what: ClassVar[str] = "texts"
    options: ClassVar[tuple[str, ...]]
    evaluation_options: ClassVar[tuple[str, ...]] = ()

    labels: tuple[str, ...]  # as the model calls them
    held: dict[str, Any]  # the batches of the parts that are not trained on

    def divided(
        self, read: Callable[[list[Any]], Any], hold_out: Callable[[Any, float], tuple[Any, Any]],
        test: float = 0.0, folders: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """As `headway.tasks.files.divided`, of the run's data."""
        return divided(self.run.data, self.context, read, hold_out, test, folders)

    def called(self, labels: tuple[str, ...], least: int = 2) -> tuple[str, ...]:
        """What the model calls these labels of the training data, of which there must be at least so many."""
        names = self.run.data.names
        refuse(not labels, f"no training {self.what.removesuffix('s')} has a label")
        if len(labels) < least:
            what = self.what.removesuffix("s")
            raise InputError(f"every training {what} has the label '{labels[0]}': at least two labels are needed")
        if names and len(names) != len(labels):
            raise InputError(f"data.names has {len(names)} names for {len(labels)} labels ({', '.join(labels)})")
        return names or labels

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        name = self.run.objective.judge
        return name, Figure(self.scores("valid").figures()[name], name not in ERRORS, 4)

    def final_figures(self) -> dict[str, Any]:
        if said := constant_answer(self.scores("valid"), self.labels, self.what):
            self.log.say(said)
        figures = self.scores("test").figures() if "test" in self.held else {}
        return {f"test {name}": round(value, 4) for name, value in figures.items()}

    def scores(self, part: str) -> Any:
        """The figures of the present weights on a part that is not trained on."""
        true: list[int] = []
        given: list[int] = []
        for batch, share_BL in self.asked(part):
            true += batch.labels_B.tolist()
            given += share_BL.argmax(-1).tolist()
        return LabelScores.of(true, given, len(self.labels))

    @torch.no_grad()
    def asked(self, part: str) -> Iterator[tuple[Any, torch.Tensor]]:
        """The batches of a part, and what the present weights answer."""
        self.model.eval()
        device, dtype = self.context.device, self.context.dtype
        for batch in sampled(self.held[part].epoch(), self.share):
            inputs = batch.inputs.map(lambda t: t.to(device, dtype if t.is_floating_point() else None))
            yield batch, self.model.head.classes(self.model.encode(inputs))

    @classmethod
    def check(cls, run: Any) -> None:
        known = cls.scores_of(run.head).names
        if run.objective.judge not in known:
            names = [name for name in known if name != "mse"]
            raise InputError(f"objective.judge={run.objective.judge} is no figure of such answers: set objective.judge="
                             f"{' or '.join(names)}")  # fmt: skip

    @classmethod
    def scores_of(cls, head: Any) -> Any:
        """The figures of a head's answers."""
        return LabelScores

    @classmethod
    def guesses(cls, model: Any, values: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        """The labels of each value, the most probable first."""
        raise NotImplementedError

    @classmethod
    def labelled(
        cls, model: Any, files: Sequence[str], options: dict[str, Any]
    ) -> tuple[Sequence[str], Sequence[str], list[Any]]:
        """Of each example in the files a name for messages, its label, and what the model guesses."""
        raise NotImplementedError

    @classmethod
    def answer(cls, model: Any, values: Sequence[Any], options: dict[str, Any]) -> Iterator[Prediction]:
        refuse_unknown(options, cls.options, f"a model that labels {cls.what}")
        for value, guesses in zip(values, cls.guesses(model, values, options), strict=True):
            shown = guesses if "all" in options else guesses[:1]
            line = "\t".join(f"{guess.text}\t{guess.probability:.4f}" for guess in shown)
            labels = [[guess.text, round(guess.probability, 6)] for guess in guesses]
            yield Prediction(line, {cls.what.removesuffix("s"): value, "labels": labels})

    @classmethod
    def evaluate(cls, model: Any, files: Sequence[str], options: dict[str, Any]) -> Report:
        """Accuracy, F1 and correlation of the labels that a model gives these examples. A label is written as the model
        calls it, or as its number from 0 on."""
        refuse_unknown(options, cls.evaluation_options, f"a model that labels {cls.what}")
        names, labels, guesses = cls.labelled(model, files, options)
        given = numbers(names, [best.text for best, *_ in guesses], model.labels)
        scores = LabelScores.of(numbers(names, labels, model.labels, digits=True), given, len(model.labels))
        if said := constant_answer(scores, model.labels, cls.what):
            warnings.warn(said, Notice, stacklevel=2)
        return reported(scores, len(names), cls.what)


def reported(scores: Any, count: int, what: str) -> Report:
    rows = [f"{scores.names[name]:<22}  {value:.4f}" for name, value in scores.figures().items()]
    return Report({what: count} | scores.figures(), [*rows, f"{count:,} {what}"])


def said_of_cuts(cut: int, texts: int, longest: int, settable: bool, what: str = "texts") -> str:
    """What to say where texts were longer than the model takes; else nothing."""
    if not cut:
        return ""
    advice = "set model.max_length higher" if settable else "the model takes no more: shorten or divide them"
    return f"{cut:,} of {texts:,} {what} ({cut / texts:.1%}) have more than {longest:,} tokens and are cut; {advice}"


class TextLabelling(Labelling):
    """Abstract. Texts in memory, framed for an encoder. spans: whether a store needs the characters of each token.
    changes: words that training batches read as another, or not at all."""

    spans: ClassVar[bool] = False
    changes: ChangedWords | None = None

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        earlier = earlier_model(run)
        with context.ranks.in_turn():
            self.parts = self.open_parts()
            self.tokenizer = earlier.source_tokenizer if earlier else vocabularies(context, self.learned)[0]
            self.stores = {part: self.encoded(part, texts) for part, texts in self.parts.items()}
        if run.objective.one_pass:
            refuse(run.init, "a model that is fitted at once starts from nothing: leave --init out")
            refuse(context.ranks.count > 1, "fitting takes one process: start it without torchrun")
        self.begin([self.tokenizer], earlier, head=self.head())
        batch, held = run.engine.batch, [part for part in self.parts if part != "train"]
        full, longest = context.device.type == "cuda", run.max_length
        self.batches = self.stores["train"].batches(batch, run.engine.seed, full=full, longest=longest)
        self.held = {part: self.stores[part].batches(4 * batch, 0, shuffle=False, longest=longest) for part in held}
        self.valid = self.held["valid"]

    def open_parts(self) -> dict[str, Any]:
        """The texts of each part; sets `labels`."""
        raise NotImplementedError

    def batch(self, step: int) -> Any:
        batch: Any = super().batch(step)
        return replace(batch, inputs=self.changes.changed(batch.inputs, step)) if self.changes else batch

    def head(self) -> Any:
        """The config of the head, with what the data says of it."""
        return replace(self.run.head, labels=self.labels)

    def learned(self) -> list[Tokenizer]:
        """A tokenizer of the training texts, of pairs both."""
        sides = (side for example in self.parts["train"] for side in sides_of(example.text))
        return [Tokenizer.train(sides, self.run.data.text)]

    def store(self, part: str, texts: Sequence[Any], framed: Sequence[Framed]) -> Any:
        raise NotImplementedError

    def amount(self, texts: Sequence[Any]) -> str:
        return f"{len(texts):,} texts"

    def encoded(self, part: str, texts: Sequence[Any]) -> Any:
        longest = self.run.max_length
        written, spelled = [text.text for text in texts], letters(self.run.model)
        framed = frame(self.tokenizer, written, longest, truncate=True, spans=self.spans, letters=spelled)
        store = self.store(part, texts, framed)
        self.log.say(f"{part}: {self.amount(texts)}, {int(store.lengths.sum()):,} tokens")
        if said := said_of_cuts(sum(one.cut for one in framed), len(texts), longest, not self.run.init):
            self.log.say(f"warning: {part}: {said}")
        words = sum(len(side.split()) for text in texts for side in sides_of(text.text))
        self.log.event("data", part=part, texts=len(texts), labels=len(self.labels), words=words)
        self.data_names[part] = self.named(texts)
        return store

    def named(self, texts: Sequence[Any]) -> str:
        """A hash of texts and vocabulary."""
        return hashed(json.dumps([texts, self.tokenizer.fingerprint]))


def sides_of(text: Text) -> tuple[str, ...]:
    """The texts of a pair; of a single one itself."""
    return (text,) if isinstance(text, str) else text


def constant_answer(scores: LabelScores, labels: Sequence[str], what: str) -> str:
    """What to say of a model that gives every example the same label, though they have several; else nothing."""
    only = scores.constant
    if only is None:
        return ""
    return (
        f"it answers '{labels[only]}' for every {what.removesuffix('s')}: no better than always saying the commonest "
        f"label (accuracy {scores.majority:.4f})"
    )


def numbers(names: Sequence[str], labels: Sequence[str], known: Sequence[str], digits: bool = False) -> list[int]:
    """The numbers of labels among the known ones. digits: a label may also be written as its number from 0 on."""
    number_of = {str(number): number for number in range(len(known))} if digits else {}
    number_of |= {label: number for number, label in enumerate(known)}
    for name, label in zip(names, labels, strict=True):
        if label not in number_of:
            raise InputError(f"{name} has the label '{label}', which the model does not have{nearest(label, known)}")
    return [number_of[label] for label in labels]

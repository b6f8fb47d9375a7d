"""Classification: a label of each text, or pair of texts, by an encoder with a head for labels."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from headway.batch import TextInputs
from headway.data.batches import BucketedBatches, MixedBatches
from headway.data.columns import Columns
from headway.data.labelled import (
    LabelBatch,
    Labelled,
    hold_out_labelled,
    is_table,
    read_labelled,
    read_texts,
)
from headway.data.readers import UTF8, bare_suffix
from headway.data.replaced_words import ReplacedWords, WordsLeftOut, plain_words
from headway.errors import InputError, Notice, refuse
from headway.evaluate.labels import ERRORS
from headway.generate.encoder import Encoder, Guess
from headway.models import FAMILIES
from headway.models.configs import letters
from headway.plain import to_plain
from headway.tasks import label_kinds, rule
from headway.tasks.encoding import answered, pair_of
from headway.tasks.files import DividedFiles
from headway.tasks.label_kinds import KINDS, Number, OneLabel
from headway.tasks.labelling import TextLabelling, numbers, reported, said_of_cuts
from headway.tasks.linear import LogisticRegression, TfIdfFit, load_library
from headway.tasks.objective import Labels, LabelsRDrop
from headway.tasks.rule import Rung
from headway.tasks.start import RunContext
from headway.tasks.task import Prediction, Report, random_ids, refuse_unknown
from headway.text.framing import Framed, frame
from headway.text.tokenizer import TextOptions

ORDERS = {"by-length": BucketedBatches, "mixed": MixedBatches}
COLUMN_OPTIONS = ("text_column", "label_column")


@dataclass(frozen=True)
class LabelledTables(DividedFiles):
    """Abstract. Examples with a label each, in tables.

    Without `valid`, the share `hold_out` of the training examples is. names: what the labels of the data, in their
    order, are called (none: as they are written there). text_column, label_column: names or numbers (from 1 on) of
    columns, two texts for pairs; where they are not given, `headway.data.columns` finds them. hold_out_test: the share
    of the training examples that is held out for a last test, where there is no `test`. class_weights: `balanced` gives
    rare labels as much weight in all as common ones.
    """

    names: tuple[str, ...] = ()
    text_column: tuple[str, ...] = ()
    label_column: str = ""
    hold_out_test: float = 0.0
    class_weights: Literal["equal", "balanced"] = "equal"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_test_share(self.hold_out_test)
        refuse(
            len(self.text_column) > 2, f"--text-column takes one column, or two for pairs, not {len(self.text_column)}"
        )

    @property
    def columns(self) -> Columns:
        return Columns(self.text_column, self.label_column)


@dataclass(frozen=True)
class LabelledText(LabelledTables):
    """Texts, or pairs of them, with a label each: files (.csv, .tsv, .jsonl, or label and text with a space between
    them), or names of a data set that headway knows. text: for a vocabulary of its own, where the run starts from
    nothing. encoding: of lines of a label and a text. order: `by-length` puts texts of like length into a batch, which
    is quicker; `mixed` gives every batch as many texts, of any length: `engine.batch` tokens, if all were as long as
    the longest. hidden: the share of the words that are hidden in each training batch (word dropout: Iyyer et al.
    2015): the mask stands there, or the unknown word in a vocabulary without one. left_out: the share of the words that
    each training batch leaves out, which makes it as much shorter; the others keep their positions. The rest as in
    `LabelledTables`."""

    name: ClassVar[str] = "labelled-text"
    wanted: ClassVar[str] = "FILE (.csv, .tsv, .jsonl, or a label and a text a line)"
    text: TextOptions = field(default_factory=lambda: TextOptions(lowercase=True))
    encoding: Literal["utf-8", "latin-1"] = "utf-8"
    order: Literal["by-length", "mixed"] = "by-length"
    hidden: float = 0.0
    left_out: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("hidden", "left_out"):
            share = getattr(self, name)
            refuse(not 0 <= share < 1, f"data.{name} must be at least 0 and below 1, not {share}")
        line = "data.hidden and data.left_out: a word is hidden or left out, set one of them to 0"
        refuse(self.hidden and self.left_out, line)


class Classification(TextLabelling):
    """Judged by the labels that it gives to held-out texts."""

    name = "classification"
    data: ClassVar[Any] = LabelledText
    objectives: ClassVar[tuple[Any, ...]] = (Labels, LabelsRDrop, LogisticRegression)
    at_once = ("texts fitted", "fitting seconds")
    options: ClassVar[tuple[str, ...]] = ("pairs", "all", "truncate")
    evaluation_options = COLUMN_OPTIONS

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        if share := run.data.hidden:
            self.changes = self._hidden(share)
        if share := run.data.left_out:
            line = "this model does not know where a word stood whose neighbours are left out: set data.left_out to 0"
            refuse(not self.model.encoder.takes_positions, f"{line}, or take bert with positions that are learned")
            self.changes = self._left_out(share)

    def open_parts(self) -> dict[str, list[Labelled]]:
        self.kind, self.written = KINDS[self.run.head.answer], tuple[str, ...]()
        self.said: set[str] = set()
        return self.divided(self._read, hold_out_labelled, self.run.data.hold_out_test)

    def _left_out(self, share: float) -> WordsLeftOut:
        which_V = plain_words(self.tokenizer)
        if self.tokenizer.unknown is not None:  # stands for a word
            which_V[self.tokenizer.unknown] = True
        return WordsLeftOut(which_V, self.tokenizer.pad or 0, share, self.run.engine.seed)

    def _hidden(self, share: float) -> ReplacedWords:
        mask, unknown = self.tokenizer.mask, self.tokenizer.unknown
        stand_in = unknown if mask is None else mask
        if stand_in is None or stand_in in self.tokenizer.stops:
            raise InputError("data.hidden needs a mask or an unknown word: this vocabulary has neither, so set it to 0")
        return ReplacedWords(plain_words(self.tokenizer), stand_in, share, self.run.engine.seed)

    def _read(self, files: list[Any]) -> list[Labelled]:
        """Of the training texts first: where the labels are in other files is told by those."""
        given = files, self.run.data.columns, self.written, self._say_once
        texts = self.examples(to_plain(self.run.data), *given, self.run.head.answer)
        refuse(not texts, f"{', '.join(map(str, files))}: there is no {self.what.removesuffix('s')} in it")
        if not self.written:
            self.written = self.kind.written(texts)
            self.labels = self.called(self.written, self.kind.least)
        return texts

    @classmethod
    def examples(
        cls, data: dict[str, Any], files: Sequence[Any], columns: Columns, known: Collection[str],
        say: Callable[[str], None], answer: Any,
    ) -> list[Labelled]:  # fmt: skip
        """What files have. `data`: settings of the run."""
        return read_labelled(files, columns, known, say, data.get("encoding", UTF8), answer)

    def _say_once(self, line: str) -> None:
        """Training and validation files are mostly alike."""
        if line not in self.said:
            self.said.add(line)
            self.log.say(line)

    def store(self, part: str, texts: Sequence[Labelled], framed: Sequence[Framed]) -> Any:
        balanced = part == "train" and self.run.data.class_weights == "balanced"
        labels = [text.label for text in texts]
        store = self.kind.store(part, labels, self.written, framed, self.tokenizer.pad or 0, balanced)
        if part == "train":
            store.order = ORDERS[self.run.data.order]
        return store

    def scores(self, part: str) -> Any:
        if self.kind is OneLabel:
            return super().scores(part)
        found = [(batch.targets_BL.numpy(), share_BL.float().cpu().numpy()) for batch, share_BL in self.asked(part)]
        true, given = (np.concatenate(some) for some in zip(*found, strict=True))
        return self.kind.scores.of(true, given)

    @classmethod
    def scores_of(cls, head: Any) -> Any:
        return KINDS[getattr(head, "answer", "one")].scores

    @classmethod
    def headline_of(cls, run: Any) -> tuple[str, bool]:
        return run.objective.judge, run.objective.judge not in ERRORS

    @classmethod
    def check(cls, run: Any) -> None:
        label_kinds.check(run)
        hidden, order = getattr(run.data, "hidden", 0), getattr(run.data, "order", "by-length")
        left_out = getattr(run.data, "left_out", 0)
        spelled, at_once = letters(run.model), run.objective.one_pass
        refuse(hidden and spelled, "data.hidden hides words, not their letters: set it to 0, or take out model.letters")
        line = "data.hidden, data.left_out and data.order are of batches, and a model that is fitted at once has none"
        refuse(at_once and (hidden or left_out or order != "by-length"), line)
        super().check(run)

    def learn_at_once(self) -> dict[str, Any]:
        """Fit a regression of each strength; the one that validates best stays."""
        load_library()
        run, store, started = self.run, self.stores["train"], time.perf_counter()
        fit = TfIdfFit(run.model, len(self.tokenizer), [one.ids for one in store.framed])
        found: dict[float, tuple[float, Any]] = {}
        for strength in run.objective.strengths:
            model = fit.model(store.labels, strength, store.weights, self.card.head)
            self.model = model.to(self.context.device, self.context.dtype)
            found[strength] = self.scores("valid").figures()[run.objective.judge], self.model
            self.log.say(f"strength {strength:g}: {run.objective.judge} {found[strength][0]:.4f}")
        best = max(found, key=lambda strength: found[strength][0])
        (figure, self.model), self.card.config = found[best], fit.config
        seconds = time.perf_counter() - started
        self.log.say(f"fitted {len(store.labels):,} texts with {fit.config.found:,} n-grams in {seconds:.2f} s")
        scores = {f"validation {run.objective.judge}": round(figure, 4), "strength": best} | self.final_figures()
        return scores | {"texts fitted": len(store.labels), "fitting seconds": round(seconds, 2)}

    def example(self) -> str:
        batch = next(self.held["valid"].epoch()).rows(0, 1)
        inputs = batch.inputs.map(lambda t: t.to(self.context.device))
        [shares] = self.model.head.classes(self.model.encode(inputs)).tolist()
        guesses = sorted(map(Guess, self.labels, shares), key=lambda guess: -guess.probability)
        wanted = self.parts["valid"][batch.examples[0]].label
        wanted = dict(zip(self.written, self.labels, strict=True)).get(wanted, wanted)
        given = self.kind.line(self.kind.chosen(guesses)).replace("\t", " ") or "no label"
        return f"{given} (wanted: {wanted or 'no label'}): {self.shown(batch.examples[0], 'valid')}"

    def shown(self, example: int, part: str = "train") -> str:
        text = self.parts[part][example].text
        return text if isinstance(text, str) else " | ".join(text)

    def guess(self) -> float:
        store = self.stores["train"]
        if getattr(self.run.head, "errors", "squared") == "absolute" and self.kind is Number:
            return float(np.abs(store.targets_NL - np.median(store.targets_NL, 0)).mean())
        return self.kind.guess(store)

    @classmethod
    def level(cls, data: Any, like: Any) -> Any:
        data = super().level(data, like)
        return data if data.test or data.hold_out_test else replace(data, hold_out_test=data.hold_out)

    @classmethod
    def remarks(cls, data: dict[str, Any], runs: dict[str, Any], figures: dict[str, float]) -> list[str]:
        if any(getattr(run.head, "answer", "one") != "one" for run in runs.values()):
            return []
        train, tested = data["train"], data.get("test", data["valid"])["texts"]
        rungs = [Rung(name, figures[name], FAMILIES[run.model.name].bag, bool(run.init)) for name, run in runs.items()]
        return rule.remarks(train["texts"], train["words"], tested, rungs)

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> LabelBatch:
        ids = random_ids(run, size, device)
        return LabelBatch(TextInputs(ids).with_lengths(), torch.ones_like(ids[:, 0]))

    @classmethod
    def guesses(cls, model: Encoder, values: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        given = [pair_of(value, number) for number, value in enumerate(values, 1)] if "pairs" in options else values
        return answered(given, lambda texts: model.classify(texts, truncate="truncate" in options))

    @classmethod
    def read(
        cls, inputs: list[str], texts: list[str], lines: Callable[..., list[str]], columns: Sequence[str] = ()
    ) -> list[Any]:
        """A table where its name, or a column that was asked for, says so; a .tsv without one is lines."""
        refuse(columns and not inputs, "--text-column needs a file: headway predict MODEL FILE --text-column NAME")
        tables = [file for file in inputs if columns or (is_table(file) and bare_suffix(Path(file)) != ".tsv")]
        if len(inputs) != 1 or not tables:
            return super().read(inputs, texts, lines, columns)
        refuse(texts, "--text and a file were both given: pass one of them")
        refuse(not is_table(inputs[0]), f"{inputs[0]} has no columns: --text-column is for .csv, .tsv and .jsonl")
        return list(read_texts(inputs[0], Columns(tuple(columns))))

    @classmethod
    def answer(cls, model: Encoder, values: Sequence[Any], options: dict[str, Any]) -> Iterator[Prediction]:
        refuse_unknown(options, cls.options, f"a model that labels {cls.what}")
        kind = KINDS[getattr(model.head, "answer", "one")]
        for value, guesses in zip(values, cls.guesses(model, values, options), strict=True):
            chosen = kind.chosen(guesses)
            labels = [[guess.text, round(guess.probability, 6)] for guess in guesses]
            answer = {cls.what.removesuffix("s"): value, "labels": labels} | kind.extra(chosen)
            yield Prediction(kind.line(guesses if "all" in options else chosen), answer)

    @classmethod
    def evaluate(cls, model: Encoder, files: Sequence[str], options: dict[str, Any]) -> Report:
        kind = KINDS[getattr(model.head, "answer", "one")]
        if kind is OneLabel:
            return super().evaluate(model, files, options)
        refuse_unknown(options, cls.evaluation_options, f"a model that labels {cls.what}")
        texts, said = cls._texts(model, files, options, ())
        true = kind.targets([text.label for text in texts], model.labels, ", ".join(files))  # type: ignore[attr-defined]
        _tell(said)
        share_of = [{guess.text: guess.probability for guess in guesses} for guesses in cls._classified(model, texts)]
        given = np.array([[shares[label] for label in model.labels] for shares in share_of])
        return reported(kind.scores.of(true, given), len(texts), cls.what)

    @classmethod
    def labelled(
        cls, model: Encoder, files: Sequence[str], options: dict[str, Any]
    ) -> tuple[Sequence[str], Sequence[str], list[Any]]:
        known = {*model.labels, *map(str, range(len(model.labels)))}
        texts, said = cls._texts(model, files, options, known)
        names = [f"{cls.what.removesuffix('s')} {number}" for number in range(1, len(texts) + 1)]
        labels = [text.label for text in texts]
        numbers(names, labels, model.labels, digits=True)  # a wrong label is told before the model is asked
        _tell(said)
        return names, labels, cls._classified(model, texts)

    @classmethod
    def _texts(
        cls, model: Any, files: Sequence[str], options: dict[str, Any], known: Collection[str]
    ) -> tuple[list[Labelled], list[str]]:
        """The examples of files with their labels, and where they were found, in words."""
        said, answer = list[str](), getattr(model.head, "answer", "one")
        columns = _columns(model.card.run, options)
        texts = cls.examples(_data(model.card.run), list(files), columns, known, said.append, answer)
        refuse(not texts, f"{', '.join(files)}: there is no {cls.what.removesuffix('s')} in it")
        return texts, said

    @classmethod
    def _classified(cls, model: Encoder, texts: Sequence[Labelled]) -> list[Any]:
        """Cut where they are longer than the model takes, as they were when it learned; that is told."""
        given = [text.text for text in texts]
        cut = sum(one.cut for one in frame(model.tokenizer, given, model.limit, truncate=True))
        if said := said_of_cuts(cut, len(texts), model.limit, settable=False):
            warnings.warn(said, Notice, stacklevel=3)
        return model.classify(given, truncate=True)


def _tell(said: Sequence[str]) -> None:
    for line in said:
        warnings.warn(line, Notice, stacklevel=3)


def _columns(run: dict[str, Any], options: dict[str, Any]) -> Columns:
    """Those that are asked for, or those that the model was trained with."""
    texts, label = (options.get(name) or _data(run).get(name) for name in COLUMN_OPTIONS)
    return Columns(tuple(texts or ()), str(label or ""))


def _data(run: Any) -> dict[str, Any]:
    """The data's settings of the run that trained a model, where its card has one."""
    found = run.get("data", {}) if isinstance(run, dict) else {}
    return found if isinstance(found, dict) else {}

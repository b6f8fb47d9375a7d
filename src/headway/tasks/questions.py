"""Questions about texts: the answer to each is a part of its text, found by an encoder with a head for spans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from headway.batch import TextInputs
from headway.data.answer_windows import LONGEST, STRIDE, WINDOW, AnswerBatch, AnswerStore, framed_windows
from headway.data.questions import Question, hold_out_questions, is_questions, read_questions
from headway.data.readers import lines as lines_of
from headway.errors import InputError, refuse
from headway.evaluate.answers import AnswerJudge, AnswerScores
from headway.generate.reader import BestRow, Reader, Span, best_answer, best_spans
from headway.tasks.answers import parts_of
from headway.tasks.files import DividedFiles
from headway.tasks.labelling import TextLabelling
from headway.tasks.objective import Labels
from headway.tasks.task import Prediction, Report, entropy, random_ids, refuse_unknown
from headway.text.tokenizer import TextOptions, Tokenizer

SHOWN = {"f1": "F1", "exact": "exact match"}
NONE = "(no answer)"  # as a line shows it


@dataclass(frozen=True)
class Questions(DividedFiles):
    """Questions with the texts that answer them: files (SQuAD's .json, or .jsonl), or names of a data set that headway
    knows.

    Without `valid`, the share `hold_out` of the articles is, and the share `hold_out_test` is for a last test. text:
    for a vocabulary of its own, where the run starts from nothing. window: the most tokens that are read at once,
    question and text (the model may take fewer); stride: by how many tokens the window moves on over a longer text.
    longest: the most tokens of an answer. no_answer: the model may find that a text has no answer.
    """

    name: ClassVar[str] = "questions"
    wanted: ClassVar[str] = "FILE (SQuAD's .json, or .jsonl with context, question and answers)"
    text: TextOptions = field(default_factory=lambda: TextOptions(lowercase=True))
    hold_out_test: float = 0.0
    window: int = WINDOW
    stride: int = STRIDE
    longest: int = LONGEST
    no_answer: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_test_share(self.hold_out_test)
        for name, least in (("window", 8), ("stride", 1), ("longest", 1)):
            value = getattr(self, name)
            refuse(value < least, f"data.{name} must be at least {least}, not {value}")


@dataclass(frozen=True)
class AnswerEnds(Labels):
    """The mean of the losses of an answer's first and last token, per window. `judge`: the figure by which the best
    weights are chosen: F1 of the answers' words, or the share of answers that match exactly."""

    name: ClassVar[str] = "answer-ends"
    judge: AnswerJudge = "f1"  # type: ignore[assignment]


class QuestionAnswering(TextLabelling):
    """Evaluated by the answers to held-out questions."""

    name = "question-answering"
    data = Questions
    objectives = (AnswerEnds,)
    headline = ("f1", True)
    unit = "windows"
    what = "questions"
    options = ("truncate", "context", "no_answer", "max_answer_tokens")
    evaluation_options = ("no_answer", "max_answer_tokens")
    opens = Reader

    def open_parts(self) -> dict[str, list[Question]]:
        data = self.run.data
        self.labels = ()
        parts = self.divided(read_questions, hold_out_questions, data.hold_out_test)
        if not data.no_answer:
            for one in parts["train"]:
                why = f"{one.place} has no answer: set data.no_answer=true for a model that may say so"
                refuse(not one.answers, why)
        refuse(not any(one.answers for one in parts["train"]), "no training question has an answer")
        return parts

    def head(self) -> Any:
        return self.run.head

    def learned(self) -> list[Tokenizer]:
        texts = dict.fromkeys(text for one in self.parts["train"] for text in one.text)  # a context has many questions
        return [Tokenizer.train(iter(texts), self.run.data.text)]

    def encoded(self, part: str, texts: Sequence[Question]) -> AnswerStore:
        data, pairs = self.run.data, [one.text for one in texts]
        longest = min(data.window, self.run.max_length)
        found = framed_windows(self.tokenizer, pairs, longest, data.stride, truncate=True)
        store = AnswerStore(texts, found, self.tokenizer.pad or 0, spans=part != "train")
        refuse(not len(store.lengths), f"{part}: no text has a token: model.max_length={longest} leaves it no room")
        cut = len(store.lengths) - len(np.unique(store.question_N))
        more = f", {cut:,} of them for the rest of long texts" if cut else ""
        tokens = int(store.lengths.sum())
        self.log.say(f"{part}: {len(texts):,} questions, {len(store.lengths):,} windows{more}, {tokens:,} tokens")
        self.log.event("data", part=part, questions=len(texts), windows=len(store.lengths))
        self.data_names[part] = self.named([one[:4] for one in texts])  # wherever its file is
        return store

    @torch.no_grad()
    def scores(self, part: str) -> AnswerScores:
        self.model.eval()
        found, questions = self.answers(part), self.parts[part]
        given = [found[number].text if number in found else "" for number in range(len(questions))]
        return AnswerScores.of(given, [[answer.text for answer in one.answers] for one in questions])

    def answers(self, part: str, most: int | None = None) -> dict[int, Span]:
        """What the present weights answer, by the number of the question. most: only so many batches."""
        store, data = self.stores[part], self.run.data
        found: dict[int, list[tuple[Any, BestRow]]] = {}
        for number, whole in enumerate(self.held[part].epoch()):
            if number == most:
                break
            batch = whole.map(lambda tensor: tensor.to(self.context.device))
            first_BT, last_BT = self.model.head.spans(self.model.encode(batch.inputs))
            rows = best_spans(first_BT, last_BT, batch.begin_B, batch.end_B, data.longest).rows()
            for example, row in zip(batch.examples, rows, strict=False):  # empty rows are no example
                window = store.windows[example], row
                found.setdefault(int(store.question_N[example]), []).append(window)
        threshold = 0.0 if data.no_answer else None
        texts = self.parts[part]
        return {number: best_answer(texts[number].context, rows, threshold) for number, rows in found.items()}

    def example(self) -> str:
        number, found = next(iter(self.answers("valid", most=1).items()))
        one = self.parts["valid"][number]
        wanted = one.answer.text if one.answer else NONE
        return f"{one.question} {_line(found.text) or NONE} (wanted: {wanted})"

    def shown(self, example: int) -> str:
        return str(self.parts["train"][int(self.stores["train"].question_N[example])].question)

    def guess(self) -> float:
        store = self.stores["train"]
        return (entropy(np.bincount(store.first_N)) + entropy(np.bincount(store.last_N))) / 2

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> AnswerBatch:
        ids = random_ids(run, size, device, min(run.data.window, run.max_length) // 2)
        ones = torch.ones_like(ids[:, 0])
        return AnswerBatch(TextInputs(ids).with_lengths(), ones, ones, ones, ones)

    @classmethod
    def read(
        cls, inputs: list[str], texts: list[str], lines: Callable[..., list[str]], columns: Sequence[str] = ()
    ) -> list[Any]:
        """The questions of SQuAD's .json or of a .jsonl, with or without answers; lines of any other file."""
        if len(inputs) != 1 or not is_questions(inputs[0]):
            return super().read(inputs, texts, lines, columns)
        refuse(columns, f"--text-column has no meaning for the task '{cls.name}'")
        refuse(texts, "--text and a file were both given: pass one of them")
        return [one.text for one in read_questions(inputs)]

    @classmethod
    def answer(cls, model: Reader, values: Sequence[Any], options: dict[str, Any]) -> Iterator[Prediction]:
        refuse_unknown(options, cls.options, "a model that finds answers in a text")
        if "context" in options:
            text = _whole(options["context"])
            refuse(
                any("\t" in str(value) for value in values), "with --context a line is a question alone, without a tab"
            )
            given: list[Any] = [(value, text) if value.strip() else () for value in values]
        else:
            given = [_pair(value, number) for number, value in enumerate(values, 1)]
        found = iter(model.find([one for one in given if one], **_how(options), truncate="truncate" in options))
        for pair in given:
            yield _prediction(pair, next(found)) if pair else Prediction("", {})

    @classmethod
    def evaluate(cls, model: Reader, files: Sequence[str], options: dict[str, Any]) -> Report:
        """Exact match and F1 of the answers that a model finds to these questions, by the rules of SQuAD's script."""
        refuse_unknown(options, cls.evaluation_options, "a model that finds answers in a text")
        asked = read_questions(list(files))
        found = model.find([one.text for one in asked], **_how(options), truncate=True)
        scores = AnswerScores.of([one.text for one in found], [[right.text for right in one.answers] for one in asked])
        rows = [f"{SHOWN.get(name, name):<22}  {value:.4f}" for name, value in scores.figures().items()]
        return Report({"questions": len(asked)} | scores.figures(), [*rows, f"{len(asked):,} questions"])


def _pair(value: Any, number: int) -> tuple[str, ...]:
    """A question and its text, from a line or from a file of questions."""
    if isinstance(value, tuple):
        return value
    try:
        return parts_of(value, number, "a question and a text", 2, 2)
    except InputError as error:
        raise InputError(f"{error}; or give the text with --context FILE") from None


def _how(options: dict[str, Any]) -> dict[str, Any]:
    return {"longest": options.get("max_answer_tokens"), "no_answer": options.get("no_answer")}


def _whole(file: str) -> str:
    """The text of a file."""
    text = "\n".join(lines_of(Path(file)))
    refuse(not text.strip(), f"file {file} has no text")
    return text


def _line(text: str) -> str:
    return " ".join(text.split())


def _prediction(pair: tuple[str, str], found: Span) -> Prediction:
    """The answer, its probability and its characters in the text."""
    values = asdict(found) | {"answer": found.text, "probability": round(found.probability, 6)}
    del values["text"]
    place = f"{found.start}-{found.end}" if found.text else ""
    line = f"{_line(found.text) or NONE}\t{found.probability:.4f}\t{place}"
    return Prediction(line, {"question": pair[0], "text": pair[1]} | values)

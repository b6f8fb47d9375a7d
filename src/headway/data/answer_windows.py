"""A question with its text as an encoder reads them: where the text is long, in overlapping windows.

B rows, T length.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from headway.batch import IGNORED, Batch, TextInputs, column
from headway.data.batches import Ints
from headway.data.labelled import FramedStore
from headway.data.questions import Answer, Question
from headway.errors import TooLong
from headway.text.framing import Framed, frame

ANY = 1 << 60  # more tokens than any text has
AT_ONCE = 512  # questions that are encoded together
STRIDE = 128  # as BERT's own script has them (Devlin et al. 2019, as released)
WINDOW = 384
LONGEST = 30


@dataclass(frozen=True)
class Window(Framed):
    """The question and a part of the text, whose tokens are those from `begin` to `end`."""

    begin: int = 0
    end: int = 0

    def ends(self, answer: Answer | None) -> tuple[int, int]:
        """The first and the last token of an answer; where the window does not have all of it, the first token of all
        twice."""
        inside = range(self.begin, self.end)
        if answer is None or self.spans[self.begin][0] > answer.start:
            return 0, 0
        stop = answer.start + len(answer.text)
        own = [at for at in inside if self.spans[at][1] > answer.start and self.spans[at][0] < stop]
        whole = own and self.spans[self.end - 1][1] >= stop
        return (own[0], own[-1]) if whole else (0, 0)

    def characters(self, text: str, first: int, last: int) -> tuple[int, int]:
        """Where the words that these tokens are of begin and end in the text; white space around them is left out."""
        numbers = self.words
        while first > self.begin and numbers[first] is not None and numbers[first - 1] == numbers[first]:
            first -= 1
        while last < self.end - 1 and numbers[last] is not None and numbers[last + 1] == numbers[last]:
            last += 1
        start, end = self.spans[first][0], self.spans[last][1]
        found = text[start:end]
        return start + len(found) - len(found.lstrip()), end - len(found) + len(found.rstrip())


def windows(framed: Framed, longest: int, stride: int = STRIDE) -> Iterator[Window]:
    """A framed pair of question and text as windows of at most `longest` tokens, each `stride` tokens of the text
    further on, or half of what it has room for where that is less. A question has at most half of the room."""
    asked, told = (_range(framed, part) for part in (0, 1))
    kept = min(len(asked), (longest - len(framed.ids) + len(asked) + len(told)) // 2)
    before = [*range(asked.start), *asked[:kept], *range(asked.stop, told.start)]
    behind = range(told.stop, len(framed.ids))
    room = longest - len(before) - len(behind)
    step = max(1, min(stride, room // 2))
    starts = range(0, max(len(told) - room, 0) + step, step)
    for start in starts:
        part = told[start : start + room]
        yield _window(framed, [*before, *part, *behind], len(before), len(part))


def _range(framed: Framed, part: int) -> range:
    """The tokens of the first or second text of a pair; they stand together."""
    places = [at for at, text in enumerate(framed.texts) if text == part]
    return range(places[0], places[-1] + 1) if places else range(0)


def _window(framed: Framed, places: list[int], begin: int, length: int) -> Window:
    types = framed.types and [framed.types[at] for at in places]
    spans, words = (tuple(values[at] for at in places) for values in (framed.spans, framed.words))
    return Window([framed.ids[at] for at in places], types, spans, words, begin=begin, end=begin + length)  # type: ignore[arg-type]


def framed_windows(
    tokenizer: Any, pairs: Sequence[tuple[str, str]], longest: int, stride: int, truncate: bool = False
) -> Iterator[list[Window]]:
    """The windows of each question and its text; none where the text has no token. A question that would take more
    than half of a window is an error, or with `truncate` is cut."""
    for start in range(0, len(pairs), AT_ONCE):
        some = frame(tokenizer, list(pairs[start : start + AT_ONCE]), ANY, spans=True)
        for number, one in enumerate(some, start + 1):
            asked, told = (len(_range(one, part)) for part in (0, 1))
            room = longest - len(one.ids) + asked + told
            if 2 * asked > room and not truncate:
                raise TooLong(
                    f"question {number} has {asked} tokens, at most {max(room // 2, 0)} leave room for the text: "
                    "shorten it"
                )
            yield list(windows(one, longest, stride)) if told and room > 1 else []


@dataclass(frozen=True)
class AnswerBatch(Batch):
    """first_B, last_B: the tokens that an answer begins and ends with; the first token of all where a window has none;
    IGNORED for an empty row. begin_B, end_B: the tokens of the text."""

    inputs: TextInputs
    first_B: Tensor = column(pad=IGNORED)
    last_B: Tensor = column(pad=IGNORED)
    begin_B: Tensor = column(default_factory=lambda: torch.zeros(0))
    end_B: Tensor = column(default_factory=lambda: torch.zeros(0))

    def counted(self) -> dict[str, float]:
        rows = int((self.first_B != IGNORED).sum())
        return {"loss": rows, "nll": rows}


class AnswerStore(FramedStore[AnswerBatch]):
    """Windows in memory. question_N: the number of each window's question. spans: whether they keep the characters of
    their tokens, to find answers in them."""

    def __init__(self, questions: Sequence[Question], found: Iterator[list[Window]], pad: int, spans: bool) -> None:
        kept, rows = list[Window](), list[tuple[int, ...]]()
        for number, (question, some) in enumerate(zip(questions, found, strict=True)):
            for window in some:
                rows.append((number, *window.ends(question.answer), window.begin, window.end))
                kept.append(_compact(window, spans))
        super().__init__(kept, pad)
        self.windows = kept
        table = np.array(rows, np.int64).reshape(-1, 5)
        self.question_N, self.first_N, self.last_N, self.begin_N, self.end_N = table.T

    def collate(self, examples: Ints, lengths: tuple[int, ...]) -> AnswerBatch:
        every = (self.first_N, self.last_N, self.begin_N, self.end_N)
        columns = (torch.from_numpy(values_N[examples]) for values_N in every)
        return AnswerBatch(self.inputs(examples, lengths[0]), *columns, examples=tuple(examples.tolist()))


def _compact(window: Window, spans: bool) -> Window:
    """With numbers of four bytes and one byte each."""
    ids, types = array("i", window.ids), window.types and array("b", window.types)
    found = replace(window, ids=cast(list[int], ids), types=cast("list[int] | None", types))
    return found if spans else replace(found, spans=(), words=())

"""An encoder that finds answers: the best span of a text, over all its windows.

B rows, T length, N the most tokens of an answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.batch import TextInputs
from headway.card import Loaded
from headway.data.answer_windows import LONGEST, STRIDE, Window, framed_windows
from headway.device import sent
from headway.errors import TooLong, refuse
from headway.generate.encoder import Encoder
from headway.generate.one_or_many import is_several, one_or_many

Pair = tuple[str, str]
BestRow = tuple[int, int, float, float]
AT_ONCE = 512  # questions whose windows are in memory


@dataclass(frozen=True)
class Span:
    """A part of a text, where it stands there, and how probable it is that it answers the question. No text: there is
    no answer."""

    text: str
    start: int
    end: int
    probability: float


class Best(NamedTuple):
    """Of each window the first and the last token of its best answer, and log p of that and of "no answer"."""

    first_B: Tensor
    last_B: Tensor
    answer_B: Tensor
    none_B: Tensor

    def rows(self) -> list[BestRow]:
        return list(zip(*(values_B.tolist() for values_B in self), strict=True))


def best_spans(first_BT: Tensor, last_BT: Tensor, begin_B: Tensor, end_B: Tensor, longest: int) -> Best:
    """p(i, j) = p_first(i)·p_last(j) for i ≤ j < i + longest, both over the tokens of the text (from `begin` to `end`)
    and the first token of all, which stands for "no answer" (Devlin et al. 2019, 4.3)."""
    at_T = torch.arange(first_BT.shape[1], device=first_BT.device)
    inside_BT = (at_T >= begin_B[:, None]) & (at_T < end_B[:, None])
    shut_BT = ~inside_BT & (at_T > 0)
    p_first_BT, p_last_BT = (
        logits_BT.float().masked_fill(shut_BT, -torch.inf).log_softmax(1) for logits_BT in (first_BT, last_BT)
    )
    none_B = p_first_BT[:, 0] + p_last_BT[:, 0]
    outside_BT = ~inside_BT
    p_first_BT, p_last_BT = (p_BT.masked_fill(outside_BT, -torch.inf) for p_BT in (p_first_BT, p_last_BT))
    count = min(longest, first_BT.shape[1])
    behind_BTN = F.pad(p_last_BT, (0, count - 1), value=-torch.inf).unfold(1, count, 1)
    answer_B, at_B = (p_first_BT[..., None] + behind_BTN).flatten(1).max(1)
    return Best(at_B // count, at_B // count + at_B % count, answer_B, none_B)


def best_answer(text: str, found: Sequence[tuple[Window, BestRow]], no_answer: float | None) -> Span:
    """The most probable answer over the windows of a text, in whole words. no_answer: there is none where even in the
    window that doubts it most log p("no answer") is above log p(answer) by more than this; None: there always is one.
    """
    window, (first, last, answer, _) = max(found, key=lambda one: one[1][2])
    none = min(one[3] for _, one in found)
    if no_answer is not None and none - answer > no_answer:
        return Span("", 0, 0, math.exp(none))
    start, end = window.characters(text, first, last)
    return Span(text[start:end], start, end, math.exp(answer))


class Reader(Encoder):
    """An encoder that finds answers: `reader.find(("Who sat?", "The cat sat on the mat."))`, or a list of such pairs.

    Settings that are not given are those that the model was trained with."""

    def __init__(self, loaded: Loaded, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(loaded, device, dtype)
        data = _settings(loaded.card.run)
        self.window = min(_count(data, "window", self.limit), self.limit)
        self.stride, self.longest = _count(data, "stride", STRIDE), _count(data, "longest", LONGEST)
        self.no_answer: float | None = 0.0 if data.get("no_answer") is True else None

    @one_or_many(is_several)
    def find(
        self, pairs: Sequence[Pair], *, longest: int | None = None, no_answer: float | None = None,
        truncate: bool = False,
    ) -> list[Span]:  # fmt: skip
        """The best answer to each question in the text that comes with it, of at most `longest` tokens; a long text is
        read in overlapping windows. no_answer: how much more probable, in log p, "no answer" must be to be the answer.
        """
        threshold = self.no_answer if no_answer is None else no_answer
        found: list[Span] = []
        windows = self._windows(pairs, truncate)
        while some := list(islice(windows, AT_ONCE)):
            texts = [text for _, text in pairs[len(found) : len(found) + len(some)]]
            found += self._found(texts, some, longest or self.longest, threshold)
        return found

    def _windows(self, pairs: Sequence[Pair], truncate: bool) -> Iterator[list[Window]]:
        try:
            for number, some in enumerate(
                framed_windows(self.tokenizer, pairs, self.window, self.stride, truncate), 1
            ):  # fmt: skip
                refuse(not some, f"pair {number} has no text to find an answer in")
                yield some
        except TooLong as error:
            raise TooLong(f"{error}, or have long questions cut (--truncate)") from None

    def _found(
        self, texts: list[str], windows: list[list[Window]], longest: int, threshold: float | None
    ) -> list[Span]:  # fmt: skip
        flat = [window for some in windows for window in some]

        def answer(rows: list[int], inputs: TextInputs) -> list[BestRow]:
            places = torch.tensor([[flat[row].begin, flat[row].end] for row in rows])
            first_BT, last_BT = self.model.head.spans(self.model.encode(inputs))
            begin_B, end_B = sent(places, self.device).unbind(1)
            return best_spans(first_BT, last_BT, begin_B, end_B, longest).rows()

        best = iter(zip(flat, self._answers(list(flat), answer), strict=True))
        return [
            best_answer(text, [next(best) for _ in some], threshold) for text, some in zip(texts, windows, strict=True)
        ]


def _settings(run: Any) -> dict[str, Any]:
    """How the data of the run that trained a model were read, where its card has one."""
    found = run.get("data") if isinstance(run, dict) else None
    return found if isinstance(found, dict) else {}


def _count(settings: dict[str, Any], name: str, default: int) -> int:
    value = settings.get(name)
    return value if isinstance(value, int) and value > 0 else default

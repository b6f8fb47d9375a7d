"""An encoder: texts in; their vectors, their labels, or the words that may stand in their gaps out.

B batch, T length, D width, V vocabulary, L labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.batch import Batch, TextInputs
from headway.card import Loaded
from headway.data.labelled import padded_letters
from headway.device import sent
from headway.errors import InputError, TooLong
from headway.generate.cores import on_every_core
from headway.generate.one_or_many import is_text, one_or_many
from headway.generate.shown import Shown
from headway.generate.tracing import Answering, check_one, checked, nexts, token_track, trace_of, trimmed
from headway.models.head import Head
from headway.models.heads import Vectors
from headway.nn import tap
from headway.nn.pooling import Pooling, pool
from headway.nn.tap import chosen
from headway.text.framing import Framed, Text, frame
from headway.traces import Trace, Track

GAP = "[MASK]"  # what a person may write for a gap, whatever the model's own sign for it is
BUDGET = {"cpu": 1024, "cuda": 1 << 16}  # tokens of a batch, padding counted
# What a method needs of the head.
NEEDS = {
    "fill": "words", "classify": "classes", "tag": "tags", "find": "spans", "choose": "choices", "segment": "pixels",
    "detect": "boxes", "outline": "objects",
}  # fmt: skip
Progress = Callable[[int], None]
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Guess:
    """A word for a gap, or a label for a text."""

    text: str
    probability: float


@dataclass(frozen=True)
class Tagged:
    """A word of a text, where it stands there, and its label."""

    text: str
    start: int
    end: int
    label: str
    probability: float


class HeadedModel(Shown):
    """Abstract. An encoder and its head, as they were read from a folder."""

    def __init__(self, loaded: Loaded, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        """`labels`: of texts, of tokens or of pictures, by their numbers; none where the model gives no labels."""
        self.model: Any = loaded.model.to(device, dtype).eval()
        self.card, self.head, self.device, self.dtype = loaded.card, loaded.card.head, device, dtype
        self.labels: tuple[str, ...] = getattr(self.head, "labels", ())

    def asked(self) -> list[str]:
        """A head has no answer for some of them."""
        made = type(self.model.head)
        lacks = {name for name, needs in NEEDS.items() if getattr(made, needs) is getattr(Head, needs)}
        return [name for name in super().asked() if name not in lacks]

    def guesses(self, inputs: Batch) -> list[list[Guess]]:
        """The labels of each row, the most probable first."""
        share_BL = self.model.head.classes(self.model.encode(inputs))
        named = ([Guess(*one) for one in zip(self.labels, shares, strict=True)] for shares in share_BL.tolist())
        return [sorted(row, key=lambda guess: -guess.probability) for row in named]


class Encoder(HeadedModel, Answering):
    """`headway.load(folder)` gives one: `encoder.embed("How old are you?")`, or a list of texts; `fill`,
    `classify`, `tag`."""

    takes: ClassVar = "pair"  # besides a text: a second one, read as one with the first

    def __init__(self, loaded: Loaded, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        """`pooled`: how the model declares that a text's vector is made; `limit`: the most tokens of a text, its frame
        counted."""
        super().__init__(loaded, device, dtype)
        self.tokenizer = loaded.source_tokenizer
        self.tokenizers = self.tokenizer, self.tokenizer
        self.pooled: Vectors = self.head if self.head.name == Vectors.name else Vectors()
        self.limit: int = min(self.pooled.longest or self.model.context, self.model.context)

    def asked(self) -> list[str]:
        fills = getattr(self.tokenizer, "mask", None) is not None
        return [name for name in super().asked() if fills or name != "fill"]

    @one_or_many(is_text)
    def embed(
        self, texts: Sequence[str], *, pooling: Pooling | None = None, unit: bool | None = None, truncate: bool = False,
        progress: Progress | None = None,
    ) -> NDArray[np.float32]:  # fmt: skip
        """A vector of a text (width), or of each text of a list, in order: (texts, width). `pooling` and `unit` as the
        model declares them, unless given; what it declares to stand before a text is put there."""
        how = pooling or self.pooled.pooling
        if how is None:
            raise InputError("this model does not say how a text's vector is made: choose mean, first, max (--pooling)")
        scaled = self.pooled.unit if unit is None else unit
        prompt = self.pooled.prompt
        framed = self._framed([prompt + text for text in texts] if prompt else texts, truncate)
        vectors = np.empty((len(framed), self.model.encoder.width), np.float32)

        def answer(rows: list[int], inputs: TextInputs) -> list[None]:
            encoded = self.model.encode(inputs)
            pooled_BD = pool(encoded.x_BTD, encoded.lengths_B, how, scaled)
            vectors[rows] = pooled_BD.float().cpu().numpy()
            return [None] * len(rows)

        self._answers(framed, answer, progress, side_by_side=self.device.type == "cpu")
        return vectors

    @one_or_many(is_text)
    def fill(self, texts: Sequence[str], *, top: int = 5, truncate: bool = False) -> list[list[list[Guess]]]:
        """For each gap of each text the `top` words that may stand there. A gap is written [MASK], or as the model's
        own tokenizer spells it; several gaps of one text are filled each for itself."""
        head = self.model.head
        head.words(torch.empty(0, 1, self.model.encoder.width, device=self.device))
        mask = getattr(self.tokenizer, "mask", None)
        if mask is None:
            raise InputError("the tokenizer of this model has no sign for a gap: it was not made to fill them")
        sign = str(self.tokenizer.settings.mask)
        framed = self._framed([text.replace(GAP, sign) for text in texts], truncate)
        for number, one in enumerate(framed, 1):
            if mask not in one.ids:
                cut = " in the part that is read" if truncate and sign in texts[number - 1] else ""
                raise InputError(f"text {number} has no gap{cut}: write {GAP} where a word is missing")

        def answer(rows: list[int], inputs: TextInputs) -> list[list[list[Guess]]]:
            found: list[list[list[Guess]]] = [[] for _ in rows]
            hidden_BTD = self.model.encode(inputs).x_BTD
            row_G, place_G = (inputs.ids_BT == mask).nonzero(as_tuple=True)
            share_GV = head.words(hidden_BTD[row_G, place_G][:, None])[:, 0].float().softmax(-1)
            best_GK, id_GK = share_GV.topk(min(top, share_GV.shape[1]))
            for row, shares, ids in zip(row_G.tolist(), best_GK.tolist(), id_GK.tolist(), strict=True):
                found[row].append([Guess(self._spelled(i), share) for i, share in zip(ids, shares, strict=True)])
            return found

        return self._answers(framed, answer)

    @one_or_many(is_text)
    def classify(self, texts: Sequence[Text], *, truncate: bool = False) -> list[list[Guess]]:
        """The labels of each text, the most probable first; of a model that gives numbers, those. In a list also pairs
        of texts."""
        return self._answers(self._framed(texts, truncate), lambda _, inputs: self.guesses(inputs))

    @one_or_many(is_text)
    def tag(self, texts: Sequence[str], *, truncate: bool = False) -> list[list[Tagged]]:
        """The words of each text with their labels; a word has that of its first token."""
        return self.tagged(texts, self._framed(texts, truncate, spans=True))

    def tagged(self, texts: Sequence[str], framed: list[Framed]) -> list[list[Tagged]]:
        """`tag` of texts that are encoded already, with spans and the numbers of their words."""

        def answer(rows: list[int], inputs: TextInputs) -> list[list[Tagged]]:
            starts_BT = torch.zeros(inputs.ids_BT.shape, dtype=torch.bool)
            for number, row in enumerate(rows):
                starts_BT[number, : len(framed[row].words)] = torch.tensor(framed[row].starts)
            label_BT, share_BT = self.model.head.tags(self.model.encode(inputs), sent(starts_BT, self.device))
            found = zip(rows, share_BT.tolist(), label_BT.tolist(), strict=True)
            return [list(self._tagged(texts[row], framed[row], shares, labels)) for row, shares, labels in found]

        return self._answers(framed, answer)

    def _tagged(self, text: str, framed: Framed, shares: list[float], labels: list[int]) -> Iterator[Tagged]:
        numbers = list(framed.words)
        for at in (place for place, first in enumerate(framed.starts) if first):
            last = next((end for end in range(at, len(numbers)) if numbers[end] != numbers[at]), len(numbers))
            start, end = framed.spans[at][0], framed.spans[last - 1][1]
            yield Tagged(text[start:end], start, end, self.labels[labels[at]], shares[at])

    @torch.inference_mode()
    def trace(
        self, text: str, pair: str | None = None, *, layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None, tensors: Sequence[str] | str | None = None, top: int = 5,
    ) -> Trace:  # fmt: skip
        """What the model computes while this text, or this pair of texts, is read; of a model that fills gaps with the
        `top` words for each place in `about["next"]`. `layers`, `heads`, `tensors` keep it small (see `headway.trace`).
        """
        check_one(text)
        check_one(pair)
        if not isinstance(text, str) or not text.strip() or (pair is not None and not pair.strip()):
            raise InputError("there is nothing to trace: give a text that is not empty")
        choice = checked(self.model, chosen(layers, heads, tensors))
        [framed] = self._framed([text if pair is None else (text, pair)], truncate=None, spans=True)
        with tap.record(self.model, choice) as recorder:
            answer = self.model(self._inputs([framed]))
        logits_BTV, fills = answer[0] if isinstance(answer, tuple) else answer, "vocabulary" in self.model.head.axes
        about, more = nexts(logits_BTV[0], self.tokenizer, framed.ids, top) if fills else ({}, {})
        track = self._track(framed, text, pair)
        return trace_of(self.model, recorder, [track], name=self.name, about=about, more=more)

    def _track(self, framed: Framed, text: str, pair: str | None) -> Track:
        """The second text of a pair stands behind the first, in a line of its own."""
        special = [word is None for word in framed.words]
        second, whole = framed.types or [0] * len(special), text
        if pair is not None:
            whole = f"{text}\n{pair}"
            if framed.types is None:  # it then begins behind the first sign of the frame in the middle
                second = list(accumulate(now and not before for before, now in pairwise([True, *special])))
        spans = [
            (0, 0) if sign else trimmed(whole, start + (len(text) + 1) * bool(late), end + (len(text) + 1) * bool(late))
            for sign, late, (start, end) in zip(special, second, framed.spans, strict=True)
        ]
        return token_track("tokens", self.tokenizer, framed.ids, special, whole, spans)

    def framed(self, texts: Sequence[str], truncate: bool = False) -> list[Framed]:
        """The texts as the model reads them, with the characters of each token, for `tagged`."""
        return self._framed(texts, truncate, spans=True)

    def _framed(self, texts: Sequence[Any], truncate: bool | None, spans: bool = False) -> list[Framed]:
        """`truncate` None: nobody was offered to have long texts cut, and nobody is told of it."""
        try:
            letters = self.model.encoder.letters
            return frame(
                self.tokenizer, texts, self.limit, truncate=bool(truncate), spans=spans, letters=letters
            )  # fmt: skip
        except TooLong as error:
            if truncate is None:
                raise
            raise TooLong(f"{error}, or have long texts cut (--truncate)") from None

    def _spelled(self, entry: int) -> str:
        """A word as it is read; a token that is no word (a special, half a character) as the vocabulary spells it."""
        text = str(self.tokenizer.decode([entry])).strip()
        return text or str(self.tokenizer.tokens([entry])[0])

    def _answers(
        self, framed: list[Framed], answer: Callable[[list[int], TextInputs], list[Answer]],
        progress: Progress | None = None, side_by_side: bool = False,
    ) -> list[Answer]:  # fmt: skip
        """What `answer` gives each text, in order. Texts of nearly equal length are read together, the longest first;
        `side_by_side`: batches on a core each."""
        order = sorted(range(len(framed)), key=lambda i: -len(framed[i].ids))
        plan, at, budget = [], 0, BUDGET[self.device.type]
        while at < len(order):
            plan.append(order[at : at + max(1, budget // len(framed[order[at]].ids))])
            at += len(plan[-1])

        @torch.inference_mode()
        def work(rows: list[int]) -> list[Answer]:
            return answer(rows, self._inputs([framed[i] for i in rows]))

        works = [partial(work, rows) for rows in plan]
        found: dict[int, Answer] = {}
        for rows, answers in zip(plan, on_every_core(works) if side_by_side else (one() for one in works), strict=True):
            found.update(zip(rows, answers, strict=True))
            if progress:
                progress(len(found))
        return [found[i] for i in range(len(framed))]

    def _inputs(self, framed: list[Framed]) -> TextInputs:
        lengths, pad = [len(one.ids) for one in framed], self.tokenizer.pad or 0
        width = max(lengths)

        def padded(rows: list[list[int]], value: int) -> Tensor:
            return sent(torch.tensor([row + [value] * (width - len(row)) for row in rows]), self.device)

        lengths_B = None if min(lengths) == width else sent(torch.tensor(lengths), self.device)
        typed = any(one.types is not None for one in framed)
        types_BT = padded([one.types or [0] * len(one.ids) for one in framed], 0) if typed else None
        letters_BTC = padded_letters(framed, width)
        spelled_BTC = None if letters_BTC is None else sent(letters_BTC, self.device)
        return TextInputs(padded([one.ids for one in framed], pad), lengths_B, types_BT, spelled_BTC)

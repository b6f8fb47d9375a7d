"""Gaps in texts: some tokens are chosen, and most of them are hidden (Devlin et al. 2019, 3.1).

B rows, T length, P places of a row that are predicted, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from headway.batch import IGNORED, Batch, TextInputs, column
from headway.data.batches import Ints
from headway.errors import refuse

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """Texts with gaps. places_BP, labels_BP: of each row as many places, and what stood there; where a row has fewer,
    the label is IGNORED. pairs_B: whether the second text of a row follows the first (0) or is from elsewhere (1)."""

    inputs: TextInputs
    places_BP: Tensor = column()
    labels_BP: Tensor = column(pad=IGNORED)
    pairs_B: Tensor | None = column(pad=IGNORED, default=None)
    read: int = 0

    def counted(self) -> dict[str, float]:
        words = max(1, int((self.labels_BP != IGNORED).sum()))
        counts: dict[str, float] = {"loss": words, "nll": words, "right": words, "tokens": self.read}
        if self.pairs_B is not None:
            pairs = max(1, int((self.pairs_B != IGNORED).sum()))
            counts |= {"pair": pairs, "pair_right": pairs}
        return counts


@dataclass(frozen=True)
class Shares:
    """chosen: of all tokens, those that are predicted. mask, random: of those, the ones that the mask stands for, and
    the ones that another token stands for; the others stay as they are. whole_words: all tokens of a word are chosen,
    or none."""

    chosen: float = 0.15
    mask: float = 0.8
    random: float = 0.1
    whole_words: bool = False

    def __post_init__(self) -> None:
        refuse(not 0 < self.chosen <= 1, f"data.mask.chosen must be above 0 and at most 1, not {self.chosen}")
        refuse(
            not (self.mask >= 0 and self.random >= 0 and self.mask + self.random <= 1),
            f"data.mask.mask and data.mask.random must be 0 or more and at most 1 together, not {self.mask} and "
            f"{self.random}",
        )


class Masking:
    """Chooses tokens and hides them. `plain`: the ids that are no special tokens. `inside`: those of them that stand
    inside a word, not at its beginning."""

    def __init__(self, shares: Shares, vocabulary: int, mask: int, plain: Sequence[int], inside: Sequence[int]) -> None:
        self.shares, self.mask, self.plain = shares, mask, np.array(plain, np.int64)
        self.plain_V, self.inside_V = np.zeros(vocabulary, bool), np.zeros(vocabulary, bool)
        self.plain_V[self.plain] = True
        self.inside_V[list(inside)] = True

    @classmethod
    def of(cls, shares: Shares, tokenizer: Any) -> Masking:
        special = {tokenizer.inner.token_to_id(text) for text in tokenizer.settings.specials()}
        plain = [i for i in range(len(tokenizer)) if i not in special and tokenizer.inner.id_to_token(i) is not None]
        # A token stands inside a word if it continues the word of a token before it.
        inside = [i for i in plain if tokenizer.words([plain[0], i])[1][1] == 0] if shares.whole_words else []
        return cls(shares, len(tokenizer), tokenizer.mask, plain, inside)

    def hide(self, ids_BT: Ints, random: np.random.Generator) -> tuple[Ints, Ints, Ints]:
        """The texts with gaps, the places of each row that are predicted, and what stood there. Every row has as
        many places as a full one; at least one is chosen."""
        most = max(1, round(self.shares.chosen * ids_BT.shape[1]))
        there_BT = self.plain_V[ids_BT]
        wanted_B = np.maximum(1, np.rint(self.shares.chosen * there_BT.sum(1))).astype(np.int64)
        choose = self._words if self.shares.whole_words else self._tokens
        places_BP, chosen_BP = choose(ids_BT, there_BT, np.minimum(wanted_B, most), most, random)
        labels_BP = np.take_along_axis(ids_BT, places_BP, 1)
        drawn_BP = random.random(places_BP.shape)
        others_BP = self.plain[random.integers(0, len(self.plain), places_BP.shape)]
        shown_BP = np.where(drawn_BP < self.shares.mask + self.shares.random, others_BP, labels_BP)
        shown_BP = np.where(drawn_BP < self.shares.mask, self.mask, shown_BP)
        hidden_BT = ids_BT.copy()
        np.put_along_axis(hidden_BT, places_BP, np.where(chosen_BP, shown_BP, labels_BP), 1)
        return hidden_BT, np.where(chosen_BP, places_BP, 0), np.where(chosen_BP, labels_BP, IGNORED)

    def _tokens(
        self, ids_BT: Ints, there_BT: Bools, wanted_B: Ints, most: int, random: np.random.Generator
    ) -> tuple[Ints, Bools]:
        drawn_BT = np.where(there_BT, random.random(ids_BT.shape), 2.0)
        places_BP = np.argsort(drawn_BT, 1, kind="stable")[:, :most]
        chosen_BP = np.arange(most) < wanted_B[:, None]
        return places_BP, chosen_BP & np.take_along_axis(there_BT, places_BP, 1)

    def _words(
        self, ids_BT: Ints, there_BT: Bools, wanted_B: Ints, most: int, random: np.random.Generator
    ) -> tuple[Ints, Bools]:
        """Word after word in a random order; one that would be too much is passed over."""
        rows, length = ids_BT.shape
        goes_on_BT = self.inside_V[ids_BT] & there_BT
        goes_on_BT[:, 1:] &= there_BT[:, :-1]
        goes_on_BT[:, 0] = False
        first_BT = np.maximum.accumulate(np.where(goes_on_BT, 0, np.arange(length)), 1)
        number_BT = first_BT + length * np.arange(rows)[:, None]
        size_BT = np.bincount(number_BT.ravel(), minlength=rows * length)[number_BT]
        drawn_BT = np.take_along_axis(random.random(ids_BT.shape), first_BT, 1)
        order_BT = np.argsort(np.where(there_BT, drawn_BT, 2.0), 1, kind="stable")
        begins_BT, size_BT, there_BT = (
            np.take_along_axis(of, order_BT, 1) for of in (~goes_on_BT, size_BT, there_BT)
        )  # fmt: skip
        used_B, taking_B, taken_BT = np.zeros(rows, np.int64), np.zeros(rows, bool), np.zeros((rows, length), bool)
        for at in range(length):
            fits_B = there_BT[:, at] & (used_B + size_BT[:, at] <= wanted_B)
            taking_B = np.where(begins_BT[:, at], fits_B, taking_B)
            taken_BT[:, at] = taking_B
            used_B += taking_B
        front_BP = np.argsort(~taken_BT, 1, kind="stable")[:, :most]
        return np.take_along_axis(order_BT, front_BP, 1), np.take_along_axis(taken_BT, front_BP, 1)

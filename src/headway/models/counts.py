"""Counting: every n-gram of a text with how often it stands there, for all orders up to n, without a loop over tokens.

An n-gram is known by (row of its first words in the order below, its last word), packed into one integer. So the
n-grams of order m are the distinct pairs of a row of order m − 1 and the word behind it: one sort for each order.

T length of the text, N n-grams of one order, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Grams:
    """The n-grams of one order, sorted by `keys_N` = row of the first words · V + last word.

    shorter_N: row of the n-gram without its first word, in the order below.
    opens_N: its first word is the boundary, so no word can ever stand before it.
    """

    keys_N: Ints
    counts_N: Ints
    shorter_N: Ints
    opens_N: Flags
    vocabulary: int

    def __len__(self) -> int:
        return len(self.keys_N)

    @cached_property
    def contexts_N(self) -> Ints:
        """Row of the first words, in the order below."""
        return self.keys_N // self.vocabulary

    @cached_property
    def words_N(self) -> Ints:
        return self.keys_N % self.vocabulary


def count_grams(ids_T: Ints, vocabulary: int, order: int, boundary: int) -> list[Grams]:
    """The n-grams of the orders 1 … `order`. The first id is only a history: it is not counted.

    `boundary` ends one text and begins the next: as the last word of an n-gram it is an end, as the first a beginning
    (deck E's STOP and *), and in between it never stands. Order 1 has a row for each entry of the vocabulary.
    """
    counts_V = np.bincount(ids_T[1:], minlength=vocabulary)
    nowhere = np.zeros(vocabulary, np.int64)
    found = [Grams(np.arange(vocabulary), counts_V, nowhere, np.zeros(vocabulary, bool), vocabulary)]
    ends_T = ids_T == boundary
    rows_T = ids_T.copy()  # of the n-gram of the order below that ends at each place, −1 where there is none
    opens_C = np.arange(vocabulary) == boundary  # of the n-grams of the order below, as histories
    for above_one in range(1, order):
        # A history that ends with the boundary is the boundary alone.
        histories_T = rows_T if above_one == 1 else np.where(ends_T, -1, rows_T)
        places = 1 + np.flatnonzero(histories_T[:-1] >= 0)
        packed = histories_T[places - 1] * vocabulary + ids_T[places]
        keys_N, counts_N, rows, one_N = _distinct(packed)
        grams = Grams(keys_N, counts_N, rows_T[places[one_N]], opens_C[keys_N // vocabulary], vocabulary)
        found.append(grams)
        rows_T = np.full(len(ids_T), -1)
        rows_T[places] = rows
        opens_C = grams.opens_N
    return found


def _distinct(packed: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """The distinct ones, sorted; how often each is there; of every one its row among them; a place of each.

    What np.unique gives, but for which place: it takes the first, and needs a sort more than twice as slow for that.
    """
    order = np.argsort(packed)
    in_order = packed[order]
    is_new = np.append(True, in_order[1:] != in_order[:-1])[: len(packed)]
    starts = np.flatnonzero(is_new)
    rows = np.empty_like(packed)
    rows[order] = np.cumsum(is_new) - 1
    return in_order[starts], np.diff(np.append(starts, len(packed))), rows, order[starts]


def continuations(grams: Grams, longer: Grams) -> Ints:
    """N₁₊(• u): how many different words stand before each n-gram u (Kneser and Ney 1995). Before one that opens a
    text there can be none, and its count stands in (Chen and Goodman 1998)."""
    before_N = np.bincount(longer.shorter_N, minlength=len(grams))
    return np.where(grams.opens_N, grams.counts_N, before_N)

"""The cross-attention behind a translation, over tokens and over words.

L layers, H heads, T target tokens, S source tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.errors import InputError
from headway.notebook import heat_table
from headway.traces import Trace


@dataclass(frozen=True)
class Attention:
    """Cross-attention of every layer and head along one hypothesis.

    weights_LHTS: row t holds where the model looked when it wrote target token t; the last row and the last
    column belong to the end of sentence. `*_owner` says which word a token belongs to, −1 for the end.
    """

    weights_LHTS: NDArray[np.float32]
    source_words: list[str]
    target_words: list[str]
    source_owner: list[int]
    target_owner: list[int]

    def __repr__(self) -> str:
        layers, heads, *_ = self.weights_LHTS.shape
        words = f"{len(self.target_words)} target words, {len(self.source_words)} source words"
        return f"Attention({layers} layers, {heads} heads, {words}: by_word(), weights_LHTS)"

    def _repr_html_(self) -> str:
        return heat_table(self.by_word(), self.target_words, self.source_words, "by_word(): target word → source word")

    @classmethod
    def of(cls, trace: Trace) -> Attention:
        """As a translator's trace has it. What the decoder reads at place t is what it wrote at t − 1: row t is of the
        token that it then writes."""
        source, target = trace.tracks["source"], trace.tracks["target"]
        owners = list(source.words or ()), [*(target.words or ())[1:], -1]
        return cls(trace.attention("decoder", "cross"), list(source.spelled), list(target.spelled), *owners)

    def by_word(self, layer: int | None = None, head: int | None = None) -> NDArray[np.float64]:
        """(target words, source words), of one head or the mean over heads.

        Without a choice: the mean head of the layer before the last, which aligns best in most translators
        (Garg et al. 2019).
        """
        layer = max(0, len(self.weights_LHTS) - 2) if layer is None else layer
        weights_HTS = self.weights_LHTS[layer]
        weights_TS = weights_HTS.mean(0) if head is None else weights_HTS[head]
        return merge_words(weights_TS, self.target_owner, self.source_owner)


def merge_words(weights_TS: np.ndarray, target_words: Sequence[int], source_words: Sequence[int]) -> np.ndarray:
    """Attention over words from attention over tokens; leading axes such as layers and heads are kept.

    The weight of a source word is the sum over its tokens, since attention spreads over them. That of a
    target word is the mean over its tokens, since each of them attends once. A token whose word is -1 is
    left out; rows are not brought back to sum to 1, so what went to the end token shows as missing. A word
    without any token has a row or a column of zeros.
    """
    weights_TS = np.asarray(weights_TS, dtype=np.float64)
    if weights_TS.ndim < 2 or weights_TS.shape[-2:] != (len(target_words), len(source_words)):
        raise InputError(
            f"attention of shape {weights_TS.shape} does not fit {len(target_words)} target "
            f"and {len(source_words)} source tokens; its last two axes must be target and source"
        )
    target_TW, source_SV = _membership(target_words), _membership(source_words)
    pieces_W = np.maximum(target_TW.sum(axis=0), 1)
    return (target_TW / pieces_W).T @ weights_TS @ source_SV


def _membership(words: Sequence[int]) -> np.ndarray:
    """member[token, word] = 1 where the token belongs to the word; the row of a -1 is empty."""
    index = np.asarray(words, dtype=np.int64).reshape(-1)
    if index.size and index.min() < -1:
        raise InputError(f"word index {index.min()} of a token; give 0 and up, or -1 for a token of no word")
    return (index[:, None] == np.arange(index.max(initial=-1) + 1)).astype(np.float64)

"""Memories of sentences, and hops over them (Weston et al. 2015; Sukhbaatar et al. 2015).

B batch, S sentences, W words of a sentence, D width, N any number of axes, R sums of words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from headway.nn import tap
from headway.nn.attention import PAIRS, attend, dot

NULL = 0  # the symbol that fills up sentences; its vector is 0


class SentenceEncoding(Protocol):
    """A sentence's vector from those of its words: R sums of the words, each with weights of its own, then one vector
    of them. The weights do not depend on the width, so a sentence may be counted before any table is known."""

    def weights(self, there_NW: Tensor) -> Tensor:
        """NRW; `there_NW`: 1 where there is a word, else 0."""

    def join(self, x_NRD: Tensor) -> Tensor:
        """ND."""


def bag_weights(there_NW: Tensor) -> Tensor:
    """Σⱼ xⱼ: the order of the words is lost (Sukhbaatar et al. 2015, 4.1, BoW)."""
    return there_NW[..., None, :]


def position_weights(there_NW: Tensor, words: int = 0) -> Tensor:
    """Of Σⱼ lⱼ ⊙ xⱼ with lₖⱼ = (1 − j/J) − (k/d)(1 − 2j/J), word j of J, unit k of d, counted from 1 (Sukhbaatar et
    al. 2015, 4.1, PE). As l is a straight line in k, two weighted sums of the words are enough: its level and its
    slope. `words`: J; 0: as many as each sentence has."""
    place_NW = there_NW.cumsum(-1) / (words or there_NW.sum(-1, keepdim=True).clamp(min=1))
    return torch.stack([1 - place_NW, 1 - 2 * place_NW], -2) * there_NW[..., None, :]


def position_joined(x_N2D: Tensor) -> Tensor:
    """level − (k/d) slope."""
    level_ND, slope_ND = x_N2D.unbind(-2)
    width = x_N2D.shape[-1]
    unit_D = torch.arange(1, width + 1, device=x_N2D.device, dtype=x_N2D.dtype) / width
    return level_ND - unit_D * slope_ND


class SentenceEmbedding(nn.Module):
    """mᵢ = encoding(A xᵢ₁, A xᵢ₂ …) + T(i), T learned for each time i, 1 for the last sentence before the question
    (Sukhbaatar et al. 2015, 4.1). What is only filled up is 0."""

    def __init__(self, vocabulary: int, width: int, encoding: SentenceEncoding, times: int = 0) -> None:
        """`times`: how many T has; 0: there is no T."""
        super().__init__()
        self.encoding = encoding
        self.table = nn.Embedding(vocabulary, width)
        self.times = nn.Embedding(times, width) if times else None

    def forward(self, words_NW: Tensor, times_N: Tensor | None = None) -> Tensor:
        """`times_N`: 0 where there is no sentence."""
        x_NWD = self.table(words_NW)
        m_ND = self.encoding.join(self.encoding.weights((words_NW != NULL).to(x_NWD.dtype)) @ x_NWD)
        if self.times is None or times_N is None:
            return m_ND
        return m_ND + self.times((times_N - 1).clamp(min=0)) * (times_N > 0)[..., None].to(m_ND.dtype)


class AddedQuery(nn.Module):
    """u + o (Sukhbaatar et al. 2015, 2.2)."""

    def forward(self, u_BD: Tensor, o_BD: Tensor) -> Tensor:
        return u_BD + o_BD


class MappedQuery(nn.Module):
    """Hu + o (Sukhbaatar et al. 2015, 2.2, layer-wise)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(width, width, bias=False)

    def forward(self, u_BD: Tensor, o_BD: Tensor) -> Tensor:
        mapped_BD: Tensor = self.map(u_BD)
        return mapped_BD + o_BD


class ReplacedQuery(nn.Module):
    """o: what was read is the next query."""

    def forward(self, u_BD: Tensor, o_BD: Tensor) -> Tensor:
        return o_BD


class MemoryAttention(nn.Module):
    """p = softmax(uᵀm), o = Σᵢ pᵢcᵢ (Sukhbaatar et al. 2015, eq. 1 and 2)."""

    reach: ClassVar = math.inf

    def forward(self, u_BD: Tensor, m_BSD: Tensor, c_BSD: Tensor, visible_BS: Tensor | None, linear: Tensor) -> Tensor:
        """`linear`: whether p is uᵀm itself, without the softmax."""

        def normalise(scores_BHTS: Tensor) -> Tensor:
            return torch.where(linear, scores_BHTS, scores_BHTS.softmax(-1))

        o_BHTD, weights_BHTS = attend(
            u_BD[:, None, None], m_BSD[:, None], c_BSD[:, None],
            None if visible_BS is None else visible_BS[:, None, None], score=dot, normalise=normalise,
        )  # fmt: skip
        tap.save(self, "weights", weights_BHTS, PAIRS)
        return tap.save(self, "output", o_BHTD[:, 0])[:, 0]


class Hop(nn.Module):
    """Attention, then the next query from the last one and what was read."""

    def __init__(self, query: nn.Module) -> None:
        super().__init__()
        self.attention, self.query = MemoryAttention(), query

    def forward(self, u_BD: Tensor, m_BSD: Tensor, c_BSD: Tensor, visible_BS: Tensor | None, linear: Tensor) -> Tensor:
        new_BD: Tensor = self.query(u_BD, self.attention(u_BD, m_BSD, c_BSD, visible_BS, linear))
        return tap.save(self, "query", new_BD[:, None])[:, 0]


class Hops(nn.Module):
    """One hop after the other; the same part may be several of them."""

    def __init__(self, layers: Sequence[Hop]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(
        self, u_BD: Tensor, memories: Sequence[tuple[Tensor, Tensor]], visible_BS: Tensor | None, linear: Tensor
    ) -> Tensor:
        """`memories`: m and c of each hop."""
        for number, (hop, (m_BSD, c_BSD)) in enumerate(zip(self.layers, memories, strict=True)):
            tap.at_layer(number)
            u_BD = hop(u_BD, m_BSD, c_BSD, visible_BS, linear)
        tap.at_layer(None)
        return u_BD

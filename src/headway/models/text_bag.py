"""A text as a bag of its words, or of its words and bigrams: no word knows its neighbours, no order is kept.

    x_t = E[w_t]   or   E[w_t] + G[bucket(w_t, w_{t+1})]

With `head.pooling=mean` the text is the mean of these vectors, as in fastText (Joulin et al. 2017), and a linear head
on it a logistic regression on counts whose matrix has two factors.

B batch, T length, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import refuse
from headway.models.protocols import Encoded, Encodes
from headway.nn import tap
from headway.nn.embedding import token_table
from headway.nn.grams import bigram_buckets, own_grams

STD = 0.1


class NoBigrams(nn.Module):
    """Words alone."""

    def forward(self, x_BTD: Tensor, ids_BT: Tensor, lengths_B: Tensor | None) -> Tensor:
        return x_BTD


class HashedBigrams(nn.Module):
    """x_t + G[bucket(w_t, w_{t+1})]; G starts at 0, so that a bigram which was never trained adds nothing."""

    def __init__(self, buckets: int, width: int) -> None:
        super().__init__()
        self.buckets = buckets
        self.table_GD = nn.Parameter(torch.zeros(buckets, width))  # no nn.Embedding: it has no row for a word

    def forward(self, x_BTD: Tensor, ids_BT: Tensor, lengths_B: Tensor | None) -> Tensor:
        added_BTD = F.embedding(bigram_buckets(ids_BT, self.buckets), self.table_GD)
        own_BT1 = own_grams(ids_BT, lengths_B, 2)[1][..., None]
        return x_BTD + F.pad(torch.where(own_BT1, added_BTD, 0), (0, 0, 0, 1))


@dataclass(frozen=True)
class Unigrams:
    """Words alone."""

    name: ClassVar[str] = "words"

    def build(self, width: int) -> nn.Module:
        return NoBigrams()


@dataclass(frozen=True)
class Bigrams:
    """Words and every two neighbours, which share so many `buckets`."""

    name: ClassVar[str] = "bigrams"
    buckets: int = 100_000

    def __post_init__(self) -> None:
        refuse(self.buckets < 1, f"model.grams.buckets must be at least 1, not {self.buckets}")

    def build(self, width: int) -> nn.Module:
        return HashedBigrams(self.buckets, width)


@dataclass(frozen=True)
class TextBagConfig:
    """`grams`: what the bag holds. `dropout`: that of a head which has none of its own."""

    name: ClassVar[str] = "text-bag"
    grams: Unigrams | Bigrams = field(default_factory=Unigrams)
    width: int = 64
    dropout: float = 0.3
    max_length: int = 512


@final
class TextBag(Encodes):
    """A vector of every word, its neighbours unseen."""

    def __init__(self, config: TextBagConfig, vocabulary: int) -> None:
        super().__init__()
        self.config, self.context = config, config.max_length
        self.width, self.dropout = config.width, config.dropout
        self.embed = token_table(vocabulary, config.width, STD)
        self.grams = config.grams.build(config.width)

    @property
    def table(self) -> nn.Embedding:
        return self.embed

    def encode(self, inputs: Any) -> Encoded:
        x_BTD = tap.save(self.embed, "tokens", self.embed(inputs.ids_BT))
        return Encoded(self.grams(x_BTD, inputs.ids_BT, inputs.lengths_B), inputs.lengths_B)

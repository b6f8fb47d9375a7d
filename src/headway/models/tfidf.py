"""A text as the weights of its n-grams (Salton and Buckley 1988): one vector as wide as there are n-grams.

    x_g = tf(g)·idf(g) / ‖·‖₂,   idf(g) = 1 + log((1 + N)/(1 + N_g))
    tf(g) = 1 + log count(g) (`sublinear`) or count(g)

N texts, N_g of them with the n-gram g. The table is that of scikit-learn's TfidfVectorizer, filled by
`headway.tasks.linear`; what a text's vector is, is computed here, without scikit-learn.

B batch, T length, M n-grams of a row, G n-grams of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import refuse
from headway.models.protocols import Encoded, Encodes
from headway.nn.grams import gram_keys, own_grams

LONGEST_GRAM = 3
NO_GRAM = -1


@dataclass(frozen=True)
class TfIdfConfig:
    """`order`: n-grams of 1 … so many words. `features`: so many of the most frequent are kept. `found`: n-grams of the
    table, known once they are counted."""

    name: ClassVar[str] = "tfidf"
    order: int = 2
    features: int = 100_000
    sublinear: bool = True
    found: int = 0
    max_length: int = 4096

    def __post_init__(self) -> None:
        refuse(not 1 <= self.order <= LONGEST_GRAM, f"model.order must lie between 1 and {LONGEST_GRAM} for tfidf, "
               f"not {self.order}")  # fmt: skip
        refuse(self.features < 1, f"model.features must be at least 1, not {self.features}")
        refuse(self.found < 0, f"model.found must be 0 or more, not {self.found}")


@final
class TfIdf(Encodes):
    """One vector of a text, mostly zeros."""

    per_token = False
    keys_G: Tensor

    def __init__(self, config: TfIdfConfig, vocabulary: int) -> None:
        super().__init__()
        self.config, self.context, self.vocabulary = config, config.max_length, vocabulary
        self.width, self.dropout = max(config.found, 1), 0.0
        self.register_buffer("keys_G", torch.full((self.width,), NO_GRAM))
        self.idf_G = nn.Parameter(torch.ones(self.width), requires_grad=False)

    def encode(self, inputs: Any) -> Encoded:
        ids_BT, order = inputs.ids_BT, self.config.order
        keys_BM = torch.cat(gram_keys(ids_BT, order, self.vocabulary), 1)
        own_BM = torch.cat(own_grams(ids_BT, inputs.lengths_B, order), 1)
        at_BM = torch.searchsorted(self.keys_G, keys_BM).clamp(max=self.width - 1)
        known_BM = own_BM & (self.keys_G[at_BM] == keys_BM)
        count_BG = self.idf_G.new_zeros(len(ids_BT), self.width).scatter_add_(1, at_BM, known_BM.to(self.idf_G.dtype))
        tf_BG = torch.where(count_BG > 0, 1 + count_BG.clamp(min=1).log(), 0) if self.config.sublinear else count_BG
        return Encoded(F.normalize(tf_BG * self.idf_G, dim=-1)[:, None])

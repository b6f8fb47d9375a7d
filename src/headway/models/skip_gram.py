"""Skip-gram with negative sampling (Mikolov et al. 2013): a vector for each word, from the words around it.

N pairs, K negatives of each, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import refuse


@dataclass(frozen=True)
class SkipGramConfig:
    """window: words that count on either side of one, at most; how many is drawn for each, from 1 on.

    negatives: words from the noise for each that was there. power: the noise is their frequency to this power.
    threshold: words more frequent than this are passed over, the more often the more frequent they are (0: none).
    """

    name: ClassVar[str] = "skip-gram"
    width: int = 100
    window: int = 5
    negatives: int = 5
    power: float = 0.75
    threshold: float = 1e-4

    def __post_init__(self) -> None:
        for field, least in {"width": 1, "window": 1, "negatives": 1, "power": 0, "threshold": 0}.items():
            refuse(getattr(self, field) < least, f"model.{field} must be at least {least}, not {getattr(self, field)}")


class SkipGram(nn.Module):
    """log σ(u_o·v_c) + Σ_k log σ(−u_k·v_c) for a word c, one near it o, and K from the noise (eq. 4).

    v is what is kept and looked up; u is the other side of the same vocabulary.
    """

    pairs_V: Tensor

    def __init__(self, config: SkipGramConfig, vocabulary: int) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.table = nn.Embedding(vocabulary, config.width)
        nn.init.uniform_(self.table.weight, -0.5 / config.width, 0.5 / config.width)
        self.around_VD = nn.Parameter(torch.zeros(vocabulary, config.width))
        # How many pairs of a training step each word stands in, where that is known: its rate is kept down by it.
        self.register_buffer("pairs_V", torch.zeros(vocabulary), persistent=False)

    def forward(self, words_N: Tensor, around_N: Tensor, noise_NK: Tensor) -> Tensor:
        v_ND, u_ND, u_NKD = self.table(words_N), self.around_VD[around_N], self.around_VD[noise_NK]
        near_N = (u_ND * v_ND).sum(-1)
        far_NK = (u_NKD @ v_ND[:, :, None]).squeeze(-1)
        return F.logsigmoid(near_N) + F.logsigmoid(-far_NK).sum(-1)


def blank_pairs(config: SkipGramConfig, sizes: Sequence[int], batch: int, length: int) -> tuple[Tensor, ...]:
    """What a forward pass reads for so many words: each with a neighbour and its negatives."""
    words_N = torch.zeros(batch * length, dtype=torch.long)
    return words_N, words_N, words_N[:, None].expand(-1, config.negatives)


def noise(counts_V: Tensor, power: float) -> Tensor:
    """P(w) = count(w)^power / Σ (Mikolov et al. 2013, 2.2): what negatives are drawn from."""
    weight_V = torch.where(counts_V > 0, counts_V.double() ** power, 0.0)
    return weight_V / weight_V.sum()


def kept_share(counts_V: Tensor, threshold: float) -> Tensor:
    """√(t/f) + t/f, at most 1, of a word of frequency f: how often one is not passed over.

    As word2vec does it; the paper has √(t/f) alone (eq. 5).
    """
    share_V = counts_V.double() / counts_V.sum()
    if not threshold:
        return torch.ones_like(share_V)
    ratio_V = threshold / share_V.clamp(min=1e-30)
    return (ratio_V.sqrt() + ratio_V).clamp(max=1.0)

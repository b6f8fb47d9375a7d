"""Two answers to a prompt as batches: the conversation with the chosen one, and with the rejected one.

B pairs, T length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headway.batch import Batch, TokenBatch, column
from headway.data.batches import BucketedBatches, Ints
from headway.data.exchanges import Exchange, padded


@dataclass(frozen=True)
class PreferenceBatch(Batch):
    """reference_B2: the log-probabilities of both answers by the model that training began with; real_B: 1, and 0 for
    an empty row."""

    chosen: TokenBatch
    rejected: TokenBatch
    reference_B2: Tensor = column()
    real_B: Tensor = column()

    def counted(self) -> dict[str, float]:
        pairs = float(self.real_B.sum())
        said = self.chosen.counts["nll"] if self.chosen.counts else 0.0
        return dict.fromkeys(("loss", "accuracy", "margin", "tokens"), pairs) | {"nll": float(said)}


class PreferenceStore:
    """Pairs of exchanges in memory. `reference_N2` is filled before the first step."""

    def __init__(self, pairs: Sequence[tuple[Exchange, Exchange]]) -> None:
        self.pairs = pairs
        self.reference_N2 = torch.zeros(len(pairs), 2, dtype=torch.float64)

    def batches(self, budget: int, seed: int, shuffle: bool, longest: int | None) -> BucketedBatches[PreferenceBatch]:
        """The two of a pair are padded to the same length."""
        most = np.array([max(len(one.ids) for one in pair) for pair in self.pairs], np.int32)
        return BucketedBatches(((most, 0),), self.collated, budget // 2, seed, shuffle, shuffle, longest)

    def collated(self, examples: Ints, lengths: tuple[int, ...]) -> PreferenceBatch:
        chosen, rejected = (padded([self.pairs[at][side] for at in examples], lengths[0]) for side in (0, 1))
        reference, real = self.reference_N2[torch.from_numpy(examples)].float(), torch.ones(len(examples))
        return PreferenceBatch(chosen, rejected, reference, real, examples=tuple(examples.tolist()))

"""Words that the training text has once, read as unknown now and then, so that the unknown word gets a vector."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch

from headway.batch import TextInputs


class Singletons:
    """In each training batch the share `share` of these words is replaced (Lample et al. 2016, 4.3): which of them
    depends on the seed and the step alone."""

    def __init__(self, texts: Iterable[list[int]], first: int, unknown: int, share: float, seed: int) -> None:
        """`first`: the first entry of the vocabulary that is a word."""
        counts = np.bincount(np.fromiter((entry for ids in texts for entry in ids), np.int64))
        counts[:first] = 0
        self.once_V = torch.from_numpy(counts == 1)
        self.unknown, self.share, self.seed = unknown, share, seed

    def replaced(self, inputs: TextInputs, step: int) -> TextInputs:
        drawn_BT = torch.from_numpy(np.random.default_rng((self.seed, step)).random(tuple(inputs.ids_BT.shape)))
        chosen_BT = self.once_V[inputs.ids_BT] & (drawn_BT < self.share)
        return replace(inputs, ids_BT=inputs.ids_BT.masked_fill(chosen_BT, self.unknown))

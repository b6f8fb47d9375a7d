"""Words of training batches that are read as another entry of the vocabulary now and then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from headway.batch import TextInputs
from headway.text.codec import Codec


class ReplacedWords:
    """In each training batch the share `share` of the ids in `which_V` is read as `stand_in`: which of them depends on
    the seed and the step alone."""

    def __init__(self, which_V: Tensor, stand_in: int, share: float, seed: int) -> None:
        self.which_V, self.stand_in, self.share, self.seed = which_V, stand_in, share, seed

    def replaced(self, inputs: TextInputs, step: int) -> TextInputs:
        drawn_BT = torch.from_numpy(np.random.default_rng((self.seed, step)).random(tuple(inputs.ids_BT.shape)))
        chosen_BT = self.which_V[inputs.ids_BT] & (drawn_BT < self.share)
        return replace(inputs, ids_BT=inputs.ids_BT.masked_fill(chosen_BT, self.stand_in))


def words_once(texts: Iterable[list[int]], first: int) -> Tensor:
    """Which entries of the vocabulary the texts have once: read as unknown now and then, they give the unknown word a
    vector (Lample et al. 2016, 4.3). `first`: the first entry that is a word."""
    counts = np.bincount(np.fromiter((entry for ids in texts for entry in ids), np.int64))
    counts[:first] = 0
    return torch.from_numpy(counts == 1)


def plain_words(tokenizer: Codec) -> Tensor:
    """Every entry of the vocabulary but the special tokens."""
    return torch.tensor([not tokenizer.is_special(entry) for entry in range(len(tokenizer))])

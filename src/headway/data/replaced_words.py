"""Words of training batches that are read as another entry of the vocabulary now and then, or not at all."""

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


class LeftOut:
    """Of every text of a training batch the share `share` of the ids in `which_V` is left out; what remains keeps its
    order, and knows where it stood. Unlike a stand-in, which no later text has, it looks like any other text."""

    def __init__(self, which_V: Tensor, pad: int, share: float, seed: int) -> None:
        self.which_V, self.pad, self.share, self.seed = which_V, pad, share, seed

    def replaced(self, inputs: TextInputs, step: int) -> TextInputs:
        rows, width = inputs.ids_BT.shape
        lengths_B1 = torch.full((rows, 1), width) if inputs.lengths_B is None else inputs.lengths_B[:, None]
        at_T = torch.arange(width)
        there_BT = at_T < lengths_B1
        plain_BT = self.which_V[inputs.ids_BT] & there_BT
        drawn_BT = torch.from_numpy(np.random.default_rng((self.seed, step)).random((rows, width)))
        drawn_BT = drawn_BT.masked_fill(~plain_BT, -1.0).masked_fill(~there_BT, 2.0)
        left_B = lengths_B1[:, 0] - (plain_BT.sum(1) * self.share).long()
        # As many as the longest text could keep, so that batches of one width stay of one width.
        most = width - int((width - int((there_BT & ~plain_BT).sum(1).max())) * self.share)
        beyond_BT = at_T[:most] >= left_B[:, None]
        places_BT = drawn_BT.argsort(1)[:, :most].masked_fill(beyond_BT, width).sort(1).values.clamp(max=width - 1)
        letters_BTC = inputs.letters_BTC
        return replace(
            inputs, ids_BT=inputs.ids_BT.gather(1, places_BT).masked_fill(beyond_BT, self.pad), lengths_B=left_B,
            types_BT=None if inputs.types_BT is None else inputs.types_BT.gather(1, places_BT),
            letters_BTC=None if letters_BTC is None else letters_BTC[torch.arange(rows)[:, None], places_BT],
            places_BT=places_BT,
        )  # fmt: skip


def words_once(texts: Iterable[list[int]], first: int) -> Tensor:
    """Which entries of the vocabulary the texts have once: read as unknown now and then, they give the unknown word a
    vector (Lample et al. 2016, 4.3). `first`: the first entry that is a word."""
    counts = np.bincount(np.fromiter((entry for ids in texts for entry in ids), np.int64))
    counts[:first] = 0
    return torch.from_numpy(counts == 1)


def plain_words(tokenizer: Codec) -> Tensor:
    """Every entry of the vocabulary but the special tokens."""
    return torch.tensor([not tokenizer.is_special(entry) for entry in range(len(tokenizer))])

"""Words of training batches that are read as another entry of the vocabulary now and then, or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from headway.batch import TextInputs
from headway.text.codec import Codec


class ChangedWords(Protocol):
    """What a training batch reads in place of its texts."""

    def changed(self, inputs: TextInputs, step: int) -> TextInputs: ...


class ReplacedWords:
    """In each training batch the share `share` of the ids in `which_V` is read as `stand_in`: which of them depends on
    the seed and the step alone."""

    def __init__(self, which_V: Tensor, stand_in: int, share: float, seed: int) -> None:
        self.which_V, self.stand_in, self.share, self.seed = which_V, stand_in, share, seed

    def changed(self, inputs: TextInputs, step: int) -> TextInputs:
        drawn_BT = torch.from_numpy(np.random.default_rng((self.seed, step)).random(tuple(inputs.ids_BT.shape)))
        chosen_BT = self.which_V[inputs.ids_BT] & (drawn_BT < self.share)
        return replace(inputs, ids_BT=inputs.ids_BT.masked_fill(chosen_BT, self.stand_in))


class WordsLeftOut:
    """Of every text of a training batch the share `share` of the ids in `which_V` is left out. The rest keeps its order
    and its positions, so that it looks like any other text; with a stand-in it would look like no text that is read
    later."""

    def __init__(self, which_V: Tensor, pad: int, share: float, seed: int) -> None:
        self.which_V, self.pad, self.share, self.seed = which_V, pad, share, seed

    def changed(self, inputs: TextInputs, step: int) -> TextInputs:
        rows, width = inputs.ids_BT.shape
        lengths_B = torch.full((rows,), width) if inputs.lengths_B is None else inputs.lengths_B
        at_T = torch.arange(width)
        there_BT = at_T < lengths_B[:, None]
        plain_BT = self.which_V[inputs.ids_BT] & there_BT
        drawn_BT = torch.from_numpy(np.random.default_rng((self.seed, step)).random((rows, width)))
        drawn_BT = drawn_BT.masked_fill(~plain_BT, -1.0).masked_fill(~there_BT, 2.0)
        kept_B = lengths_B - self._out(plain_BT.sum(1))
        # As many as a text of this width keeps at most, so that batches of one width stay of one width.
        others = (there_BT & ~plain_BT).sum(1).max()
        most = width - int(self._out(width - others))
        beyond_BT = at_T[:most] >= kept_B[:, None]
        kept_BT = drawn_BT.argsort(1)[:, :most].masked_fill(beyond_BT, width).sort(1).values.clamp(max=width - 1)
        return replace(
            inputs, ids_BT=inputs.ids_BT.gather(1, kept_BT).masked_fill(beyond_BT, self.pad), lengths_B=kept_B,
            types_BT=None if inputs.types_BT is None else inputs.types_BT.gather(1, kept_BT), positions_BT=kept_BT,
        )  # fmt: skip

    def _out(self, words: Tensor) -> Tensor:
        """How many of so many words are left out."""
        return (words.double() * self.share).long()


def words_once(texts: Iterable[list[int]], first: int) -> Tensor:
    """Which entries of the vocabulary the texts have once: read as unknown now and then, they give the unknown word a
    vector (Lample et al. 2016, 4.3). `first`: the first entry that is a word."""
    counts = np.bincount(np.fromiter((entry for ids in texts for entry in ids), np.int64))
    counts[:first] = 0
    return torch.from_numpy(counts == 1)


def plain_words(tokenizer: Codec) -> Tensor:
    """Every entry of the vocabulary but the special tokens."""
    return torch.tensor([not tokenizer.is_special(entry) for entry in range(len(tokenizer))])

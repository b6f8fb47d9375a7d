"""The vector of a word from its letters, beside the vector that a table has for it.

Letters are bytes: 0 stands behind the last one (`headway.text.framing.spelled`).

B batch, T length, N words, C letters, A alphabet, L width of a letter, K width of a word's letters.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn import tap
from headway.nn.convolution import Convolution
from headway.nn.directed import DirectedLayer, reversed_order
from headway.nn.dropout import Dropout
from headway.nn.pooling import pool
from headway.nn.recurrent import Cell

LETTERS = 256  # every byte of UTF-8, and 0 for none


class NoLetters(nn.Module):
    """A word's vector is that of the table."""

    width = 0

    def forward(self, words_BTD: Tensor, letters_BTC: Tensor | None) -> Tensor:
        return words_BTD


class LettersOfWords(nn.Module):
    """Abstract. [E[w]; letters(w)]. width: K."""

    width: int

    def __init__(self, narrow: int, dropout: float) -> None:
        super().__init__()
        spread = (3 / narrow) ** 0.5  # Ma and Hovy 2016, 3.1
        # A parameter, no nn.Embedding: those have the vectors of a vocabulary.
        self.letters_AL = nn.Parameter(torch.empty(LETTERS, narrow).uniform_(-spread, spread))
        self.dropout = Dropout(dropout)

    def forward(self, words_BTD: Tensor, letters_BTC: Tensor | None) -> Tensor:
        assert letters_BTC is not None, "this model reads letters: frame texts with `letters`"
        letters_NC = letters_BTC.flatten(0, 1).long()
        spelled_NCL = self.dropout(F.embedding(letters_NC, self.letters_AL))
        letters_BTK = self.of_words(spelled_NCL, (letters_NC > 0).sum(1)).unflatten(0, letters_BTC.shape[:2])
        return torch.cat([words_BTD, tap.save(self, "letters", letters_BTK)], -1)

    def of_words(self, letters_NCL: Tensor, lengths_N: Tensor) -> Tensor:
        raise NotImplementedError


class ConvolvedLetters(LettersOfWords):
    """max_c (W x_{c−l:c+l} + b): the largest of each map over all windows of letters (Ma and Hovy 2016, 2.1)."""

    def __init__(self, narrow: int, width: int, window: int, dropout: float) -> None:
        super().__init__(narrow, dropout)
        self.convolution, self.width = Convolution(narrow, width, window, "same"), width

    def of_words(self, letters_NCL: Tensor, lengths_N: Tensor) -> Tensor:
        y_NCK, kept_N = self.convolution(letters_NCL, lengths_N)
        return pool(y_NCK, kept_N, "max")


class RecurrentLetters(LettersOfWords):
    """[h→_C; h←_1]: the last states of two cells, which read the letters from both ends (Lample et al. 2016, 4.1)."""

    def __init__(self, narrow: int, forwards: Cell, backwards: Cell, dropout: float) -> None:
        super().__init__(narrow, dropout)
        self.cells = DirectedLayer({"forwards": forwards, "backwards": backwards}, holds=True)
        self.width = forwards.width + backwards.width

    def of_words(self, letters_NCL: Tensor, lengths_N: Tensor) -> Tensor:
        _, last = self.cells(letters_NCL, reversed_order(letters_NCL, lengths_N), lengths_N)
        return last[0]

"""Dropout (Srivastava et al. 2014) from few random numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WORDS = 4  # 16-bit words in one 64-bit draw
STEPS = 1 << 16


class Dropout(nn.Module):
    """x ⊙ m / (1 − p), m ~ Bernoulli(1 − p), in training; x otherwise."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout must lie in [0, 1), not {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training and self.p > 0 else x

    def extra_repr(self) -> str:
        return f"p={self.p}"


class LockedDropout(Dropout):
    """x ⊙ m / (1 − p) with one m for all steps of a row (Gal and Ghahramani 2016)."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        if not (self.training and self.p > 0):
            return x_BTD
        return x_BTD * dropout(x_BTD.new_ones(len(x_BTD), 1, x_BTD.shape[-1]), self.p)


class WordDropout(Dropout):
    """x_t · m[w_t] / (1 − p): a word is dropped everywhere in the batch or nowhere (Gal and Ghahramani 2016)."""

    def __init__(self, p: float, vocabulary: int) -> None:
        super().__init__(p)
        self.vocabulary = vocabulary

    def forward(self, x_BTD: Tensor, ids_BT: Tensor) -> Tensor:  # type: ignore[override]
        if not (self.training and self.p > 0):
            return x_BTD
        return x_BTD * dropout(x_BTD.new_ones(self.vocabulary), self.p)[ids_BT][..., None]


def dropout(x: Tensor, p: float) -> Tensor:
    """Each 64-bit random number decides about four elements.

    On a CPU the random generator takes most of the time of a dropout; a compiled GPU kernel draws a number for every
    element in forward and backward, which takes longer than reading one. p is rounded to a multiple of 2⁻¹⁶, and
    the scale is that of the rounded p.
    """
    cut = min(round(p * STEPS), STEPS - 1)
    draw = _opaque_words if torch.compiler.is_compiling() else random_words
    words = draw(x)[: x.numel()].view(x.shape)
    return x * ((words >= cut - STEPS // 2) * (STEPS / (STEPS - cut))).to(x.dtype)


def random_words(like: Tensor) -> Tensor:
    """At least as many uniform 16-bit words as `like` has elements."""
    draws = torch.empty(-(-like.numel() // WORDS), dtype=torch.int64, device=like.device)
    return draws.random_(-(2**63), None).view(torch.int16)


# Opaque to a compiler. It may merge two calls on the same tensor, which no model makes; the tag keeps it from drawing
# again in the backward.
_opaque_words = torch.library.custom_op(
    "headway::random_words", random_words, mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,)
)


@_opaque_words.register_fake
def _(like: Tensor) -> Tensor:
    return torch.empty(-(-like.numel() // WORDS) * WORDS, dtype=torch.int16, device=like.device)

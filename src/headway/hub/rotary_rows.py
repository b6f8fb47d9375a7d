"""Two orders of the rows of queries and keys: rotary positions turn the halves of a head (i, i + K/2), as Hugging Face
has it, or neighbouring pairs (2i, 2i + 1), as Meta's program and llama.cpp have it for Llama."""

from __future__ import annotations

from torch import Tensor


def from_pairs(rows: Tensor, heads: int) -> Tensor:
    """Pairs → halves."""
    return rows.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(rows.shape)


def to_pairs(rows: Tensor, heads: int) -> Tensor:
    """Halves → pairs."""
    return rows.unflatten(0, (heads, 2, -1)).transpose(1, 2).reshape(rows.shape)

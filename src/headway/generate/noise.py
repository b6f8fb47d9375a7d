"""Noise without a generator: a number for each (seed, sample, step), the same in any batch and on any device.

R rows, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor

from headway.fast import sampling


def _signed(bits: int) -> int:
    """64 bits as the int64 that holds them."""
    return bits - (1 << 64) if bits >> 63 else bits


GOLDEN, FIRST, SECOND = map(_signed, (sampling.GOLDEN, sampling.FIRST, sampling.SECOND))


def mix(bits: Tensor) -> Tensor:
    """splitmix64's finaliser (Steele et al. 2014): one to one, each bit out hangs on all bits in. int64 wraps."""
    bits = (bits ^ _right(bits, 30)) * FIRST
    bits = (bits ^ _right(bits, 27)) * SECOND
    return bits ^ _right(bits, 31)


def _right(bits: Tensor, count: int) -> Tensor:
    """A shift that fills with zeros, where int64's own would fill with the sign."""
    return (bits >> count) & ((1 << (64 - count)) - 1)


def streams(seeds_R: Tensor, samples_R: Tensor) -> Tensor:
    """Where each row's own sequence starts: seeds and samples next to each other give starts far apart."""
    return mix(mix(seeds_R + GOLDEN) + (samples_R + 1) * GOLDEN)


def bits(streams_R: Tensor, steps_R: Tensor) -> Tensor:
    """splitmix64: number `step` of the sequence that starts at `stream`."""
    return mix(streams_R + (steps_R + 1) * GOLDEN)


def uniforms(streams_R: Tensor, steps_R: Tensor) -> Tensor:
    """In [0, 1), float64, from the upper 53 bits."""
    return _right(bits(streams_R, steps_R), 11).double() * 2.0**-53


def draw(logits_RV: Tensor, uniforms_R: Tensor) -> Tensor:
    """The first token at which the cumulated softmax is above u; −1 where no token is possible, or logits are NaN.

    In float64, so that neither a long vocabulary nor a rare token loses its share. Impossible tokens are left out
    by name: a parallel sum may rise by its rounding where nothing was added.
    """
    p_RV = logits_RV.double().softmax(-1)
    below_RV = p_RV.cumsum(-1).where(p_RV > 0, 0.0)
    total_R1 = below_RV.amax(-1, keepdim=True)
    # u ≤ 1 − 2⁻⁵³, so u · total stays below the total after rounding too: some token is always above it.
    tokens_R = (below_RV > uniforms_R[:, None] * total_R1).byte().argmax(-1)
    return tokens_R.where(total_R1[:, 0] > 0, -1)

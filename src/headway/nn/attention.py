"""Attention: one equation at two speeds, and the multi-head parts built on it.

B batch, T target length, S source length, H heads, D width, K head width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from headway.fast import attention as kernels
from headway.nn import tap
from headway.nn.mask import View
from headway.nn.state import Cache, Memory

# Up to this many keys the memory-efficient kernel trains faster than the others (measured on an H200).
SHORT = 128

Score = Callable[[Tensor, Tensor], Tensor]
PAIRS = ("row", "head", "target", "source")  # the axes of what is said of each query and key


def dot(q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
    """QKᵀ (Luong et al. 2015)."""
    return q_BHTK @ k_BHSK.mT


def scaled_dot(q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
    """QKᵀ/√K: unit variance whatever the width (Vaswani et al. 2017, 3.2.1)."""
    return dot(q_BHTK, k_BHSK) / math.sqrt(q_BHTK.shape[-1])


SCALES: dict[Score, float | None] = {scaled_dot: None, dot: 1.0}  # as the fused kernels take it


class Multiplicative(nn.Module):
    """QWKᵀ (Luong et al. 2015, "general")."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        self.weight = nn.Linear(query_width, key_width, bias=False)

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return dot(self.weight(q_BHTK), k_BHSK)


class Additive(nn.Module):
    """vᵀ tanh(W₁q + W₂k) (Bahdanau et al. 2015)."""

    def __init__(self, query_width: int, key_width: int, hidden: int) -> None:
        super().__init__()
        self.query, self.key = (
            nn.Linear(query_width, hidden, bias=False),
            nn.Linear(key_width, hidden, bias=False),
        )
        self.v = nn.Linear(hidden, 1, bias=False)

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        pairs_BHTSK = self.query(q_BHTK)[..., :, None, :] + self.key(k_BHSK)[..., None, :, :]
        return self.v(torch.tanh(pairs_BHTSK)).squeeze(-1)


def biased(score: Score, q_BHTK: Tensor, k_BHSK: Tensor, bias_BHTS: Tensor | None) -> Tensor:
    """score(Q, K) + bias, whatever the mask will hide."""
    scores_BHTS = score(q_BHTK, k_BHSK)
    return scores_BHTS if bias_BHTS is None else scores_BHTS + bias_BHTS


def attend(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    visible_BHTS: Tensor | None = None,
    bias_BHTS: Tensor | None = None,
    score: Score = scaled_dot,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """softmax(score(Q, K) + bias)V, and the weights (Vaswani et al. 2017, eq. 1).

    What is not visible gets −∞ before the softmax, so weight 0; a query that sees nothing gives 0.
    """
    scores_BHTS = biased(score, q_BHTK, k_BHSK, bias_BHTS)
    if visible_BHTS is not None:
        scores_BHTS = scores_BHTS.masked_fill(~visible_BHTS, -math.inf)
    weights_BHTS = scores_BHTS.softmax(dim=-1)
    if visible_BHTS is not None:
        weights_BHTS = weights_BHTS.masked_fill(~visible_BHTS, 0.0)
    return F.dropout(weights_BHTS, dropout) @ v_BHSK, weights_BHTS


def fused_attend(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    view: View,
    bias_BHTS: Tensor | None = None,
    score: Score = scaled_dot,
    dropout: float = 0.0,
) -> Tensor:
    """`attend` with the dot, scaled or not, in one kernel; the weights are never built."""
    scale = SCALES[score]
    plain = bias_BHTS is None and not dropout and scale is None and not torch.is_grad_enabled()
    if plain and view.prefix_B is not None and kernels.takes(q_BHTK, k_BHSK, v_BHSK):
        return kernels.attend_prefix(q_BHTK, k_BHSK, v_BHSK, view.prefix_B)
    causal = view.causal and bias_BHTS is None
    seen = None if causal else view.matrix(q_BHTK.shape[-2], k_BHSK.shape[-2], q_BHTK.device)
    if bias_BHTS is not None:
        seen = bias_BHTS if seen is None else bias_BHTS.masked_fill(~seen, -math.inf)
    if q_BHTK.is_cuda and k_BHSK.shape[-2] <= SHORT and torch.is_grad_enabled():
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, seen, dropout, causal, scale=scale)
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, seen, dropout, causal, scale=scale)


def _projection(width: int, to: list[int], bias: bool = True) -> nn.Linear:
    """Maps side by side, each drawn as if it stood alone: by Glorot, at 1/√2 of the width where there are several."""
    layer = nn.Linear(width, sum(to), bias=bias)
    for block in layer.weight.data.split(to):
        nn.init.xavier_uniform_(block, gain=1.0 if len(to) == 1 else 2**-0.5)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def _split(x_BTD: Tensor, heads: int) -> Tensor:
    return x_BTD.unflatten(-1, (heads, -1)).transpose(1, 2)


def _merge(x_BHTK: Tensor) -> Tensor:
    return x_BHTK.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Concat(head₁ … head_H)Wᴼ, head_h = attend(xW_h^Q, xW_h^K, xW_h^V) (Vaswani et al. 2017, 3.2.2).

    The three maps of all heads are one product. The same part is masked self-attention: the view says so. With
    fewer keys and values than queries, several heads share one (Ainslie et al. 2023).
    """

    reach: ClassVar = math.inf  # positions that one call carries information over

    def __init__(
        self, width: int, heads: int, dropout: float = 0.0, shared_heads: int | None = None, bias: bool = True,
        head_width: int | None = None, score: Score = scaled_dot, output_bias: bool | None = None,
    ) -> None:  # fmt: skip
        """`shared_heads`: how many keys and values there are, a divisor of `heads`. `head_width`: K, where it is not
        D/H. `score` may be the plain `dot`. `output_bias`: where Wᴼ has one and the others have not, or the reverse."""
        super().__init__()
        self.heads, self.dropout, self.shared, self.score = heads, dropout, shared_heads or heads, score
        self.head_width = head_width or width // heads
        if heads % self.shared:
            raise ValueError(f"{heads} heads cannot share {self.shared} keys and values evenly")
        self.sizes = [self.head_width * count for count in (heads, self.shared, self.shared)]
        self.qkv = _projection(width, self.sizes, bias)
        self.output = _projection(self.sizes[0], [width], bias if output_bias is None else output_bias)

    def forward(self, x_BTD: Tensor, view: View, cache: Cache | None = None) -> Tensor:
        return _out(self, self.mixed(self.qkv(x_BTD), view, cache))

    def mixed(self, qkv_BTD: Tensor, view: View, cache: Cache | None = None) -> Tensor:
        """The heads side by side, from queries, keys and values side by side: all between the two products."""
        q_BTD, k_BTD, v_BTD = qkv_BTD.split(self.sizes, dim=-1)
        q_BHTK, k_BGSK, v_BGSK = _split(q_BTD, self.heads), _split(k_BTD, self.shared), _split(v_BTD, self.shared)
        q_BHTK, k_BGSK = view.rotate(q_BHTK, k_BGSK)
        if cache is not None:
            k_BGSK, v_BGSK = cache.append(k_BGSK, v_BGSK)
        return _merge(_mix(self, q_BHTK, _spread(k_BGSK, q_BHTK), _spread(v_BGSK, q_BHTK), view))


def _spread(shared_BGSK: Tensor, q_BHTK: Tensor) -> Tensor:
    """Keys or values for every head, where several share one."""
    heads, groups = q_BHTK.shape[1], shared_BGSK.shape[1]
    return shared_BGSK if heads == groups else shared_BGSK.repeat_interleave(heads // groups, dim=1)


class CrossAttention(nn.Module):
    """Queries from the target, keys and values from the source, which are made once for each source."""

    reach: ClassVar = math.inf

    def __init__(
        self, width: int, heads: int, dropout: float = 0.0, bias: bool = True, head_width: int | None = None,
        score: Score = scaled_dot,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads, self.dropout, self.score = heads, dropout, score
        self.head_width = head_width or width // heads
        inner = self.head_width * heads
        self.query = _projection(width, [inner], bias)
        self.key_value = _projection(width, [inner, inner], bias)
        self.output = _projection(inner, [width], bias)

    def remember(self, source_BSD: Tensor) -> Memory:
        k_BHSK, v_BHSK = (_split(part, self.heads) for part in self.key_value(source_BSD).chunk(2, dim=-1))
        return Memory(k_BHSK, v_BHSK)

    def forward(self, x_RTD: Tensor, memory: Memory, view: View) -> Tensor:
        """R rows may be several hypotheses of each of B sources: their queries then stand side by side as
        further queries of that source, so that its keys and values are never copied."""
        q_RHTK = _split(self.query(x_RTD), self.heads)
        rows, heads, length, head_width = q_RHTK.shape
        sources = memory.k_BHSK.shape[0]  # not len: a size may be free in an exported graph
        q_BHTK = q_RHTK
        if rows != sources:
            q_BHTK = q_RHTK.unflatten(0, (sources, -1)).transpose(1, 2).reshape(sources, heads, -1, head_width)
        mixed_BHTK = _mix(self, q_BHTK, memory.k_BHSK, memory.v_BHSK, view)
        if rows != sources:
            mixed_BHTK = mixed_BHTK.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
        return _out(self, _merge(mixed_BHTK))


def _mix(part: SelfAttention | CrossAttention, q: Tensor, k: Tensor, v: Tensor, view: View) -> Tensor:
    """The readable path while somebody looks at the weights, the fused one otherwise."""
    dropout = part.dropout if part.training else 0.0
    bias = view.bias(q)
    if not tap.recording():
        return fused_attend(q, k, v, view, bias, part.score, dropout)
    seen = view.matrix(q.shape[-2], k.shape[-2], q.device)
    if tap.wants(part, "weights"):
        mixed, weights = attend(q, k, v, seen, bias, part.score, dropout)
        tap.save(part, "weights", weights, PAIRS)
    else:
        mixed = fused_attend(q, k, v, view, bias, part.score, dropout)
    if tap.wants(part, "scores"):
        tap.save(part, "scores", biased(part.score, q, k, bias), PAIRS)
    if tap.wants(part, "mask"):
        every = torch.ones((), dtype=torch.bool, device=q.device) if seen is None else seen
        shape = len(q), 1, q.shape[-2], k.shape[-2]
        tap.save(part, "mask", every.expand(shape)[:, 0], ("row", "target", "source"))
    tap.save(part, "queries", q, ("row", "head", "target", "key_unit"))
    tap.save(part, "keys", k, ("row", "head", "source", "key_unit"))
    tap.save(part, "values", v, ("row", "head", "source", "key_unit"))
    tap.save(part, "mixed", mixed, ("row", "head", "target", "key_unit"))
    return mixed


def _out(part: SelfAttention | CrossAttention, mixed_BTD: Tensor) -> Tensor:
    output_BTD: Tensor = part.output(mixed_BTD)
    if tap.recording():
        tap.save(part, "output", output_BTD, ("row", "target", "unit"))
    return output_BTD

"""Attention: one equation at two speeds, and the multi-head parts built on it.

B batch, T target length, S source length, H heads, D width, K head width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from headway.fast import attention as kernels
from headway.fast import short_attention as short
from headway.nn import tap
from headway.nn.cache import Cache
from headway.nn.position import Position
from headway.nn.ragged import attend_ragged
from headway.nn.score import ScaledBy
from headway.nn.slots import Memory
from headway.nn.tiles import tile_attend
from headway.nn.view import SEE_ALL, View

# Up to this many keys the memory-efficient kernel trains faster than torch's others (measured on an H200).
FEW = 64
# With at least this many keys flex_attention trains faster than a kernel with a matrix: segments of 300 tokens in rows
# of 1,024 take 0.8 of the time, in rows of 4,096 0.4 (on an H200, block masks included).
LONG = 1024

Score = Callable[[Tensor, Tensor], Tensor]
PAIRS = ("row", "head", "target", "source")  # the axes of scores and weights
softmax = partial(torch.softmax, dim=-1)


def dot(q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
    """QKᵀ (Luong et al. 2015)."""
    return q_BHTK @ k_BHSK.mT


def scaled_dot(q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
    """QKᵀ/√K: unit variance whatever the width (Vaswani et al. 2017, 3.2.1)."""
    return dot(q_BHTK, k_BHSK) / math.sqrt(q_BHTK.shape[-1])


SCALES: dict[Score, float | None] = {scaled_dot: None, dot: 1.0}  # as the fused kernels take it


def has_kernel(score: Score) -> bool:
    return type(score) is ScaledBy or score in SCALES


def kernel_scale(score: Score) -> float | None:
    return score.factor if isinstance(score, ScaledBy) else SCALES[score]


class Multiplicative(nn.Module):
    """QWKᵀ (Luong et al. 2015, "general")."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        self.weight = nn.Linear(query_width, key_width, bias=False)

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return dot(self.weight(q_BHTK), k_BHSK)


class SumScore(nn.Module):
    """vᵀ tanh(q + k): `Additive` of queries and keys that are mapped already."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.v = nn.Linear(width, 1, bias=False)

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return self.v(torch.tanh(q_BHTK[..., :, None, :] + k_BHSK[..., None, :, :])).squeeze(-1)


class Additive(SumScore):
    """vᵀ tanh(W₁q + W₂k) (Bahdanau et al. 2015)."""

    def __init__(self, query_width: int, key_width: int, hidden: int) -> None:
        super().__init__(hidden)
        self.query, self.key = nn.Linear(query_width, hidden, bias=False), nn.Linear(key_width, hidden, bias=False)

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return super().forward(self.query(q_BHTK), self.key(k_BHSK))


def fold(x_BHTK: Tensor, groups: int) -> Tensor:
    """(B, H, T, K) → (B, G, T·H/G, K): the queries of heads that share keys become further queries of one head, so that
    keys and values are not copied for every head."""
    rows, heads, _, width = x_BHTK.shape
    return x_BHTK if heads == groups else x_BHTK.reshape(rows, groups, -1, width)


def biased(score: Score, q_BHTK: Tensor, k_BGSK: Tensor, bias_BHTS: Tensor | None) -> Tensor:
    """score(Q, K) + bias, whatever the mask will hide."""
    scores_BHTS = score(fold(q_BHTK, k_BGSK.shape[1]), k_BGSK).reshape(*q_BHTK.shape[:3], -1)
    return scores_BHTS if bias_BHTS is None else scores_BHTS + bias_BHTS


def total(bias_BHTS: Tensor | None, more_BHTS: Tensor | None) -> Tensor | None:
    return more_BHTS if bias_BHTS is None else bias_BHTS if more_BHTS is None else bias_BHTS + more_BHTS


def attend(
    q_BHTK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, visible_BHTS: Tensor | None = None,
    bias_BHTS: Tensor | None = None, score: Score = scaled_dot, dropout: float = 0.0,
    normalise: Callable[[Tensor], Tensor] = softmax,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """softmax(score(Q, K) + bias)V, and the weights (Vaswani et al. 2017, eq. 1).

    What is not visible gets −∞ before the softmax, so weight 0; a query that sees nothing gives 0. Of H heads, H/G
    share one of the G keys and values. `normalise`: another function of the scores than softmax.
    """
    scores_BHTS = biased(score, q_BHTK, k_BGSK, bias_BHTS)
    if visible_BHTS is not None:
        scores_BHTS = scores_BHTS.masked_fill(~visible_BHTS, -math.inf)
    weights_BHTS = normalise(scores_BHTS)
    if visible_BHTS is not None:
        weights_BHTS = weights_BHTS.masked_fill(~visible_BHTS, 0.0)
    mixed_BGTK = fold(F.dropout(weights_BHTS, dropout), k_BGSK.shape[1]) @ v_BGSK
    return mixed_BGTK.reshape(*q_BHTK.shape[:3], -1), weights_BHTS


def fused_attend(
    q_BHTK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, view: View, bias_BHTS: Tensor | None = None,
    score: Score = scaled_dot, dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """`attend` with the dot, scaled or not, in one kernel; the weights are never built."""
    heads, queries = q_BHTK.shape[1:3]
    groups, keys, scale = k_BGSK.shape[1], k_BGSK.shape[2], kernel_scale(score)
    if heads != groups and (queries == 1 or (bias_BHTS is None and not view.causal and not view.dense)):
        # All queries of a row see the same keys, so heads that share keys can be one head with more queries.
        if bias_BHTS is not None and bias_BHTS.shape[1] == heads:
            bias_BHTS = fold(bias_BHTS, groups)
        mixed_BGTK = fused_attend(fold(q_BHTK, groups), k_BGSK, v_BGSK, view, bias_BHTS, score, dropout)
        return mixed_BGTK.reshape(*q_BHTK.shape[:3], -1)
    plain = bias_BHTS is None and not dropout and not torch.is_grad_enabled()
    if plain and scale is None and view.prefix_B is not None and kernels.takes(q_BHTK, k_BGSK, v_BGSK):
        return kernels.attend_prefix(q_BHTK, k_BGSK, v_BGSK, view.prefix_B)
    if plain and heads == groups and (spans := view.spans(k_BGSK)):
        return attend_ragged(q_BHTK, k_BGSK, v_BGSK, spans, scale)
    if view.dense and bias_BHTS is None and not dropout and view.fits_kernels and _takes_blocks(q_BHTK, keys):
        return flex_attend(q_BHTK, k_BGSK, v_BGSK, view, None, score)
    tiling = view.tiling() if bias_BHTS is None else None
    if tiling is not None:
        k_BHSK, v_BHSK = (part.repeat_interleave(heads // groups, dim=1) for part in (k_BGSK, v_BGSK))
        return tile_attend(q_BHTK, k_BHSK, v_BHSK, view, tiling, scale, dropout)
    bias_BHTS = total(bias_BHTS, view.added(q_BHTK.dtype))
    causal = view.causal and bias_BHTS is None
    if bias_BHTS is None and short.takes(q_BHTK, k_BGSK, v_BGSK):
        lengths_B = view.prefix_B
        matrix = None if causal or lengths_B is not None else view.matrix(queries, keys, q_BHTK.device)
        return short.attend_short(
            q_BHTK, k_BGSK, v_BGSK, causal=causal, lengths_B=lengths_B, seen_BHTS=matrix, scale=scale, dropout=dropout
        )
    seen = None if causal else view.matrix(queries, keys, q_BHTK.device)
    if bias_BHTS is not None:
        seen = bias_BHTS if seen is None else bias_BHTS.masked_fill(~seen, -math.inf)
    # The kernel for few keys reads eight numbers at a time.
    few = q_BHTK.is_cuda and keys <= FEW and q_BHTK.shape[-1] % 8 == 0 and torch.is_grad_enabled()
    # Only flash attention, which takes no matrix, reads shared keys in place.
    flash = q_BHTK.is_cuda and q_BHTK.dtype in (torch.bfloat16, torch.float16) and seen is None and not few
    grouped = heads != groups and flash
    if heads != groups and not grouped:
        k_BGSK, v_BGSK = (part.repeat_interleave(heads // groups, dim=1) for part in (k_BGSK, v_BGSK))
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION) if few else nullcontext():
        return F.scaled_dot_product_attention(
            q_BHTK, k_BGSK, v_BGSK, seen, dropout, causal, scale=scale, enable_gqa=grouped
        )


def flex_attend(
    q_BHTK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, view: View, bias_BHTS: Tensor | None = None,
    score: Score = scaled_dot,
) -> Tensor:  # fmt: skip
    """`attend` with the dot, by flex_attention: compiled, one kernel that skips the blocks that the view hides."""
    from torch.nn.attention.flex_attention import flex_attention  # loads a compiler

    add, rule, scene = None, view.rule, view.scene
    if bias_BHTS is not None:
        bias_BHTS = bias_BHTS.expand(*q_BHTK.shape[:3], k_BGSK.shape[2])

        def add(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return score + bias_BHTS[b, h, q, k]

    elif rule is not None and scene is not None and rule.adds:

        def add(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            added = rule.added(q, k, scene)
            return score if added is None else score + added

    grouped = q_BHTK.shape[1] != k_BGSK.shape[1]
    return flex_attention(q_BHTK, k_BGSK, v_BGSK, add, view.block_mask(), kernel_scale(score), grouped)


def _takes_blocks(q_BHTK: Tensor, keys: int) -> bool:
    """Whether flex_attention is faster than a kernel with a matrix, and is compiled."""
    return torch.compiler.is_dynamo_compiling() and q_BHTK.is_cuda and keys >= LONG and q_BHTK.shape[-1] >= 16


def _projection(width: int, to: list[int], bias: bool = True) -> nn.Linear:
    """Several maps in one layer, each initialised by Glorot's rule on its own (at 1/√2 of the bound if several)."""
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


class MultiHead(nn.Module):
    """Abstract. Heads that mix values, and the map of their concatenated outputs."""

    reach: ClassVar = math.inf  # positions that one call carries information over
    output: nn.Linear

    def __init__(self, width: int, heads: int, dropout: float, head_width: int | None, score: Score) -> None:
        """`head_width`: K, D/H by default. `score`: of each query and key."""
        super().__init__()
        if head_width is None and width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.heads, self.dropout, self.score = heads, dropout, score
        self.head_width = head_width or width // heads

    def mix(self, q: Tensor, k: Tensor, v: Tensor, view: View) -> Tensor:
        """The fused path where the score has a kernel and no trace keeps the weights; else the readable one."""
        dropout = self.dropout if self.training else 0.0
        bias = self.bias(q, k, view)
        if has_kernel(self.score) and not (tap.recording() and tap.wants(self, "weights")):
            mixed = fused_attend(q, k, v, view, bias, self.score, dropout)
        else:
            seen = view.matrix(q.shape[-2], k.shape[-2], q.device)
            mixed, weights = attend(q, k, v, seen, total(bias, view.added(q.dtype)), self.score, dropout)
            tap.save(self, "weights", weights, PAIRS)
        if tap.recording():
            self._save(q, k, v, view, mixed)
        return mixed

    def bias(self, q: Tensor, k: Tensor, view: View) -> Tensor | None:
        """What is added to the scores."""
        return view.bias(q)

    def _save(self, q: Tensor, k: Tensor, v: Tensor, view: View, mixed: Tensor) -> None:
        """Save everything but the weights; keys and values are repeated for every head, where several share them."""
        if tap.wants(self, "scores"):
            tap.save(self, "scores", biased(self.score, q, k, total(self.bias(q, k, view), view.added(q.dtype))), PAIRS)
        if tap.wants(self, "mask"):
            seen = view.matrix(q.shape[-2], k.shape[-2], q.device)
            every = torch.ones((), dtype=torch.bool, device=q.device) if seen is None else seen
            shape = len(q), 1, q.shape[-2], k.shape[-2]
            tap.save(self, "mask", every.expand(shape)[:, 0], ("row", "target", "source"))
        for name, part, along in (("queries", q, "target"), ("keys", k, "source"), ("values", v, "source")):
            spread = part.repeat_interleave(self.heads // part.shape[1], dim=1)
            tap.save(self, name, spread, ("row", "head", along, "key_unit"))
        tap.save(self, "mixed", mixed, ("row", "head", "target", "key_unit"))

    def out(self, mixed_BTD: Tensor) -> Tensor:
        return tap.save(self, "output", self.output(mixed_BTD))


class SelfAttention(MultiHead):
    """Concat(head₁ … head_H)Wᴼ, head_h = attend(xW_h^Q, xW_h^K, xW_h^V) (Vaswani et al. 2017, 3.2.2).

    The three maps of all heads are one product. With a causal view it is masked self-attention. With
    fewer keys and values than queries, several heads share one (Ainslie et al. 2023).
    """

    def __init__(
        self, width: int, heads: int, dropout: float = 0.0, shared_heads: int | None = None, bias: bool = True,
        head_width: int | None = None, score: Score = scaled_dot, output_bias: bool | None = None,
    ) -> None:  # fmt: skip
        """`shared_heads`: the number of keys and values, a divisor of `heads`. `output_bias`: whether Wᴼ has a bias,
        `bias` by default."""
        super().__init__(width, heads, dropout, head_width, score)
        self.shared = shared_heads or heads
        if heads % self.shared:
            raise ValueError(f"{heads} heads cannot share {self.shared} keys and values evenly")
        self.sizes = [self.head_width * count for count in (heads, self.shared, self.shared)]
        self.qkv = _projection(width, self.sizes, bias)
        self.output = _projection(self.sizes[0], [width], bias if output_bias is None else output_bias)

    def forward(self, x_BTD: Tensor, view: View = SEE_ALL, cache: Cache | None = None) -> Tensor:
        return self.out(self.mixed(self.qkv(x_BTD), view, cache))

    def mixed(self, qkv_BTD: Tensor, view: View, cache: Cache | None = None) -> Tensor:
        """The heads' concatenated outputs, from concatenated queries, keys and values: all between the two products."""
        q_BTD, k_BTD, v_BTD = qkv_BTD.split(self.sizes, dim=-1)
        q_BHTK, k_BGSK, v_BGSK = _split(q_BTD, self.heads), _split(k_BTD, self.shared), _split(v_BTD, self.shared)
        q_BHTK, k_BGSK = view.rotate(q_BHTK, k_BGSK)
        if cache is not None:
            k_BGSK, v_BGSK = cache.append(k_BGSK, v_BGSK)
        return _merge(self.mix(q_BHTK, k_BGSK, v_BGSK, view))


class OwnDistances(SelfAttention):
    """Self-attention whose scores have a position part of the layer's own (Chung et al. 2023)."""

    def __init__(self, *sizes: Any, distances: Position, **how: Any) -> None:
        super().__init__(*sizes, **how)
        self.distances = distances

    def bias(self, q: Tensor, k: Tensor, view: View) -> Tensor | None:
        return None if view.scene is None else self.distances.bias(q, view.scene)


class Thrice(nn.Module):
    """[x; x; x]"""

    def forward(self, x_BTD: Tensor) -> Tensor:
        return torch.cat([x_BTD] * 3, dim=-1)


class Unprojected(SelfAttention):
    """attend(x, x, x) by heads: the vectors are their own queries, keys and values, and nothing is learned. A vector
    is nearest to itself, and what it asks for is what it is."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0, score: Score = scaled_dot) -> None:
        MultiHead.__init__(self, width, heads, dropout, None, score)
        self.shared, self.sizes = heads, [width] * 3
        self.qkv, self.output = Thrice(), nn.Identity()  # type: ignore[assignment]


class CrossAttention(MultiHead):
    """Queries from the target, keys and values from the source, which are computed once for each source."""

    def __init__(
        self, width: int, heads: int, dropout: float = 0.0, bias: bool = True, head_width: int | None = None,
        score: Score = scaled_dot,
    ) -> None:  # fmt: skip
        super().__init__(width, heads, dropout, head_width, score)
        inner = self.head_width * heads
        self.query = _projection(width, [inner], bias)
        self.key_value = _projection(width, [inner, inner], bias)
        self.output = _projection(inner, [width], bias)

    def remember(self, source_BSD: Tensor) -> Memory:
        return Memory(*(_split(part, self.heads) for part in self.key_value(source_BSD).chunk(2, dim=-1)))

    def forward(self, x_RTD: Tensor, memory: Memory, view: View = SEE_ALL) -> Tensor:
        return self.out(self.mixed(x_RTD, memory, view))

    def mixed(self, x_RTD: Tensor, memory: Memory, view: View) -> Tensor:
        """The heads' concatenated outputs. R rows may be several hypotheses of each of B sources: their queries then
        become further queries of that source, so that its keys and values are never copied."""
        return self.looked(self.query(x_RTD), memory, view)

    def looked(self, q_RTD: Tensor, memory: Memory, view: View) -> Tensor:
        """`mixed`, from concatenated queries: all between the two products of a step."""
        q_RHTK = _split(q_RTD, self.heads)
        rows, heads, length, head_width = q_RHTK.shape
        sources = memory.k_BHSK.shape[0]  # not len: a size may be free in an exported graph
        q_BHTK = q_RHTK
        if rows != sources:
            q_BHTK = q_RHTK.unflatten(0, (sources, -1)).transpose(1, 2).reshape(sources, heads, -1, head_width)
        mixed_BHTK = self.mix(q_BHTK, memory.k_BHSK, memory.v_BHSK, view)
        if rows != sources:
            mixed_BHTK = mixed_BHTK.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
        return _merge(mixed_BHTK)

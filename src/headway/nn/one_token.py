"""One token of each row through a block, in few calls: the fast twin of `Block.forward`.

A step of few rows reads every weight once; beyond that, its time is the overhead of calls. Here a block of GPT-2 takes
five kernels on a GPU (`product`, `attend_step`), a block with a source eight, and on a CPU 27 operations, views
included, where its readable twin takes 41 and a dozen calls of modules. A block of Llama has the same path, with its
norms, gate and turns.

R rows, T tokens (one), C capacity, H heads, G heads of keys, D width, K head width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.fast import attention as kernels
from headway.nn import tap
from headway.nn.attention import CrossAttention, SelfAttention, scaled_dot
from headway.nn.cache import FixedCache
from headway.nn.feed_forward import MLP, GatedMLP
from headway.nn.norm import OneRMSNorm
from headway.nn.position import Position, Rotary
from headway.nn.product import product
from headway.nn.residual import Residual
from headway.nn.slots import Memory
from headway.nn.view import View

NORMS = (nn.LayerNorm, nn.RMSNorm, OneRMSNorm)


def takes(block: Any, x_RTD: Tensor) -> bool:
    """Whether `step` computes this `Block` here: one token, no trace and no gradient, parts that it has a path for."""
    watched = torch.is_grad_enabled() or block.training or tap.recording()
    attention, feed_forward = block.attention, block.feed_forward
    return (
        x_RTD.shape[1] == 1
        and not watched
        and (block.cross is None or _takes_cross(block.cross, block.around_cross))
        and type(attention) is SelfAttention
        and type(feed_forward) in FEED_FORWARD
        and type(attention.qkv) is type(attention.output) is nn.Linear
        and type(feed_forward.expand) is type(feed_forward.contract) is nn.Linear
        and _pre_norm(block.around_attention)
        and _pre_norm(block.around_feed_forward)
    )


def _takes_cross(cross: nn.Module, around: nn.Module) -> bool:
    return type(cross) is CrossAttention and type(cross.query) is type(cross.output) is nn.Linear and _pre_norm(around)


def _pre_norm(residual: nn.Module) -> bool:
    return (
        type(residual) is Residual
        and type(residual.before) in NORMS
        and type(residual.after) is type(residual.outside) is nn.Identity
    )


def step(
    block: Any, x_RTD: Tensor, view: View, cache: FixedCache, memory: Memory | None = None,
    source_view: View | None = None,
) -> Tensor:  # fmt: skip
    """x + mix(norm(x))Wᴼ, the same of a source where there is one, then x + f(norm(x)), f the feed-forward network, for
    what `takes` accepts."""
    attention, feed_forward = block.attention, block.feed_forward
    x_RD = x_RTD.squeeze(1)
    qkv_RD = product(x_RD, attention.qkv, block.around_attention.before)
    x_RD = product(_mixed(attention, qkv_RD, view, cache), attention.output, residual_RN=x_RD)
    if memory is not None and source_view is not None:
        q_RD = product(x_RD, block.cross.query, block.around_cross.before)
        looked_RD = block.cross.looked(q_RD[:, None], memory, source_view)[:, 0]
        x_RD = product(looked_RD, block.cross.output, residual_RN=x_RD)
    return FEED_FORWARD[type(feed_forward)](feed_forward, x_RD, block.around_feed_forward.before).unsqueeze(1)


def _plain(part: MLP, x_RD: Tensor, norm: nn.Module) -> Tensor:
    """x + f(norm(x)W₁)W₂"""
    return product(product(x_RD, part.expand, norm, part.activation), part.contract, residual_RN=x_RD)


def _gated(part: GatedMLP, x_RD: Tensor, norm: nn.Module) -> Tensor:
    """x + (f(norm(x)W) ⊙ norm(x)V)W₂"""
    gate_RF, value_RF = product(x_RD, part.expand, norm).chunk(2, dim=-1)
    return product(part.activation(gate_RF) * value_RF, part.contract, residual_RN=x_RD)


FEED_FORWARD: dict[type, Callable[..., Tensor]] = {MLP: _plain, GatedMLP: _gated}


def _mixed(attention: SelfAttention, qkv_RD: Tensor, view: View, cache: FixedCache) -> Tensor:
    """`SelfAttention.mixed`, in fewer calls where rows are equally long or a kernel computes all of it."""
    heads, shared = attention.heads, attention.shared
    if cache.kv_2CRHK is not None and attention.score is scaled_dot and not view.dense:
        adds = _only_adds(view.position)
        if adds and heads == shared and kernels.takes_step(qkv_RD, cache.kv_2CRHK):
            cache.used_after(1)
            return kernels.attend_step(qkv_RD, cache.kv_2CRHK, cache.clock.lengths_R)
        if cache.clock.even and view.rule is None and (adds or _turns(view, qkv_RD)):
            qkv_RHK = qkv_RD.view(len(qkv_RD), heads + 2 * shared, -1)
            qk_RHK, v_RGK = qkv_RHK[:, : heads + shared], qkv_RHK[:, heads + shared :]
            qk_RHK = qk_RHK if adds else _turned(qk_RHK, view)
            k_RGSK, v_RGSK = cache.append_one(qk_RHK[:, heads:], v_RGK)
            q_RHTK = qk_RHK[:, :heads, None]
            mixed_RHTK = F.scaled_dot_product_attention(q_RHTK, k_RGSK, v_RGSK, enable_gqa=heads != shared)
            return mixed_RHTK.reshape(len(qkv_RD), -1)
    return attention.mixed(qkv_RD[:, None], view, cache)[:, 0]


def _only_adds(position: Position | None) -> bool:
    """Whether attention has nothing to apply."""
    kind = Position if position is None else type(position)
    return kind.rotate is Position.rotate and kind.bias is Position.bias


def _turns(view: View, x_RD: Tensor) -> bool:
    """Whether `_turned` is all that the position part does: rotary, within its table and in its precision."""
    position, scene = view.position, view.scene
    if type(position) is not Rotary or scene is None or not isinstance(scene.start, int):
        return False
    table_PK = position.cos_PK
    return scene.start < len(table_PK) and torch.promote_types(x_RD.dtype, table_PK.dtype) == x_RD.dtype


def _turned(x_RHK: Tensor, view: View) -> Tensor:
    """x ⊙ cos + swap(x) ⊙ sin at one position (`Rotary`); swap exchanges the halves, so the sign is with the sine."""
    half = x_RHK.shape[-1] // 2
    if not view.turns:
        position, start = view.position, view.scene.start  # type: ignore[union-attr]
        cos_K, sin_K = position.cos_PK[start], position.sin_PK[start]  # type: ignore[union-attr, index]
        view.turns.extend(row.to(x_RHK.dtype) for row in (cos_K, torch.cat([-sin_K[:half], sin_K[half:]])))
    cos_K, sin_K = view.turns
    return torch.addcmul(x_RHK * cos_K, x_RHK.roll(half, -1), sin_K)

"""One token of each row through a block, in few calls: the fast twin of `Block.forward`.

A step of few rows reads every weight once; beyond that, its time is the overhead of calls. Here a block takes five
kernels on a GPU (`product`, `attend_step`), and on a CPU 27 operations, views included, where its readable twin takes
41 and a dozen calls of modules.

R rows, T tokens (one), C capacity, H heads, D width, K head width.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.fast import attention as kernels
from headway.nn import tap
from headway.nn.attention import SelfAttention, scaled_dot
from headway.nn.cache import FixedCache
from headway.nn.feed_forward import MLP
from headway.nn.mask import View
from headway.nn.position import Position
from headway.nn.product import product
from headway.nn.residual import Residual


def takes(block: Any, x_RTD: Tensor) -> bool:
    """Whether `step` computes this `Block` here: one token, no trace and no gradient, parts that it has a path for."""
    watched = torch.is_grad_enabled() or block.training or tap.recording()
    attention, feed_forward = block.attention, block.feed_forward
    return (
        x_RTD.shape[1] == 1
        and not watched
        and block.cross is None
        and type(attention) is SelfAttention
        and type(feed_forward) is MLP
        and type(attention.qkv) is type(attention.output) is nn.Linear
        and type(feed_forward.expand) is type(feed_forward.contract) is nn.Linear
        and _pre_norm(block.around_attention)
        and _pre_norm(block.around_feed_forward)
    )


def _pre_norm(residual: nn.Module) -> bool:
    return (
        type(residual) is Residual
        and type(residual.before) is nn.LayerNorm
        and type(residual.after) is type(residual.outside) is nn.Identity
    )


def step(block: Any, x_RTD: Tensor, view: View, cache: FixedCache) -> Tensor:
    """x + mix(norm(x))Wᴼ, then x + f(norm(x)W₁)W₂, for what `takes` accepts."""
    attention, feed_forward = block.attention, block.feed_forward
    norms = block.around_attention.before, block.around_feed_forward.before
    x_RD = x_RTD.squeeze(1)
    qkv_RD = product(x_RD, attention.qkv, norms[0])
    x_RD = product(_mixed(attention, qkv_RD, view, cache), attention.output, residual_RN=x_RD)
    inner_RF = product(x_RD, feed_forward.expand, norms[1], feed_forward.activation)
    return product(inner_RF, feed_forward.contract, residual_RN=x_RD).unsqueeze(1)


def _mixed(attention: SelfAttention, qkv_RD: Tensor, view: View, cache: FixedCache) -> Tensor:
    """`SelfAttention.mixed`, in fewer calls where rows are equally long or a kernel computes all of it."""
    heads, started = attention.heads, cache.kv_2CRHK is not None
    if started and heads == attention.shared and attention.score is scaled_dot and _only_adds(view.position):
        assert cache.kv_2CRHK is not None
        if kernels.takes_step(qkv_RD, cache.kv_2CRHK):
            cache.used_after(1)
            return kernels.attend_step(qkv_RD, cache.kv_2CRHK, cache.clock.lengths_R)
        if cache.clock.even:
            qkv_R3HK = qkv_RD.view(len(qkv_RD), 3, heads, -1)
            k_RHSK, v_RHSK = cache.append_one(qkv_R3HK[:, 1:])
            q_RHTK = qkv_R3HK[:, 0, :, None]
            return F.scaled_dot_product_attention(q_RHTK, k_RHSK, v_RHSK).reshape(len(qkv_RD), -1)
    return attention.mixed(qkv_RD[:, None], view, cache)[:, 0]


def _only_adds(position: Position | None) -> bool:
    """Whether attention has nothing to apply."""
    kind = Position if position is None else type(position)
    return kind.rotate is Position.rotate and kind.bias is Position.bias

"""Attention by tiles: queries and keys in blocks of one size, and of each block of queries only the blocks of keys that
a rule shows it. Time and memory grow with the tiles that are seen, not with the square of the length.

B batch, H heads, T queries, S keys, K head width, N blocks of queries, M blocks of keys that each sees, E tokens of a
block. A rule is a `headway.nn.mask.Mask`, a view what it becomes in one scene.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

KERNEL_BLOCK = 128  # queries and keys of a tile of flex_attention's kernels
SPARSE = 0.5  # share of the tiles up to which it is worth leaving the others out


@dataclass(frozen=True, eq=False)
class Tiling:
    """narrow_N: blocks of queries that see few blocks of keys, `table_NM`, of which the first `counts_N` are meant.
    wide_W: those that see many; None: there are none."""

    size: int
    narrow_N: Tensor
    table_NM: Tensor
    counts_N: Tensor
    wide_W: Tensor | None


@cache  # a captured step reads them as long as it is there
@torch.inference_mode(False)  # training may come after it was asked for in an evaluation
def tiling_of(rule: Any, length: int, device: torch.device) -> Tiling | None:
    """How a rule divides a sequence that looks at itself; None where it shows most of it. Remembered: a captured step
    takes no numbers from the host."""
    seen_NS = rule.tiles(rule.tile, length)
    if seen_NS.mean() > SPARSE:
        return None
    counts_N = seen_NS.sum(1)
    wide_N = counts_N > len(counts_N) * SPARSE
    [narrow_N] = np.nonzero(~wide_N)
    most = int(counts_N[narrow_N].max())
    table_NM = np.argsort(~seen_NS[narrow_N], 1, kind="stable")[:, :most]
    parts = (narrow_N, table_NM, counts_N[narrow_N], np.nonzero(wide_N)[0])
    narrow, table, counts, wide = (torch.from_numpy(part.astype(np.int64)).to(device) for part in parts)
    return Tiling(rule.tile, narrow, table, counts, wide if len(wide) else None)


def tile_attend(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, view: Any, tiling: Tiling, scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """`attend` of the tiles that the view shows."""
    rows, heads, length, _ = q_BHTK.shape
    size, blocks = tiling.size, -(-length // tiling.size)
    # (B, N, E, H, K): tokens before heads, as the projections leave them
    q, k, v = (_blocks(part, size, blocks) for part in (q_BHTK, k_BHSK, v_BHSK))
    given = view.tile_mask(tiling, q_BHTK.dtype)
    narrow_N, table_NM = tiling.narrow_N, tiling.table_NM
    few_q = q[:, narrow_N].flatten(0, 1).transpose(1, 2)
    taken = (_taken(part, table_NM.flatten()) for part in (k, v))
    few_k, few_v = (part.reshape(-1, table_NM.shape[1] * size, *part.shape[3:]).transpose(1, 2) for part in taken)
    few_mask = given.narrow.expand(rows, -1, -1, -1).reshape(-1, 1, *given.narrow.shape[2:])
    mixed = F.scaled_dot_product_attention(few_q, few_k, few_v, few_mask, dropout, scale=scale)
    mixed = mixed.transpose(1, 2).unflatten(0, (rows, -1))
    if tiling.wide_W is None:
        return mixed.flatten(1, 2)[:, :length].transpose(1, 2)
    many_q = q[:, tiling.wide_W].flatten(1, 2).transpose(1, 2)
    many = F.scaled_dot_product_attention(many_q, k_BHSK, v_BHSK, given.wide, dropout, scale=scale)
    out = torch.empty_like(q).index_copy(1, narrow_N, mixed)
    out = out.index_copy(1, tiling.wide_W, many.transpose(1, 2).unflatten(1, (-1, size)))
    return out.flatten(1, 2)[:, :length].transpose(1, 2)


def _taken(part: Tensor, at_X: Tensor) -> Tensor:
    """Some of its blocks. The gradients of both add up in the same order each time, on a CPU and on a GPU."""
    return part[:, at_X] if part.is_cuda else part.index_select(1, at_X)


def _blocks(x_BHTK: Tensor, size: int, blocks: int) -> Tensor:
    x_BTHK = F.pad(x_BHTK.transpose(1, 2), (0, 0, 0, 0, 0, blocks * size - x_BHTK.shape[2]))
    return x_BTHK.unflatten(1, (blocks, size))


@dataclass(frozen=True, eq=False)
class TileMask:
    """What each query may look at, as the kernels take it: narrow (B or 1, N, E, M·E) of the keys of its tiles, wide
    (B or 1, 1, W·E, S) of all keys."""

    narrow: Tensor
    wide: Tensor | None


def tile_mask(rule: Any, scene: Any, tiling: Tiling, dtype: torch.dtype) -> TileMask:
    size, device = tiling.size, scene.device
    within = torch.arange(size, device=device)
    rows = torch.arange(scene.rows if rule.by_row else 1, device=device)[:, None, None, None]
    query = (tiling.narrow_N[:, None] * size + within)[None, :, :, None]
    table_NM, counts_N = tiling.table_NM, tiling.counts_N
    key = (table_NM[..., None] * size + within).flatten(1)[None, :, None, :]
    meant = torch.arange(table_NM.shape[1], device=device) < counts_N[:, None]
    known = meant.repeat_interleave(size, 1)[None, :, None, :] & (key < scene.keys)
    narrow = _shown(rule, scene, rows, query, key, known, dtype)
    if tiling.wide_W is None:
        return TileMask(narrow, None)
    query = (tiling.wide_W[:, None] * size + within).flatten()[None, None, :, None]
    key = torch.arange(scene.keys, device=device)[None, None, None, :]
    return TileMask(narrow, _shown(rule, scene, rows, query, key, torch.ones_like(key, dtype=torch.bool), dtype))


def _shown(rule: Any, scene: Any, row: Tensor, query: Tensor, key: Tensor, known: Tensor, dtype: torch.dtype) -> Tensor:
    """True where a query may look, or what is added to the scores there. Queries behind the end of the sequence fill
    the last block: what they see is not used, but they must see something."""
    safe_query, safe_key = query.clamp(max=scene.queries - 1), key.clamp(max=scene.keys - 1)
    seen = rule.allows(row, safe_query, safe_key, scene) & known
    seen, added = seen | (query >= scene.queries), rule.added(safe_query, safe_key, scene)
    if added is None:
        return seen
    return added.to(dtype).expand(seen.shape).masked_fill(~seen, float("-inf"))


def block_mask_of(rule: Any, scene: Any, rows: int) -> BlockMask:
    """The block mask of a rule in blocks, without its matrix."""
    from torch.nn.attention.flex_attention import BlockMask

    counts_N, table_NN, size = _joined_tiles(rule, scene.keys, scene.device)
    counts, table = (part[None, None].repeat(rows, 1, *[1] * part.dim()) for part in (counts_N, table_NN))
    return BlockMask.from_kv_blocks(
        counts, table, BLOCK_SIZE=size, mask_mod=rule.predicate(scene), seq_lengths=(scene.queries, scene.keys),
    )  # fmt: skip


@cache
@torch.inference_mode(False)
def _joined_tiles(rule: Any, length: int, device: torch.device) -> tuple[Tensor, Tensor, int]:
    """Of each tile of the kernels how many it sees, which (those first), and their size: small blocks are joined."""
    seen_NN = rule.tiles(rule.tile, length)
    times = max(KERNEL_BLOCK // rule.tile, 1)
    blocks = -(-len(seen_NN) // times)
    seen_NN = np.pad(seen_NN, (0, blocks * times - len(seen_NN)))
    seen_NN = np.asarray(seen_NN.reshape(blocks, times, blocks, times).any((1, 3)))
    parts = seen_NN.sum(1), np.argsort(~seen_NN, 1, kind="stable")
    counts_N, table_NN = (torch.from_numpy(part.astype(np.int32)).to(device) for part in parts)
    return counts_N, table_NN, rule.tile * times

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

from headway.compiling import Uncompiled

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

KERNEL_BLOCK = 128  # queries and keys of a tile of flex_attention's kernels
SPARSE = 0.5  # share of the tiles up to which it is worth leaving the others out


@dataclass(frozen=True, eq=False)
class Tiling:
    """narrow_N: blocks of queries that see few blocks of keys, `table_NM`; the keys of those, `keys_NX`, and which of
    them are meant (a block that sees fewer than the others has some besides, and the last may be cut short).
    wide_W: blocks that see many, and the keys of each, `wide_WS`; None: there are none."""

    size: int
    narrow_N: Tensor
    table_NM: Tensor
    keys_NX: Tensor
    meant_NX: Tensor
    wide_W: Tensor | None
    wide_WS: Tensor | None


@cache  # a captured step reads them as long as it is there
@torch.inference_mode(False)  # training may come after it was asked for in an evaluation
def tiling_of(rule: Any, length: int, device: torch.device) -> Tiling | None:
    """How a rule divides a sequence that looks at itself; None where it shows most of it. Remembered: a captured step
    takes no numbers from the host."""
    size = rule.tile
    seen_NN = rule.tiles(size, length)
    if seen_NN.mean() > SPARSE:
        return None
    counts_N = seen_NN.sum(1)
    wide_N = counts_N > len(counts_N) * SPARSE
    [narrow_N], [wide_W] = np.nonzero(~wide_N), np.nonzero(wide_N)
    table_NM = np.argsort(~seen_NN[narrow_N], 1, kind="stable")[:, : counts_N[narrow_N].max()]
    keys_NX = (table_NM[..., None] * size + np.arange(size)).reshape(len(narrow_N), -1)
    meant_NM = np.arange(table_NM.shape[1]) < counts_N[narrow_N, None]
    meant_NX = meant_NM.repeat(size, 1) & (keys_NX < length)
    wide_WS = seen_NN[wide_W].repeat(size, 1)[:, :length]
    parts = (narrow_N, table_NM, keys_NX.clip(max=length - 1), meant_NX, wide_W, wide_WS)
    narrow, table, keys, meant, wide, of_wide = (torch.from_numpy(part).to(device) for part in parts)
    return Tiling(size, narrow, table, keys, meant, *((wide, of_wide) if len(wide_W) else (None, None)))


@Uncompiled  # torch 2.11's compiler cannot differentiate it on a GPU
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
    few_mask = given.narrow.expand(rows, -1, -1, -1).reshape(-1, 1, *given.narrow.shape[2:]).expand(-1, -1, size, -1)
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
    """What is added to the scores of each query, −∞ where it may not look: narrow (B or 1, N, E or 1, X) of the keys of
    its tiles, wide (B or 1, 1, W·E or 1, S) of all keys."""

    narrow: Tensor
    wide: Tensor | None


def tile_mask(rule: Any, scene: Any, tiling: Tiling, dtype: torch.dtype) -> TileMask:
    """Which blocks see which is known; what is left to ask is what the rule hides within them."""
    size, device = tiling.size, scene.device
    within = torch.arange(size, device=device)
    rows = torch.arange(scene.rows if rule.by_row else 1, device=device)[:, None, None, None]
    query = (tiling.narrow_N[:, None] * size + within)[None, :, :, None]
    narrow = _added(rule, scene, rows, query, tiling.keys_NX[None, :, None], tiling.meant_NX[None, :, None], dtype)
    if tiling.wide_W is None or tiling.wide_WS is None:
        return TileMask(narrow, None)
    query = (tiling.wide_W[:, None] * size + within).flatten()[None, None, :, None]
    key = torch.arange(scene.keys, device=device)[None, None, None, :]
    meant = tiling.wide_WS.repeat_interleave(size, 0)[None, None]
    return TileMask(narrow, _added(rule, scene, rows, query, key, meant, dtype))


def _added(rule: Any, scene: Any, row: Tensor, query: Tensor, key: Tensor, meant: Tensor, dtype: torch.dtype) -> Tensor:
    """Queries behind the end of the sequence fill the last block: what they see is not used, but they must see
    something."""
    inside = query.clamp(max=scene.queries - 1)
    seen, added = meant & rule.within().allows(row, inside, key, scene), rule.added(inside, key, scene)
    if scene.queries % rule.tile:
        seen = seen | (query >= scene.queries)
    values = torch.zeros((), dtype=dtype, device=scene.device) if added is None else added.to(dtype)
    return torch.where(seen, values, float("-inf"))


def block_mask_of(rule: Any, scene: Any, rows: int) -> BlockMask:
    """The block mask of a rule in blocks, without its matrix. Of most tiles all is seen: for those a kernel asks for no
    mask; where some is hidden, it looks up which blocks see which."""
    from torch.nn.attention.flex_attention import BlockMask

    seen_NN, some_JJ, all_JJ, size = _joined_tiles(rule, scene.keys, scene.device)
    rest, tile = rule.within(), rule.tile
    full_BJJ = all_JJ & rest.whole(size, scene)[:, None]
    part_BJJ = some_JJ & ~full_BJJ
    ask = rest.predicate(scene)

    def mask_mod(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return seen_NN[q // tile, k // tile] & ask(b, h, q, k)

    return BlockMask.from_kv_blocks(
        *_listed(part_BJJ, rows), *_listed(full_BJJ, rows), BLOCK_SIZE=size, mask_mod=mask_mod,
        seq_lengths=(scene.queries, scene.keys),
    )  # fmt: skip


def _listed(tiles_BJJ: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """How many tiles of keys each tile of queries has, and their numbers, those first."""
    tiles_B1JJ = tiles_BJJ.expand(rows, -1, -1)[:, None]
    numbers = torch.sort(tiles_B1JJ.int(), dim=-1, descending=True, stable=True).indices
    return tiles_B1JJ.sum(-1, dtype=torch.int32), numbers.int()


@cache
@torch.inference_mode(False)
def _joined_tiles(rule: Any, length: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, int]:
    """Which blocks see which; of the tiles of the kernels, each of which joins small blocks, those in which some do,
    those in which all do; and the size of those tiles."""
    seen_NN = rule.tiles(rule.tile, length)
    times = max(KERNEL_BLOCK // rule.tile, 1)
    size, joined = rule.tile * times, -(-len(seen_NN) // times)
    padded = np.pad(seen_NN, (0, joined * times - len(seen_NN))).reshape(joined, times, joined, times)
    some_JJ, all_JJ = (np.asarray(found) for found in (padded.any((1, 3)), padded.all((1, 3))))
    if length % size:  # the last tile is cut short
        all_JJ[-1], all_JJ[:, -1] = False, False
    seen, some, whole = (torch.from_numpy(part.copy()).to(device) for part in (seen_NN, some_JJ, all_JJ))
    return seen, some, whole, size

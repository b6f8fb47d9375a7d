"""Masks: which key each query may look at, as hashable values that combine with `&` and `|`.

A mask is a rule (`Causal() & Padding()`), applied to the `Scene` of one call. True means visible. Applied, a rule
becomes a `View`, which chooses the kernel: everything, a causal flag, a number of keys for each row, a boolean matrix
or a block mask of flex_attention.

B batch, T queries, S keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.compiling import Uncompiled
from headway.nn.position import Position, Scene
from headway.nn.tiles import KERNEL_BLOCK, TileMask, Tiling, block_mask_of, tile_mask, tiling_of

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


@dataclass(frozen=True, eq=False)
class View:
    """A rule applied to a scene, and the position part that turns queries and keys and adds to the scores.

    causal: the rule is the plain lower triangle. prefix_B: every query of row b sees the first prefix_B[b] keys.
    """

    causal: bool = False
    prefix_B: Tensor | None = None
    rule: Mask | None = None  # None: every key is visible
    scene: Scene | None = None
    position: Position | None = None
    # The matrix and the block mask, once for all layers.
    _built: list[Tensor] = field(default_factory=list, repr=False)
    _blocks: list[BlockMask] = field(default_factory=list, repr=False)
    _tiles: list[TileMask] = field(default_factory=list, repr=False)
    _tiling: list[Tiling | None] = field(default_factory=list, repr=False)
    turns: list[Tensor] = field(default_factory=list, repr=False)  # of one position, for a step

    @property
    def dense(self) -> bool:
        """Whether the rule has no shorter form than the matrix."""
        return self.rule is not None and not self.causal and self.prefix_B is None

    def matrix(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        """(B or 1, 1, T, S), or (T, S), True where the query may look; None: everywhere."""
        if self.causal:
            # A size that is free in an exported graph is no key of a cache.
            make = triangle.__wrapped__ if torch.compiler.is_exporting() else triangle
            return make(queries, keys, device)
        if self.prefix_B is not None:
            if not self._built or self._built[0].shape[-1] != keys:
                self._built[:] = [torch.arange(keys, device=device) < self.prefix_B[:, None, None, None]]
            return self._built[0].expand(-1, -1, queries, -1)
        if self.rule is None or self.scene is None:
            return None
        if not self._built:
            self._built.append(self.rule.matrix(self.scene))
        return self._built[0]

    @property
    def lengths_B(self) -> Tensor | None:
        """Tokens of each row before its padding, where the queries are the tokens that are looked at."""
        scene = self.scene
        if scene is None or scene.key_lengths_B is None or scene.queries != scene.keys:
            return None
        return scene.key_lengths_B

    def block_mask(self) -> BlockMask:
        """The same rule for flex_attention, which skips the blocks of keys that no query of a block sees."""
        from torch.nn.attention.flex_attention import create_block_mask  # loads a compiler

        if self.scene is None:
            raise ValueError("a block mask needs sizes: make the view with Mask.view(scene)")
        if not self._blocks:
            rule, scene = self.rule or Everything(), self.scene
            rows = scene.rows if rule.by_row or isinstance(scene.start, Tensor) else None
            sizes = rows, None, scene.queries, scene.keys
            if rule.tile and self._alone:
                self._blocks.append(block_mask_of(rule, scene, rows or 1))
            else:
                self._blocks.append(create_block_mask(rule.predicate(scene), *sizes, device=scene.device))
        return self._blocks[0]

    @property
    def _alone(self) -> bool:
        """Whether a sequence looks at itself."""
        scene = self.scene
        return scene is not None and isinstance(scene.start, int) and not scene.start and scene.queries == scene.keys

    @property
    def fits_kernels(self) -> bool:
        """Whether the blocks of the rule, if it has any, are such as flex_attention's kernels take."""
        tile = self.rule.tile if self.rule is not None else 0
        return not tile or KERNEL_BLOCK % tile == 0 or tile % KERNEL_BLOCK == 0

    def tiling(self) -> Tiling | None:
        """The tiles that are seen, where the rule is made of blocks and leaves out many."""
        if self.rule is None or self.scene is None or not self.rule.tile or not self._alone:
            return None
        if not self._tiling:
            self._tiling.append(tiling_of(self.rule, self.scene.keys, self.scene.device))
        return self._tiling[0]

    def tile_mask(self, tiling: Tiling, dtype: torch.dtype) -> TileMask:
        if not self._tiles:
            assert self.rule is not None
            self._tiles.append(tile_mask(self.rule, self.scene, tiling, dtype))
        return self._tiles[0]

    def added(self, dtype: torch.dtype) -> Tensor | None:
        """What the rule adds to the scores, (1, 1, T, S)."""
        scene = self.scene
        if self.rule is None or scene is None or not self.rule.adds:
            return None
        query_T, key_S = (torch.arange(size, device=scene.device) for size in (scene.queries, scene.keys))
        added_TS = self.rule.added(query_T[:, None], key_S, scene)
        return None if added_TS is None else added_TS[None, None].to(dtype)

    def placed(self, position: Position | None) -> View:
        """The same view, with a position part that every layer applies."""
        return replace(self, position=position)

    def rotate(self, q_BHTK: Tensor, k_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and new keys, turned by their positions."""
        if self.position is None or self.scene is None:
            return q_BHTK, k_BHTK
        return self.position.rotate(q_BHTK, k_BHTK, self.scene.start)

    def bias(self, q_BHTK: Tensor) -> Tensor | None:
        """What is added to the scores."""
        return None if self.position is None or self.scene is None else self.position.bias(q_BHTK, self.scene)


SEE_ALL = View()


def prepared(rule: Mask, scene: Scene, position: Position | None, dtype: torch.dtype) -> View:
    """The view of a rule; of one in blocks with what its kernels need, which no compiler has to see."""
    if not rule.tile:
        return rule.view(scene).placed(position)
    return _prepared(rule, scene, position, dtype, torch.compiler.is_dynamo_compiling())


@Uncompiled
def _prepared(rule: Mask, scene: Scene, position: Position | None, dtype: torch.dtype, compiled: bool) -> View:
    view = rule.view(scene).placed(position)
    tiling = view.tiling()
    if tiling is not None:
        view.tile_mask(tiling, dtype)
    if compiled and scene.device.type == "cuda" and view.fits_kernels:
        view.block_mask()
    return view


@lru_cache(maxsize=64)
def triangle(queries: int, keys: int, device: torch.device) -> Tensor:
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril()


class Mask:
    """Abstract. A rule on (row, query position, key position); positions count from the sequence's start.

    by_row: whether rows of a batch can differ, other than by where their queries start.
    """

    by_row: ClassVar[bool] = False
    tile: ClassVar[int] = 0  # tokens of the blocks that it is made of, if it is
    adds: ClassVar[bool] = False  # whether it adds something to scores

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        raise NotImplementedError

    def added(self, query: Tensor, key: Tensor, scene: Scene) -> Tensor | None:
        """What is added to the scores of these pairs; None: nothing."""
        return None

    def tiles(self, size: int, length: int) -> NDArray[np.bool_]:
        """(N, N): which blocks of so many tokens may look at which, of a sequence that looks at itself. What differs by
        row is not considered: it only hides more."""
        blocks = -(-length // size)
        return np.ones((blocks, blocks), bool)

    def simplify(self, scene: Scene) -> Mask:
        """The same rule without the parts that hide nothing in this scene."""
        return self

    def prefix(self, scene: Scene) -> Tensor | None:
        """The number of first keys that all queries of a row see, where that is the whole rule; else None."""
        return None

    def __and__(self, other: Mask) -> Mask:
        return And(self, other)

    def __or__(self, other: Mask) -> Mask:
        return Or(self, other)

    def matrix(self, scene: Scene) -> Tensor:
        """(B or 1, 1, T, S), True where the query may look."""
        rows = scene.rows if isinstance(scene.start, Tensor) or self.by_row else 1
        row_B11 = torch.arange(rows, device=scene.device)[:, None, None]
        query_BT1 = torch.arange(scene.queries, device=scene.device)[None, :, None] + scene.start_of(row_B11)
        key_11S = torch.arange(scene.keys, device=scene.device)[None, None, :]
        return self.allows(row_B11, query_BT1, key_11S, scene).expand(rows, scene.queries, scene.keys)[:, None]

    def view(self, scene: Scene) -> View:
        rule = self.simplify(scene)
        if isinstance(rule, Everything):
            return View(scene=scene)
        plain = isinstance(scene.start, int) and scene.start == 0
        causal = isinstance(rule, Causal) and plain and scene.queries == scene.keys
        return View(causal, None if causal else rule.prefix(scene), rule, scene)

    def predicate(self, scene: Scene) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """`mask_mod(b, h, q, k)` for torch's create_block_mask."""

        def mask_mod(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return self.allows(b, q + scene.start_of(b), k, scene)

        return mask_mod


@dataclass(frozen=True)
class Everything(Mask):
    """Every key."""

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        return (query >= 0) | (key >= 0)


@dataclass(frozen=True)
class Causal(Mask):
    """Keys up to and with the query's own position."""

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        return key <= query

    def simplify(self, scene: Scene) -> Mask:
        first_sees_all = isinstance(scene.start, int) and scene.keys <= scene.start + 1
        return Everything() if first_sees_all else self

    def prefix(self, scene: Scene) -> Tensor | None:
        return scene.start + 1 if isinstance(scene.start, Tensor) and scene.queries == 1 else None


@dataclass(frozen=True)
class Window(Mask):
    """Keys at most `left` before and `right` after the query."""

    left: int
    right: int = 0

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        return (key >= query - self.left) & (key <= query + self.right)

    def simplify(self, scene: Scene) -> Mask:
        # No key is that far away: only keys after the query are hidden.
        return Causal().simplify(scene) if self.right == 0 and scene.keys <= self.left + 1 else self


@dataclass(frozen=True)
class Padding(Mask):
    """Keys before the row's length; without lengths in the scene nothing is padding."""

    by_row = True

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        if scene.key_lengths_B is None:
            return Everything().allows(row, query, key, scene)
        return key < scene.key_lengths_B[row]

    def simplify(self, scene: Scene) -> Mask:
        return Everything() if scene.key_lengths_B is None else self

    def prefix(self, scene: Scene) -> Tensor | None:
        return scene.key_lengths_B


@dataclass(frozen=True)
class Segments(Mask):
    """Keys of the query's own segment (packed documents); without segments in the scene all is one segment."""

    by_row = True

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        if scene.query_segments_BT is None or scene.key_segments_BS is None:
            return Everything().allows(row, query, key, scene)
        return scene.query_segments_BT[row, query - scene.start_of(row)] == scene.key_segments_BS[row, key]

    def simplify(self, scene: Scene) -> Mask:
        return Everything() if scene.key_segments_BS is None else self


@dataclass(frozen=True)
class Related(Mask):
    """Keys to which the query's relation `name` is a number from `least` to `most`: neighbours in a graph."""

    by_row = True
    name: str
    most: int
    least: int = 0

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        relation = scene.relation(self.name)[row, query - scene.start_of(row), key]
        return (relation >= self.least) & (relation <= self.most)


@dataclass(frozen=True)
class Global(Mask):
    """The first `count` positions see every key and are seen by every query."""

    count: int

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        return (query < self.count) | (key < self.count)


@dataclass(frozen=True)
class Random(Mask):
    """Each (query, key) pair with probability `share`, by a hash of the pair and the seed."""

    share: float
    seed: int = 0

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        return mixed(query, key, self.seed) <= int(self.share * 0x80000000) - 1


def mixed(a: Tensor, b: Tensor, seed: int) -> Tensor:
    """A hash of two numbers and a seed, from 0 to 2³¹ − 1. Modulo 2³¹, so that integers of 32 and 64 bits give the
    same. `&` also keeps a compiler from multiplying the constants with its block sizes, beyond 32 bits."""
    low = 0x7FFFFFFF
    found = (a & low) * (2654435761 & low) + (b & low) * 40503 + (seed * 97531 & low) & low
    found = (found ^ (found >> 15)) * 739982445 & low
    found = (found ^ (found >> 12)) * 695872825 & low
    return found ^ (found >> 15)


@dataclass(frozen=True)
class Pair(Mask):
    """Abstract. Two rules combined."""

    left: Mask
    right: Mask

    @property
    def by_row(self) -> bool:  # type: ignore[override]
        return self.left.by_row or self.right.by_row

    @property
    def tile(self) -> int:  # type: ignore[override]
        return self.left.tile or self.right.tile

    @property
    def adds(self) -> bool:  # type: ignore[override]
        return self.left.adds or self.right.adds

    def added(self, query: Tensor, key: Tensor, scene: Scene) -> Tensor | None:
        left, right = (part.added(query, key, scene) for part in (self.left, self.right))
        return left if right is None else right if left is None else left + right


@dataclass(frozen=True)
class And(Pair):
    """Keys that both rules allow."""

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        return self.left.allows(row, query, key, scene) & self.right.allows(row, query, key, scene)

    def tiles(self, size: int, length: int) -> NDArray[np.bool_]:
        return self.left.tiles(size, length) & self.right.tiles(size, length)

    def simplify(self, scene: Scene) -> Mask:
        left, right = self.left.simplify(scene), self.right.simplify(scene)
        if isinstance(left, Everything) or left == right:
            return right
        return left if isinstance(right, Everything) else And(left, right)

    def prefix(self, scene: Scene) -> Tensor | None:
        left_B, right_B = self.left.prefix(scene), self.right.prefix(scene)
        return None if left_B is None or right_B is None else torch.minimum(left_B, right_B)


@dataclass(frozen=True)
class Or(Pair):
    """Keys that one of the rules allows."""

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        return self.left.allows(row, query, key, scene) | self.right.allows(row, query, key, scene)

    def tiles(self, size: int, length: int) -> NDArray[np.bool_]:
        return self.left.tiles(size, length) | self.right.tiles(size, length)

    def simplify(self, scene: Scene) -> Mask:
        left, right = self.left.simplify(scene), self.right.simplify(scene)
        if isinstance(left, Everything) or isinstance(right, Everything):
            return Everything()
        return Or(left, right)

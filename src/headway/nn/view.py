"""A rule of attention applied to one call: which kernel it fits, and the forms that kernels take.

B batch, T queries, S keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headway.compiling import Uncompiled
from headway.nn.position import Position, Scene
from headway.nn.ragged import CALL, Span, spans_of
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
    rule: Any = None  # a `headway.nn.mask.Mask`; None: every key is visible
    scene: Scene | None = None
    position: Position | None = None
    # The matrix and the block mask, once for all layers.
    _built: list[Tensor] = field(default_factory=list, repr=False)
    _blocks: list[BlockMask] = field(default_factory=list, repr=False)
    _tiles: list[TileMask] = field(default_factory=list, repr=False)
    _tiling: list[Tiling | None] = field(default_factory=list, repr=False)
    _spans: list[list[Span]] = field(default_factory=list, repr=False)
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
            rule, scene = self.rule, self.scene
            if rule is None:
                made = create_block_mask(_everything, None, None, scene.queries, scene.keys, device=scene.device)
            else:
                rows = scene.rows if rule.by_row or isinstance(scene.start, Tensor) else None
                if rule.tile and self._alone:
                    made = block_mask_of(rule, scene, rows or 1)
                else:
                    sizes = rows, None, scene.queries, scene.keys
                    made = create_block_mask(rule.predicate(scene), *sizes, device=scene.device)
            self._blocks.append(made)
        return self._blocks[0]

    @property
    def _alone(self) -> bool:
        """Whether a sequence looks at itself."""
        scene = self.scene
        return scene is not None and isinstance(scene.start, int) and not scene.start and scene.queries == scene.keys

    @property
    def fits_kernels(self) -> bool:
        """Whether the blocks of the rule, if it has any, fill tiles of flex_attention's kernels. Of a tile that is seen
        in part they ask for each number: two to three times as slow as gathering the blocks that are seen."""
        return self.rule is None or self.rule.tile % KERNEL_BLOCK == 0

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

    def spans(self, k_BHSK: Tensor) -> list[Span]:
        """Rows that are read together, where each of them sees a number of first keys, on a CPU, and takes a step; none
        where that is one call anyway."""
        lengths_B, scene = self.prefix_B, self.scene
        if lengths_B is None or scene is None or scene.queries > 1 or torch.compiler.is_compiling():
            return []
        if type(lengths_B) is not Tensor or lengths_B.device.type != "cpu" or len(lengths_B) == 1:
            return []  # its numbers are not at hand
        if not self._spans:
            self._spans.append(spans_of(lengths_B, CALL // (2 * k_BHSK[0, :, 0].nbytes)))
        return self._spans[0] if len(self._spans[0]) > 1 else []

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


def _everything(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return q >= 0


SEE_ALL = View()


def prepared(rule: Any, scene: Scene, position: Position | None, dtype: torch.dtype) -> View:
    """The view of a rule; of one in blocks with what its kernels need, which no compiler has to see."""
    if not rule.tile:
        return rule.view(scene).placed(position)
    return _prepared(rule, scene, position, dtype, torch.compiler.is_dynamo_compiling())


@Uncompiled
def _prepared(rule: Any, scene: Scene, position: Position | None, dtype: torch.dtype, compiled: bool) -> View:
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

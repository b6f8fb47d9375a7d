"""Masks: which key each query may look at, as hashable values that combine with `&` and `|`.

A mask is a rule (`Causal() & Padding()`), applied to the `Scene` of one call. True means visible. Applied, a rule
becomes a `View`, which chooses the kernel: everything, a causal flag, a number of keys for each row, a boolean matrix
or a block mask of flex_attention.

B batch, T queries, S keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.nn.position import Scene
from headway.nn.view import View


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

    def within(self) -> Mask:
        """What is left to ask of a query and a key whose blocks (`tiles`) may look at each other."""
        return self

    def whole(self, size: int, scene: Scene) -> Tensor:
        """(B or 1, N or 1): blocks of so many keys of which it hides none from any query. Those that may be so without
        its knowing are False."""
        return torch.zeros(1, 1, dtype=torch.bool, device=scene.device)

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
        return key >= 0

    def whole(self, size: int, scene: Scene) -> Tensor:
        return torch.ones(1, 1, dtype=torch.bool, device=scene.device)


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
class Prefix(Mask):
    """Keys up to and with the query's own position; the first `count` positions see each other, too."""

    count: int

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        return (key <= query) | (key < self.count)

    def simplify(self, scene: Scene) -> Mask:
        behind = scene.queries == 1 if isinstance(scene.start, Tensor) else scene.start >= self.count
        return Causal().simplify(scene) if behind else self  # the first positions are read at once


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

    def whole(self, size: int, scene: Scene) -> Tensor:
        if scene.key_lengths_B is None:
            return Everything().whole(size, scene)
        end_N = torch.arange(size, scene.keys + size, size, device=scene.device)
        return end_N <= scene.key_lengths_B[:, None]

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

    def within(self) -> Mask:
        return _both(self.left.within(), self.right.within())

    def whole(self, size: int, scene: Scene) -> Tensor:
        return self.left.whole(size, scene) & self.right.whole(size, scene)

    def simplify(self, scene: Scene) -> Mask:
        return _both(self.left.simplify(scene), self.right.simplify(scene))

    def prefix(self, scene: Scene) -> Tensor | None:
        left_B, right_B = self.left.prefix(scene), self.right.prefix(scene)
        return None if left_B is None or right_B is None else torch.minimum(left_B, right_B)


def _both(left: Mask, right: Mask) -> Mask:
    if isinstance(left, Everything) or left == right:
        return right
    return left if isinstance(right, Everything) else And(left, right)


@dataclass(frozen=True)
class Or(Pair):
    """Keys that one of the rules allows."""

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        return self.left.allows(row, query, key, scene) | self.right.allows(row, query, key, scene)

    def tiles(self, size: int, length: int) -> NDArray[np.bool_]:
        return self.left.tiles(size, length) | self.right.tiles(size, length)

    def within(self) -> Mask:
        in_blocks = all(isinstance(part.within(), Everything) for part in (self.left, self.right))
        return Everything() if in_blocks else self

    def whole(self, size: int, scene: Scene) -> Tensor:
        return self.left.whole(size, scene) | self.right.whole(size, scene)

    def simplify(self, scene: Scene) -> Mask:
        left, right = self.left.simplify(scene), self.right.simplify(scene)
        if isinstance(left, Everything) or isinstance(right, Everything):
            return Everything()
        return Or(left, right)

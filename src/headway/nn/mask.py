"""Masks: which key each query may look at, as hashable values that combine with `&` and `|`.

A mask is a rule (`Causal() & Padding()`); a `Scene` holds the facts of one call that the rule is applied to
(how many queries and keys, row lengths, segments). True means visible. A rule becomes a `View`: nothing at
all, a causal flag, a number of keys for each row or a boolean matrix, and so chooses the kernel; `predicate`
gives the same rule to flex_attention's block masks.

B batch, T queries, S keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from headway.nn.position import Position


@dataclass(frozen=True, eq=False)
class Scene:
    """The facts of one call. `start` is the position of the first query, for each row when rows differ."""

    queries: int
    keys: int
    device: torch.device
    start: int | Tensor = 0
    key_lengths_B: Tensor | None = None
    query_segments_BT: Tensor | None = None
    key_segments_BS: Tensor | None = None


@dataclass(frozen=True, eq=False)
class View:
    """What a kernel needs to know: everything is visible, a plain causal triangle, the first keys of each row, or
    this matrix."""

    causal: bool = False
    visible_BHTS: Tensor | None = None
    prefix_B: Tensor | None = None  # every query of row b sees the first prefix_B[b] keys
    scene: Scene | None = None  # what it was made for
    position: Position | None = None  # turns queries and keys, adds to the scores (see `placed`)
    _built: list[tuple[int, int, Tensor]] = field(default_factory=list, repr=False)

    def matrix(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        """The boolean matrix for code that has neither the flag nor the numbers (the readable path)."""
        if self.causal:
            # A size that is free in an exported graph is no key of a cache.
            make = triangle.__wrapped__ if torch.compiler.is_exporting() else triangle
            return make(queries, keys, device)
        if self.prefix_B is None:
            return self.visible_BHTS
        # Once for all layers, and only if one asks. Compared, not hashed: a size may be free in an exported graph.
        for known_queries, known_keys, matrix in self._built:
            if known_queries == queries and known_keys == keys:
                return matrix
        seen_B11S = torch.arange(keys, device=device) < self.prefix_B[:, None, None, None]
        self._built.append((queries, keys, seen_B11S.expand(-1, -1, queries, -1)))
        return self._built[-1][2]

    def placed(self, position: Position) -> View:
        """The same, with what the position has to say to every layer."""
        return replace(self, position=position)

    def rotate(self, q_BHTK: Tensor, k_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and new keys, turned by where they stand."""
        if self.position is None or self.scene is None:
            return q_BHTK, k_BHTK
        return self.position.rotate(q_BHTK, k_BHTK, self.scene.start)

    def bias(self, q_BHTK: Tensor) -> Tensor | None:
        """What is added to the scores."""
        return None if self.position is None or self.scene is None else self.position.bias(q_BHTK, self.scene)


SEE_ALL = View()


@lru_cache(maxsize=64)
def triangle(queries: int, keys: int, device: torch.device) -> Tensor:
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril()


class Mask:
    """Abstract. A rule on (row, query position, key position); positions count from the sequence's start."""

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        raise NotImplementedError

    def simplify(self, scene: Scene) -> Mask:
        """The same rule without the parts that hide nothing in this scene."""
        return self

    def by_row(self) -> bool:
        """Whether rows of a batch can differ, other than by where their queries start."""
        return False

    def prefix(self, scene: Scene) -> Tensor | None:
        """For each row the number of its first keys that all its queries see, if the rule says just that."""
        return None

    def __and__(self, other: Mask) -> Mask:
        return And(self, other)

    def __or__(self, other: Mask) -> Mask:
        return Or(self, other)

    def matrix(self, scene: Scene) -> Tensor:
        """(B or 1, 1, T, S), True where the query may look."""
        key_11S = torch.arange(scene.keys, device=scene.device)[None, None, :]
        query_1T1 = torch.arange(scene.queries, device=scene.device)[None, :, None]
        row_B11 = torch.zeros(1, 1, 1, dtype=torch.long, device=scene.device)
        if isinstance(scene.start, Tensor):
            query_1T1 = query_1T1 + scene.start[:, None, None]
            row_B11 = torch.arange(len(scene.start), device=scene.device)[:, None, None]
        else:
            query_1T1 = query_1T1 + scene.start
            if self.by_row():
                row_B11 = torch.arange(_rows(scene), device=scene.device)[:, None, None]
        seen = self.allows(row_B11, query_1T1, key_11S, scene)
        shape = torch.broadcast_shapes(seen.shape, row_B11.shape, (1, scene.queries, scene.keys))
        return seen.expand(shape)[:, None]

    def view(self, scene: Scene) -> View:
        rule = self.simplify(scene)
        if isinstance(rule, Everything):
            return View(scene=scene)
        plain = isinstance(scene.start, int) and scene.start == 0
        if isinstance(rule, Causal) and plain and scene.queries == scene.keys:
            return View(causal=True, scene=scene)
        prefix_B = rule.prefix(scene)
        if prefix_B is not None:
            return View(prefix_B=prefix_B, scene=scene)
        return View(visible_BHTS=rule.matrix(scene), scene=scene)

    def predicate(self, scene: Scene) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """`mask_mod(b, h, q, k)` for torch's create_block_mask."""

        def mask_mod(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            start = scene.start[b] if isinstance(scene.start, Tensor) else scene.start
            return self.allows(b, q + start, k, scene)

        return mask_mod


def _rows(scene: Scene) -> int:
    for facts in (scene.key_lengths_B, scene.key_segments_BS):
        if facts is not None:
            return len(facts)
    return 1


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
        # No key is that far away: only what comes after the query is hidden.
        return Causal().simplify(scene) if self.right == 0 and scene.keys <= self.left + 1 else self


@dataclass(frozen=True)
class Padding(Mask):
    """Keys before the row's length; without lengths in the scene nothing is padding."""

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        if scene.key_lengths_B is None:
            return Everything().allows(row, query, key, scene)
        return key < scene.key_lengths_B[row]

    def simplify(self, scene: Scene) -> Mask:
        return Everything() if scene.key_lengths_B is None else self

    def by_row(self) -> bool:
        return True

    def prefix(self, scene: Scene) -> Tensor | None:
        return scene.key_lengths_B


@dataclass(frozen=True)
class Segments(Mask):
    """Keys of the query's own segment (packed documents); without segments in the scene all is one segment."""

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        if scene.query_segments_BT is None or scene.key_segments_BS is None:
            return Everything().allows(row, query, key, scene)
        start = scene.start[row] if isinstance(scene.start, Tensor) else scene.start
        return scene.query_segments_BT[row, query - start] == scene.key_segments_BS[row, key]

    def simplify(self, scene: Scene) -> Mask:
        return Everything() if scene.key_segments_BS is None else self

    def by_row(self) -> bool:
        return True


@dataclass(frozen=True)
class Block(Mask):
    """Keys of the query's own block of `size` positions."""

    size: int

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        return query // self.size == key // self.size


@dataclass(frozen=True)
class Global(Mask):
    """The first `count` positions see all and are seen by all."""

    count: int

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        return (query < self.count) | (key < self.count)


@dataclass(frozen=True)
class Random(Mask):
    """Each (query, key) pair with probability `share`, the same for ever for one seed: a hash, not a draw."""

    share: float
    seed: int = 0

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        mixed = (query * 2654435761 + key * 40503 + self.seed * 97531) & 0x7FFFFFFF
        mixed = ((mixed ^ (mixed >> 15)) * 739982445) & 0x7FFFFFFF
        mixed = ((mixed ^ (mixed >> 12)) * 695872825) & 0x7FFFFFFF
        return (mixed ^ (mixed >> 15)) < int(self.share * 0x80000000)


@dataclass(frozen=True)
class And(Mask):
    left: Mask
    right: Mask

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        return self.left.allows(row, query, key, scene) & self.right.allows(row, query, key, scene)

    def simplify(self, scene: Scene) -> Mask:
        left, right = self.left.simplify(scene), self.right.simplify(scene)
        if isinstance(left, Everything) or left == right:
            return right
        return left if isinstance(right, Everything) else And(left, right)

    def by_row(self) -> bool:
        return self.left.by_row() or self.right.by_row()

    def prefix(self, scene: Scene) -> Tensor | None:
        left_B, right_B = self.left.prefix(scene), self.right.prefix(scene)
        return None if left_B is None or right_B is None else torch.minimum(left_B, right_B)


@dataclass(frozen=True)
class Or(Mask):
    left: Mask
    right: Mask

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        return self.left.allows(row, query, key, scene) | self.right.allows(row, query, key, scene)

    def simplify(self, scene: Scene) -> Mask:
        left, right = self.left.simplify(scene), self.right.simplify(scene)
        if isinstance(left, Everything) or isinstance(right, Everything):
            return Everything()
        return Or(left, right)

    def by_row(self) -> bool:
        return self.left.by_row() or self.right.by_row()

"""The first tokens and the last ones: attention that needs as much memory after a million tokens as after a thousand
(Xiao et al. 2024, "Efficient streaming language models with attention sinks").

R rows, H heads, T new positions, C places, K head width, N blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.nn.cache import Cache
from headway.nn.mask import Causal, Mask
from headway.nn.position import Scene
from headway.nn.slots import Clock, Values

TILE = 64
HELD = "held"  # the relation that says which places a query sees


@dataclass(frozen=True)
class FirstAndLast(Mask):
    """The query's own position, the `window` − 1 before it, and the first `sinks` positions of the sequence."""

    window: int
    sinks: int

    @property
    def tile(self) -> int:  # type: ignore[override]
        return TILE

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        return self.shows(query, key)

    def shows(self, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & ((key > query - self.window) | (key < self.sinks))

    def tiles(self, size: int, length: int) -> NDArray[np.bool_]:
        number_N = np.arange(-(-length // size))
        query, key = number_N[:, None], number_N
        # The first query of a block sees farthest back.
        near, first = (key + 1) * size > query * size - self.window + 1, key * size < self.sinks
        return (key <= query) & (near | first)

    def simplify(self, scene: Scene) -> Mask:
        if HELD in scene.relations:
            return Held()
        return Causal().simplify(scene) if scene.keys <= self.window else self


@dataclass(frozen=True)
class Held(Mask):
    """What the scene of a `RingCache` shows."""

    by_row = True

    def allows(self, row: Tensor, query: Tensor, key: Tensor, scene: Scene) -> Tensor:
        return scene.relation(HELD)[row, query - scene.start_of(row), key]


class RingCache(Values, Cache):
    """Keys and values of the positions that `FirstAndLast` can still show: position p stands at place p, and behind the
    sinks at a place that the position one window before had, so that the oldest is written over.

    A step replaces its tensors by new ones, as a recurrent state's: rows may differ in length, and gradients pass.
    """

    def __init__(self, rule: FirstAndLast, clock: Clock, *kv_RHCK: Tensor) -> None:
        super().__init__(*kv_RHCK)
        self.rule, self.clock = rule, clock

    @classmethod
    def fresh(cls, rule: FirstAndLast, clock: Clock, like_RHK: Tensor) -> RingCache:
        rows, heads, width = like_RHK.shape
        empty_RHCK = like_RHK.new_zeros(rows, heads, rule.sinks + rule.window, width)
        return cls(rule, clock, empty_RHCK, empty_RHCK)

    def of(self, tensors: Sequence[Tensor], clock: Any) -> Self:
        return type(self)(self.rule, clock, *tensors)

    def scene(self, clock: Clock, steps: int, segments_RT: Tensor | None) -> Scene:
        if not clock.longest:
            return clock.scene(steps, segments_RT)
        device = clock.lengths_R.device
        query_RT1 = (clock.lengths_R[:, None] + torch.arange(steps, device=device))[..., None]
        key_RS = self._held(clock.lengths_R + 1) if steps == 1 else self._held(clock.lengths_R)
        if steps > 1:
            key_RS = torch.cat([key_RS, query_RT1[..., 0]], 1)
        key_R1S = key_RS[:, None]
        seen_RTS = (key_R1S >= 0) & self.rule.shows(query_RT1, key_R1S)
        return Scene(steps, key_RS.shape[1], device, clock.start, relations={HELD: seen_RTS})

    def append(self, k_RHTK: Tensor, v_RHTK: Tensor) -> tuple[Tensor, Tensor]:
        """Of a first reading, these alone; of a step, all that is held; else what was held before, and these."""
        steps, whole = k_RHTK.shape[2], not self.clock.longest
        pairs = [(held.to(new.dtype), new) for held, new in zip(self.tensors, (k_RHTK, v_RHTK), strict=True)]
        if steps == 1 and not whole:
            place_R = self._place(self.clock.lengths_R)
            at = place_R[:, None, None, None].expand(-1, k_RHTK.shape[1], 1, k_RHTK.shape[3])
            self.tensors = tuple(held.scatter(2, at, new) for held, new in pairs)
            return self.tensors[0], self.tensors[1]
        both = [torch.cat(pair, 2) for pair in pairs]
        at = self._taken(steps)[:, None, :, None].expand(-1, k_RHTK.shape[1], -1, k_RHTK.shape[3])
        self.tensors = tuple(all_RHSK.gather(2, at) for all_RHSK in both)
        return (k_RHTK, v_RHTK) if whole else (both[0], both[1])

    def _place(self, position: Tensor) -> Tensor:
        sinks = self.rule.sinks
        return torch.where(position < sinks, position, sinks + (position - sinks) % self.rule.window)

    def _held(self, lengths_R: Tensor) -> Tensor:
        """(R, C): the position at each place when so many have been read; −1: none yet."""
        rule, last_R1 = self.rule, lengths_R[:, None] - 1
        place_C = torch.arange(rule.sinks + rule.window, device=lengths_R.device)
        latest_RC = last_R1 - (last_R1 - place_C) % rule.window  # of those that have this place
        held_RC = torch.where(place_C < rule.sinks, place_C, latest_RC)
        return held_RC.masked_fill(place_C > last_R1, -1)

    def _taken(self, steps: int) -> Tensor:
        """(R, C): where the content of each place is among those held before and the new ones."""
        before_R = self.clock.lengths_R
        after_R = before_R + steps if self.clock.ends_R is None else self.clock.ends_R
        held_RC = self._held(after_R)
        place_C = torch.arange(held_RC.shape[1], device=held_RC.device)
        new_RC = held_RC - before_R[:, None]
        return torch.where(new_RC >= 0, len(place_C) + new_RC, place_C)

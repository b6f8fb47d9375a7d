"""Windows of trajectories with what was asked for in words, and with what a camera saw.

B rows, T steps, W words of the longest command, G tasks, K steps of all episodes, P pixels of a side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.batch import column
from headway.data.augment import generator
from headway.data.steps import Ints, StepBatches, StepInputs, Steps, steps_of
from headway.data.trajectories import Trajectories
from headway.worlds.world import Bytes


@dataclass(frozen=True)
class CommandedInputs(StepInputs):
    """words_BW: the ids of the command, of which the first `counts_B` are there. pixels_BTPP3: bytes, of a policy that
    sees pictures."""

    words_BW: Tensor = column(default=None)
    counts_B: Tensor = column(empty=1, default=None)
    pixels_BTPP3: Tensor | None = column(default=None)


def with_command(plain: StepInputs, words_BW: Tensor, counts_B: Tensor, pixels_BTPP3: Tensor | None) -> CommandedInputs:
    own = {field.name: getattr(plain, field.name) for field in fields(StepInputs) if field.init}
    return CommandedInputs(**own, words_BW=words_BW, counts_B=counts_B, pixels_BTPP3=pixels_BTPP3)


def padded(ids: Sequence[Sequence[int]], width: int) -> tuple[Ints, Ints]:
    """Rows of ids, cut or filled up to this width, and how many each has."""
    rows_GW = np.zeros((len(ids), width), np.int64)
    for row_W, some in zip(rows_GW, ids, strict=True):
        row_W[: len(some)] = some[:width]
    return rows_GW, np.array([min(len(some), width) for some in ids], np.int64)


@dataclass(frozen=True, eq=False)
class CommandedSteps(Steps):
    """task_K: which of the commands a step follows."""

    task_K: Ints
    words_GW: Ints
    counts_G: Ints
    pictures_KPP3: Bytes | None = None

    def batches(self, window: int, rows: int, **how: Any) -> CommandedBatches:
        return CommandedBatches(self, window, rows, **how)

    @property
    def fingerprint(self) -> str:
        pictures = () if self.pictures_KPP3 is None else (self.pictures_KPP3,)
        parts = (self.task_K, self.words_GW, self.counts_G, *pictures)
        digest = hashlib.blake2b(super().fingerprint.encode(), digest_size=16)
        for part in parts:
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


def commanded(
    found: Trajectories, observe: Callable[[Any], Any], act: Callable[[Any], Any], scale: float,
    words: tuple[Ints, Ints], pictures: Bytes | None,
) -> CommandedSteps:  # fmt: skip
    """words: ids and counts of each of the tasks."""
    steps = steps_of(found, observe, act, scale)
    own = {field.name: getattr(steps, field.name) for field in fields(steps)}
    return CommandedSteps(
        **own, task_K=np.repeat(found.task_E, found.lengths_E), words_GW=words[0], counts_G=words[1],
        pictures_KPP3=pictures,
    )  # fmt: skip


class CommandedBatches(StepBatches):
    """shift: the pictures of a window are moved by at most so many pixels in each direction, all alike; what comes in
    at an edge repeats it (Kostrikov et al. 2020)."""

    def __init__(self, steps: CommandedSteps, window: int, rows: int, shift: int = 0, **how: Any) -> None:
        super().__init__(steps, window, rows, **how)
        self.shift = shift

    def inputs(self, at_BT: Ints, step: int) -> CommandedInputs:
        steps, task_B = self.steps, self.steps.task_K[at_BT[:, 0]]
        words_BW, counts_B = (torch.from_numpy(part[task_B]) for part in (steps.words_GW, steps.counts_G))
        pixels = None
        if steps.pictures_KPP3 is not None:
            away_B2 = generator(self.seed, step, 7).integers(-self.shift, self.shift + 1, (len(at_BT), 2))
            shown = steps.pictures_KPP3[at_BT]
            pixels = torch.from_numpy(moved(shown, away_B2) if self.shift else shown)
        return with_command(super().inputs(at_BT, step), words_BW, counts_B, pixels)


def moved(pictures_BTHWC: Bytes, away_B2: Ints) -> Bytes:
    """The pictures of each row, moved by so many pixels down and across; what comes in at an edge repeats it. Fastest
    where the last axes lie together."""
    high, wide = pictures_BTHWC.shape[2:4]
    away_B2 = away_B2.clip(-max(high, wide), max(high, wide))  # further away there is no other picture
    most = int(np.abs(away_B2).max(initial=0))
    edges = (most, most)
    framed = np.pad(pictures_BTHWC, ((0, 0), (0, 0), edges, edges, (0, 0)), "edge")
    found = np.empty_like(pictures_BTHWC)
    for row, (top, left) in enumerate((away_B2 + most).tolist()):
        found[row] = framed[row, :, top : top + high, left : left + wide]
    return found

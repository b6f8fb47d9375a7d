"""Windows of demonstrations: what was done later, commands, and pictures that are moved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.data.demonstrations import CommandedSteps, commanded, moved, padded
from headway.data.steps import best_of, hold_out_episodes, those
from headway.data.trajectories import Asked, Trajectories, read_trajectories, save_trajectories
from headway.errors import InputError
from headway.processors.steps import ActionConfig, ObservationConfig
from headway.worlds.world import Numbers

SIDE = 6


def episodes(world: str, command: str, lengths: tuple[int, ...] = (4, 7), seed: int = 0) -> Trajectories:
    draw, steps = np.random.default_rng(seed), sum(lengths)
    return Trajectories(
        world, Numbers((-np.inf,) * 2, (np.inf,) * 2), Numbers((-1.0,) * 3, (1.0,) * 3),
        draw.standard_normal((steps, 2)).astype(np.float32), draw.uniform(-1, 1, (steps, 3)).astype(np.float32),
        draw.standard_normal(steps).astype(np.float32), np.cumsum([0, *lengths[:-1]]), np.ones(len(lengths), bool),
        np.full(len(lengths), -1, np.int8), pictures_KPP3=draw.integers(0, 256, (steps, SIDE, SIDE, 3), np.uint8),
        command=command,
    )  # fmt: skip


@pytest.fixture
def both(tmp_path: Path) -> Trajectories:
    for number, (world, command) in enumerate((("one", "go left"), ("two", "go right now"))):
        save_trajectories(tmp_path / f"{world}.npz", episodes(world, command, seed=number))
    return read_trajectories([tmp_path / "one.npz", tmp_path / "two.npz"], several=True)


def steps(found: Trajectories) -> CommandedSteps:
    observe, act = ObservationConfig(2).open(Path()).encode, ActionConfig.of(found.actions).open(Path()).encode
    return commanded(found, observe, act, 1.0, padded([[5, 6], [5, 7, 8]], 3), found.pictures_KPP3)


def test_episodes_of_several_worlds_keep_what_was_asked(both: Trajectories, tmp_path: Path) -> None:
    assert both.tasks == (Asked("one", "go left"), Asked("two", "go right now"))
    assert both.task_E.tolist() == [0, 0, 1, 1] and those(both, [3, 0]).task_E.tolist() == [1, 0]
    train, held = hold_out_episodes(both, 0.5)
    assert train.tasks == held.tasks == both.tasks
    with pytest.raises(InputError, match="learn them apart"):
        read_trajectories([tmp_path / "one.npz", tmp_path / "two.npz"])
    other = tmp_path / "other.npz"
    save_trajectories(other, replace(episodes("three", ""), actions=Numbers((-2.0,) * 3, (2.0,) * 3)))
    with pytest.raises(InputError, match="other states or actions"):
        read_trajectories([tmp_path / "one.npz", other], several=True)
    with pytest.raises(InputError, match="of one world"):
        save_trajectories(tmp_path / "both.npz", both)


def test_later_actions_stay_in_their_episode(both: Trajectories) -> None:
    every = steps(both)
    batch = every.batches(3, 8, seed=2, ahead=4).batch(1)
    for row, start in enumerate(batch.examples):
        for step in range(3):
            left = max(0, min(4, int(every.ends_K[start]) - start - step))
            if not batch.there_BT[row, step]:
                left = 0
            assert batch.later_there_BTC[row, step].tolist() == [1.0] * left + [0.0] * (4 - left)  # type: ignore[index]
            done = every.actions_KA[start + step : start + step + left]
            np.testing.assert_array_equal(batch.later_BTCA[row, step, :left], done)  # type: ignore[index]


def test_a_window_has_the_command_of_its_episode(both: Trajectories) -> None:
    every = steps(both)
    batch: Any = every.batches(2, 8, seed=1).batch(0)
    for row, start in enumerate(batch.examples):
        late = start >= 11  # the first file's steps
        assert batch.inputs.words_BW[row].tolist() == ([5, 7, 8] if late else [5, 6, 0])
        assert int(batch.inputs.counts_B[row]) == 2 + late
        np.testing.assert_array_equal(batch.inputs.pixels_BTPP3[row, 0], every.pictures_KPP3[start])  # type: ignore[index]


def test_pictures_of_a_window_are_moved_alike_and_edges_repeat(both: Trajectories) -> None:
    every = steps(both)
    moved: Any = every.batches(2, 8, seed=1, shift=2).batch(3)
    again: Any = every.batches(2, 8, seed=1, shift=2).batch(3)
    np.testing.assert_array_equal(moved.inputs.pixels_BTPP3, again.inputs.pixels_BTPP3)
    found = set()
    for row, start in enumerate(moved.examples):
        wide = np.pad(every.pictures_KPP3[start], ((2, 2), (2, 2), (0, 0)), "edge")  # type: ignore[index]
        cuts = {(y, x): wide[y : y + SIDE, x : x + SIDE] for y in range(5) for x in range(5)}
        at = [key for key, cut in cuts.items() if np.array_equal(cut, moved.inputs.pixels_BTPP3[row, 0])]
        assert len(at) == 1
        found.add(at[0])
    assert len(found) > 2


def test_a_picture_that_is_moved_out_of_sight_is_its_edge() -> None:
    picture = np.arange(12, dtype=np.uint8).reshape(1, 1, 2, 2, 3)
    [[corner]] = moved(picture, np.array([[10**9, -(10**9)]]))
    assert (corner == picture[0, 0, 1, 0]).all()


def test_another_command_is_other_data(both: Trajectories) -> None:
    one = steps(both)
    assert replace(one, words_GW=one.words_GW + 1).fingerprint != one.fingerprint
    pictures = np.array(one.pictures_KPP3)
    pictures[0, 0, 0, 0] ^= 1
    assert replace(one, pictures_KPP3=pictures).fingerprint != one.fingerprint
    assert replace(one).fingerprint == one.fingerprint


def test_pictures_that_are_none_are_refused(tmp_path: Path) -> None:
    flat = episodes("one", "go")
    save_trajectories(tmp_path / "flat.npz", replace(flat, pictures_KPP3=flat.pictures_KPP3[:, :, :3]))  # type: ignore[index]
    with pytest.raises(InputError, match="pictures must be bytes"):
        read_trajectories([tmp_path / "flat.npz"])


def test_the_best_are_those_of_each_world(both: Trajectories) -> None:
    rich = replace(both, rewards_K=both.rewards_K + 10 * (np.arange(22) >= 11))
    assert best_of(rich, 0.5).task_E.tolist() == [0, 1]
    assert best_of(rich, 1.0) is rich

"""Trajectories: what was written is read, and what is wrong in a file is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.data.trajectories import Trajectories, read_trajectories, save_trajectories
from headway.errors import InputError
from headway.generate.acting import episodes, gathered
from headway.worlds import open_world
from headway.worlds.policies import policy_named


def made(name: str, count: int = 3, seed: int = 1, **how: Any) -> Trajectories:
    world = open_world(name)
    found = list(episodes([world], policy_named("random", world), count, (seed,), **how))
    return gathered(world, found, ({"policy": "random", "episodes": count},))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_trajectories(tmp_path / "one.npz", made("CartPole-v1"))
    return tmp_path / "one.npz"


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "lane-keeping"])
def test_what_was_written_is_read(name: str, tmp_path: Path) -> None:
    found = made(name, pictures=8, most=20)
    save_trajectories(tmp_path / "one.npz", found)
    read = read_trajectories([tmp_path / "one.npz"])
    assert (read.world, read.states, read.actions, read.policies) == (
        found.world, found.states, found.actions, found.policies,
    )  # fmt: skip
    for key in ("states_KS", "actions_K", "rewards_K", "begins_E", "ended_E", "succeeded_E", "pictures_KPP3"):
        assert np.array_equal(getattr(read, key), getattr(found, key)), key
    assert read.pictures_KPP3 is not None and read.pictures_KPP3.shape[1:] == (8, 8, 3)


def test_returns_are_the_sums_of_each_episode() -> None:
    found = made("Pendulum-v1", 4)
    cuts = np.split(found.rewards_K.astype(np.float64), found.begins_E[1:])
    assert found.returns_E == pytest.approx([part.sum() for part in cuts], rel=1e-5)
    assert found.lengths_E.tolist() == [len(part) for part in cuts] == [200] * 4


def test_the_same_seed_gives_the_same_episodes_and_another_one_others() -> None:
    first, again, other = made("CartPole-v1", seed=1), made("CartPole-v1", seed=1), made("CartPole-v1", seed=2)
    assert np.array_equal(first.states_KS, again.states_KS) and np.array_equal(first.actions_K, again.actions_K)
    assert not np.array_equal(first.states_KS[:5], other.states_KS[:5])
    assert len({state.tobytes() for state in first.states_KS[first.begins_E]}) == 3


def test_several_files_follow_one_another(tmp_path: Path) -> None:
    parts = [made("CartPole-v1", 2, seed) for seed in (1, 2)]
    for number, part in enumerate(parts):
        save_trajectories(tmp_path / f"{number}.npz", part)
    both = read_trajectories([tmp_path / "0.npz", tmp_path / "1.npz"])
    assert len(both) == 4 and len(both.policies) == 2
    assert both.returns_E.tolist() == [*parts[0].returns_E.tolist(), *parts[1].returns_E.tolist()]


def test_files_of_two_worlds_are_refused(file: Path, tmp_path: Path) -> None:
    save_trajectories(tmp_path / "two.npz", made("lane-keeping", 1))
    with pytest.raises(InputError, match=r"two.npz is of the world 'lane-keeping', .*one.npz of 'CartPole-v1'"):
        read_trajectories([file, tmp_path / "two.npz"])


def changed(file: Path, **arrays: Any) -> None:
    with np.load(file) as held:
        kept = {name: held[name] for name in held.files} | arrays
    np.savez(file, **{name: value for name, value in kept.items() if value is not None})


def test_a_number_that_is_none_is_named_by_episode_and_step(file: Path) -> None:
    with np.load(file) as held:
        states, begins = held["states"], held["begins"]
    states[begins[1] + 2, 0] = np.nan
    changed(file, states=states)
    with pytest.raises(InputError, match=r"one.npz: the state at step 2 of episode 1 is no finite number"):
        read_trajectories([file])


@pytest.mark.parametrize(
    "arrays, said",
    [
        ({"rewards": None}, "no file of trajectories: it has no array 'rewards'"),
        ({"about": np.array("{")}, "about cannot be read"),
        ({"about": np.array(json.dumps({"world": "x"}))}, "about does not describe a world"),
        ({"actions": np.full(1, 9)}, "an action is one of 0 to 1"),
        ({"actions": np.zeros(1, np.int64)}, "1 actions beside"),
        ({"begins": np.array([0, 0, 5])}, "begins must rise from 0"),
        ({"begins": np.array([3, 5, 7])}, "begins must rise from 0"),
        ({"begins": np.zeros(0, np.int64)}, "there is no episode in it"),
        ({"ended": np.zeros(1, np.bool_)}, "1 of ended beside 3 episodes"),
        ({"rewards": np.array(["a", "b"])}, "rewards must be numbers in 1 dimensions"),
        ({"states": np.zeros((1, 9))}, "beside"),
    ],
)
def test_a_file_that_is_wrong_is_one_line(arrays: dict[str, Any], said: str, file: Path) -> None:
    changed(file, **arrays)
    with pytest.raises(InputError) as caught:
        read_trajectories([file])
    assert said in str(caught.value) and "one.npz" in str(caught.value) and "\n" not in str(caught.value)


def test_a_damaged_file_is_one_line(file: Path) -> None:
    whole = file.read_bytes()
    draw = np.random.default_rng(0)
    for _ in range(60):
        part = bytearray(whole[: draw.integers(1, len(whole) + 1)])
        for at in draw.integers(0, len(part), 3):
            part[at] ^= int(draw.integers(1, 256))
        file.write_bytes(part)
        try:
            read_trajectories([file])  # what was changed may not matter
        except InputError as error:
            assert "\n" not in str(error)

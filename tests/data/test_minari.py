"""Data sets of minari as they lie: what its own library reads of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headway.data.trajectories import read_trajectories
from headway.errors import InputError
from small_runs import call

minari = pytest.importorskip("minari")
pytest.importorskip("h5py")
gymnasium = pytest.importorskip("gymnasium")
EpisodeBuffer = pytest.importorskip("minari.data_collector.episode_buffer").EpisodeBuffer


def collected(world: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(place))
    buffers, made = [], gymnasium.make(world)
    for seed in range(6):
        seen, _ = made.reset(seed=seed)
        made.action_space.seed(seed)
        rows: dict[str, list] = {name: [] for name in ("actions", "rewards", "terminations", "truncations")}
        observations = [seen]
        for _ in range(25):
            action = made.action_space.sample()
            seen, *moved, _ = made.step(action)
            observations.append(seen)
            for name, value in zip(rows, (action, *moved), strict=True):
                rows[name].append(value)
            if moved[1] or moved[2]:
                break
        rows["truncations"][-1] = not rows["terminations"][-1]
        arrays = {name: np.array(values) for name, values in rows.items()}
        buffers.append(EpisodeBuffer(seed, seed, None, np.array(observations), **arrays))
    how = {"algorithm_name": "random", "author": "a", "author_email": "a@b.c", "description": "some"}
    minari.create_dataset_from_buffers("tests/some-v0", buffers, env=made, **how)
    made.close()
    return place / "tests" / "some-v0"


@pytest.mark.parametrize("world", ["CartPole-v1", "Pendulum-v1"])
def test_every_step_is_that_of_the_library(tmp_path, monkeypatch, world):
    place = collected(world, tmp_path, monkeypatch)
    found = read_trajectories([place])
    assert found.world == world and len(found) == 6
    for number, episode in enumerate(minari.MinariDataset(place / "data").iterate_episodes()):
        begin = found.begins_E[number]
        steps = slice(begin, begin + len(episode.rewards))
        np.testing.assert_allclose(found.states_KS[steps], episode.observations[:-1], rtol=1e-6)
        np.testing.assert_allclose(found.actions_K[steps], episode.actions, rtol=1e-6)
        np.testing.assert_allclose(found.rewards_K[steps], episode.rewards, rtol=1e-6)
        assert found.ended_E[number] == episode.terminations[-1]
    assert found.lengths_E.sum() == len(found.rewards_K)


def test_a_policy_learns_from_it(tmp_path, monkeypatch):
    place = collected("CartPole-v1", tmp_path, monkeypatch)
    small = ("engine.steps=2", "engine.batch=32", "model.width=16", "engine.device=cpu", "data.episodes=1")
    code, out, err = call("train", "clone", "--data", place, "--out", tmp_path / "run", "--set", *small)
    assert code == 0, err


def test_a_damaged_one_is_refused(tmp_path, monkeypatch):
    place = collected("CartPole-v1", tmp_path, monkeypatch)
    (place / "data" / "main_data.hdf5").write_bytes(b"no such thing")
    with pytest.raises(InputError, match="no whole data set of minari"):
        read_trajectories([place])

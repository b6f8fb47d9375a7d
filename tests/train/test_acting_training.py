"""Policies from episodes to acting: training, resuming, evaluating, playing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import headway
from headway.data.trajectories import read_trajectories, save_trajectories
from headway.errors import InputError
from headway.generate.acting import episodes, gathered
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.loading import load
from headway.worlds.catalog import open_world
from headway.worlds.policies import policy_named
from small_runs import train_quietly

SMALL = (
    "engine.device=cpu", "engine.steps=200", "engine.batch=320", "engine.log=100", "schedule.warmup=10",
    "schedule.peak=0.005", "validation.every=100", "validation.score_every=100", "model.width=32", "model.layers=1",
    "model.dropout=0.0", "data.episodes=0",
)  # fmt: skip
WINDOW = ("model.max_length=2", "model.longest=300", "model.attention_dropout=0.0")


def driven(path: Path, skills: tuple[float, ...], count: int = 4) -> Path:
    """Episodes of lane keeping by drivers of these skills."""
    world = open_world("lane-keeping")
    found = []
    for number, skill in enumerate(skills):
        found += episodes([world], policy_named("expert", world, skill), count, (number,), noise=0.1, most=60)
    save_trajectories(path, gathered(world, found))
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return driven(tmp_path_factory.mktemp("episodes") / "lane.npz", (1.0, 0.5, 0.1), 12)


def train(recipe: str, file: Path, out: Path, *settings: str, resume: bool = False, init: str = "") -> dict[str, Any]:
    own = WINDOW if "tokens" in RECIPES[recipe].make().model.__dataclass_fields__ else ()
    before = [f"init={init}"] if init else []
    run = change(RECIPES[recipe].make(), [f"data.train={file}", *SMALL, *own, *settings, *before])
    return train_quietly(run, out, resume).scores


@pytest.fixture(scope="module")
def trained(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    assert train("decision-transformer", file, out)["validation loss"] < 0.05
    return out


@pytest.mark.parametrize("recipe", ["decision-transformer", "clone"])
def test_a_resumed_run_ends_with_the_same_bits(recipe: str, file: Path, tmp_path: Path) -> None:
    steady = ("schedule=staircase", "schedule.peak=0.001", "schedule.factor=1.0", "model.dropout=0.2")
    settings = (*steady, "engine.checkpoint=4", "validation.every=4", "validation.score_every=4")
    train(recipe, file, tmp_path / "whole", "engine.steps=12", *settings)
    train(recipe, file, tmp_path / "parts", "engine.steps=4", *settings)
    train(recipe, file, tmp_path / "parts", "engine.steps=12", *settings, resume=True)
    first, second = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("whole", "parts"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_it_drives_as_well_as_it_is_asked_to(trained: Path) -> None:
    model = load(trained, "cpu")
    far, near = (np.mean([one.total for one in model.play(6, wanted, most=60)]) for wanted in (60.0, 25.0))
    assert far > 45 and far > near + 3


def test_rows_side_by_side_act_as_one_alone(trained: Path) -> None:
    model = load(trained, "cpu")
    together = model.play(3, 50.0, most=20)
    worlds = model.open_worlds(1)
    alone = list(episodes(worlds, model.policy(50.0), 3, (1, 1), most=20))
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(np.array(one.actions), np.array(other.actions), atol=1e-5)


def test_what_was_reached_is_taken_off_the_return_that_is_wanted(trained: Path) -> None:
    model = load(trained, "cpu")
    policy = model.policy([40.0, 30.0])
    worlds = model.open_worlds(2)
    found = list(episodes(worlds, policy, 2, (1, 1), most=4))
    scale = model.observations.config.scale
    for row, wanted in enumerate((40.0, 30.0)):
        togo = [float(one[row]) * scale for one in policy.returns]
        reached = np.cumsum([0.0, *found[row].rewards[:3]])
        np.testing.assert_allclose(togo, wanted - reached, rtol=1e-5)


def test_the_best_episodes_alone(file: Path, tmp_path: Path) -> None:
    train("clone-best", file, tmp_path, "engine.steps=4", "data.best=0.25")
    config = load(tmp_path, "cpu").observations.config
    returns = read_trajectories([file]).returns_E
    assert config.returns[0] >= np.sort(returns)[len(returns) // 2] and config.world == "lane-keeping"


def test_figures_on_other_episodes(trained: Path, file: Path) -> None:
    task, model = headway.tasks.loading.task_of(trained), load(trained, "cpu")
    report = task.evaluate(model, [str(file)], {})
    found = read_trajectories([file])
    assert report.values["steps"] == len(found.rewards_K) and 0 < report.values["mse"] < 0.1


def test_data_of_another_world_is_refused(trained: Path, file: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    other = tmp_path / "other.npz"
    save_trajectories(other, replace(read_trajectories([file]), world="elsewhere"))
    with pytest.raises(InputError, match="is for 'lane-keeping', not for 'elsewhere'"):
        train("decision-transformer", other, tmp_path / "run", init=str(trained))
    task, model = headway.tasks.loading.task_of(trained), load(trained, "cpu")
    with pytest.raises(InputError, match="is of 'elsewhere', the model is for 'lane-keeping'"):
        task.evaluate(model, [str(other)], {})
    with pytest.raises(InputError, match="the valid episodes are of 'elsewhere'"):
        train("clone", file, tmp_path / "mixed", f"data.valid={other}")


def test_it_learns_on_from_an_earlier_policy(trained: Path, file: Path, tmp_path: Path) -> None:
    before = load(trained, "cpu").observations.config
    more = driven(tmp_path / "more.npz", (0.9,))
    train("decision-transformer", more, tmp_path / "run", "engine.steps=2", "data.hold_out=0.4", init=str(trained))
    after = load(tmp_path / "run", "cpu").observations.config
    assert (after.mean, after.std, after.scale) == (before.mean, before.std, before.scale)
    assert after.returns != before.returns


def test_the_finished_policy_is_played_where_its_world_is_installed(file: Path, tmp_path: Path) -> None:
    scores = train("clone", file, tmp_path / "here", "engine.steps=4", "data.episodes=2")
    assert 0 < scores["return"] <= 300 and 0 <= scores["success"] <= 1
    from dataclasses import replace

    nowhere = tmp_path / "nowhere.npz"
    save_trajectories(nowhere, replace(read_trajectories([file]), world="Nowhere-v0"))
    assert "return" not in train("clone", nowhere, tmp_path / "there", "engine.steps=4", "data.episodes=2")


def test_a_trace_lies_along_the_steps_of_an_episode(trained: Path) -> None:
    model = load(trained, "cpu")
    trace = model.trace("3")
    names = trace.tracks["steps"].labels
    assert len(names) == 6 == model.limit and [name.split()[0] for name in names[:3]] == ["return", "state", "action"]
    weights = trace.tensors["decoder.0.attention.weights"]
    assert weights.shape[-2:] == (6, 6)
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
    assert np.triu(weights[0], 1).max() == 0  # no step looks at a later one
    with pytest.raises(InputError, match="the number of an episode"):
        model.trace("left")

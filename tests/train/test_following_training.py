"""Robot policies from demonstrations to acting: they do what they are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headway
from headway.data.trajectories import read_trajectories, save_trajectories
from headway.errors import InputError
from headway.generate.acting import episodes, gathered
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.loading import load
from headway.worlds.catalog import open_world
from headway.worlds.policies import policy_named
from small_runs import check_resumed, told, train_quietly

SMALL = (
    "engine.device=cpu", "engine.steps=250", "engine.batch=128", "engine.log=100", "schedule.warmup=10",
    "schedule.peak=0.003", "validation.every=125", "validation.score_every=125", "model.width=32", "model.heads=2",
    "model.layers=1", "model.looks=1", "model.dropout=0.0", "model.max_length=2", "model.words=8", "head.chunk=3",
    "data.episodes=0",
)  # fmt: skip
SIDE = ("model.image=16", "model.stem.layers=2", "data.reads=2", "data.shift=1", "engine.batch=64")
LEFT, MIDDLE = "keep to the left", "keep to the middle"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Lane keeping by a driver who keeps to the left, and by one who keeps to the middle."""
    folder, world = tmp_path_factory.mktemp("episodes"), open_world("lane-keeping")
    found = []
    for command, skill in ((LEFT, 0.6), (MIDDLE, 1.0)):
        driver = policy_named("expert", world, skill)
        some = list(episodes([world], driver, 10, (7,), noise=0.1, intended=True, pictures=16, most=50))
        found.append(folder / f"{command.split()[-1]}.npz")
        save_trajectories(found[-1], replace(gathered(world, some), command=command))
    return found


def run_of(recipe: str, files: list[Path], *settings: str) -> Any:
    more = SIDE if recipe == "robot-pictures" else ()
    small = [one for one in SMALL if recipe != "robot-bins" or "chunk" not in one]
    return change(RECIPES[recipe].make(), [f"data.train={','.join(map(str, files))}", *small, *more, *settings])


@pytest.fixture(scope="module")
def trained(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    train_quietly(run_of("robot", files), out)
    return out


def middle(model: Any, command: str) -> float:
    """How far left of the middle it drives, in half lanes."""
    found = model.play(4, world="lane-keeping", command=command, most=60)
    return float(np.mean([state[0] for one in found for state in one.states[30:]]))


def test_it_does_what_it_is_told(trained: Path) -> None:
    model = load(trained, "cpu")
    assert [task.command for task in model.tasks()] == [LEFT, MIDDLE]
    assert middle(model, LEFT) > middle(model, MIDDLE) + 0.15


@pytest.mark.parametrize("recipe", ["robot", "robot-bins", "robot-pictures"])
def test_a_stopped_run_that_is_resumed_gives_the_same_bits(
    recipe: str, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("engine.steps=8", "engine.checkpoint=3", "validation.every=4", "validation.score_every=4")
    run = run_of(recipe, files, *settings, "model.dropout=0.1")
    train_quietly(run, tmp_path / "whole")
    check_resumed(
        monkeypatch, tmp_path / "whole", tmp_path / "parts", 6,
        lambda out, resume=False: train_quietly(run, out, resume),
    )  # fmt: skip


def test_rows_side_by_side_act_as_one_alone(trained: Path) -> None:
    model = load(trained, "cpu")
    together = model.play(3, world="lane-keeping", command=LEFT, most=12)
    worlds = model.open_worlds(1)
    alone = list(episodes(worlds, model.policy(command=LEFT), 3, (1, 1), most=12))
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(np.array(one.actions), np.array(other.actions), atol=1e-5)


def test_a_policy_that_sees_is_shown_pictures(files: list[Path], tmp_path: Path) -> None:
    scores = train_quietly(run_of("robot-pictures", files, "engine.steps=4", "data.episodes=1"), tmp_path).scores
    assert {"return", "success", f"return, {LEFT}", f"success, {MIDDLE}"} <= scores.keys()
    model = load(tmp_path, "cpu")
    config = model.observations.config
    assert (config.pixels, config.size, config.given) == (16, 2, 7)
    [episode] = model.play(1, world="lane-keeping", command=LEFT, most=3)
    assert len(episode.states[0]) == 7 and not episode.pictures
    plain = [replace(read_trajectories([file]), pictures_KPP3=None) for file in files]
    save_trajectories(tmp_path / "plain.npz", plain[0])
    with pytest.raises(InputError, match="have no pictures of one size"):
        train_quietly(run_of("robot-pictures", [tmp_path / "plain.npz"]), tmp_path / "other")
    with pytest.raises(InputError, match="pictures of 16 pixels, the model sees 24"):
        train_quietly(run_of("robot-pictures", files, "model.image=24"), tmp_path / "other")


def test_it_is_evaluated_on_episodes(trained: Path, files: list[Path]) -> None:
    task, model = headway.tasks.loading.task_of(trained), load(trained, "cpu")
    report = task.evaluate(model, [str(file) for file in files], {})
    assert report.values["episodes"] == 20 and 0 < report.values["mse"] < 0.1


def test_it_learns_on_from_an_earlier_policy(trained: Path, files: list[Path], tmp_path: Path) -> None:
    run = run_of("robot", files[:1], "engine.steps=2", f"init={trained}")
    train_quietly(run, tmp_path)
    after = load(tmp_path, "cpu")
    assert [task.command for task in after.tasks()] == [LEFT]
    assert after.text.fingerprint == load(trained, "cpu").text.fingerprint


def test_what_makes_no_sense_is_refused(trained: Path, files: list[Path], tmp_path: Path) -> None:
    model = load(trained, "cpu")
    with pytest.raises(InputError, match="it follows 2 commands"):
        model.play(1)
    with pytest.raises(InputError, match="say with --command"):
        model.tasks("CartPole-v1")
    with pytest.raises(InputError, match="needs a command"):
        model.policy(command=" ")
    assert model.unknown("keep to the right") == ["right"]
    silent = tmp_path / "silent.npz"
    save_trajectories(silent, replace(read_trajectories(files[:1]), command=""))
    with pytest.raises(InputError, match="have no command"):
        train_quietly(run_of("robot", [silent]), tmp_path / "run")
    with pytest.raises(InputError, match=r"data\.reads is 9, a state has 7"):
        train_quietly(run_of("robot", files, "data.reads=9"), tmp_path / "run")


def test_the_command_line_plays_every_command(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    film = tmp_path / "film.gif"
    said = told("play", trained, "--episodes", 2, "--steps", 4, "--film", film, "--size", 16, capsys=capsys)
    assert all(f"lane-keeping: {command}" in said for command in (LEFT, MIDDLE)) and film.exists()


def test_a_trace_is_of_what_was_seen_last(files: list[Path], tmp_path: Path) -> None:
    train_quietly(run_of("robot-pictures", files, "engine.steps=2"), tmp_path)
    model = load(tmp_path, "cpu")
    trace = model.trace(f"{LEFT} @5")
    assert trace.tracks["steps"].labels == ("step 4", "step 5") and trace.tracks["words"].labels == tuple(LEFT.split())
    assert trace.tracks["sight"].labels[:2] == ("[read]", "0,0") and trace.tracks["sight"].labels[-1] == "state"
    policy, worlds = model.policy(command=LEFT), model.open_worlds(1)
    [episode] = episodes(worlds, policy, 1, (1, 1), most=6, pictures=16)
    np.testing.assert_array_equal(trace["pixels"], episode.pictures[-1])
    weights_HNN = trace["look.0.attention.weights"]
    np.testing.assert_allclose(weights_HNN.sum(-1), 1, atol=1e-5)
    looked = model.looked(policy.window(np.array([0])))[0]
    np.testing.assert_allclose(weights_HNN[:, 0, 1:17].mean(0).reshape(4, 4), looked, atol=1e-6)
    words_HNW = trace["look.0.cross.weights"]
    assert words_HNW.shape == (2, 18, 4)
    np.testing.assert_allclose(words_HNW.sum(-1), 1, atol=1e-5)
    with pytest.raises(InputError, match="number of a step"):
        model.trace(f"{LEFT} @soon")


def test_a_film_shows_where_it_looks(files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train_quietly(run_of("robot-pictures", files, "engine.steps=2"), tmp_path / "run")
    film = tmp_path / "look.gif"
    told("play", tmp_path / "run", "--episodes", 1, "--steps", 3, "--film", film, "--look", "--size", 16, capsys=capsys)
    assert film.stat().st_size > 100


def test_a_veil_is_bright_where_the_share_is_high() -> None:
    from headway.generate.film import veiled

    share = np.zeros((4, 4))
    share[0, 0] = 1.0
    seen = veiled(np.full((40, 40, 3), 200, np.uint8), share)
    assert seen[2, 2].tolist() == [200, 200, 200] and (seen[30, 30] == 50).all()


def test_a_trace_of_a_policy_that_sees_no_pictures(trained: Path) -> None:
    model = load(trained, "cpu")
    trace = model.trace(f"{LEFT} @3")
    assert trace.tracks["sight"].labels == ("[read]", "state") and "pixels" not in trace.tensors
    assert trace["look.0.cross.keys"].shape[1] == 4 and trace["look.0.cross.weights"].shape == (2, 2, 4)


def test_a_camera_that_fails_at_the_end_loses_no_model(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(world: Any, size: int) -> Any:
        raise InputError("no picture can be drawn here")

    monkeypatch.setattr("headway.worlds.lane.LaneKeeping.picture", fail)
    scores = train_quietly(run_of("robot-pictures", files, "engine.steps=2", "data.episodes=1"), tmp_path).scores
    assert "return" not in scores and (tmp_path / "model" / "headway.json").exists()


def test_some_of_the_tasks_may_be_validated_or_learned_on(files: list[Path], tmp_path: Path) -> None:
    run = run_of("robot", files, "engine.steps=2", f"data.valid={files[1]}")
    train_quietly(run, tmp_path / "first")
    again = run_of("robot", files[1:], "engine.steps=2", "head.numbers=bins", f"init={tmp_path / 'first'}")
    train_quietly(again, tmp_path / "second")
    middles = load(tmp_path / "second", "cpu").model.head.out.middles_AV
    assert not np.allclose(middles[0], np.linspace(-1, 1, 256))  # the new head has bins of its own


def test_it_collects_what_it_is_told(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "more.npz"
    words = ("collect", "lane-keeping", "--policy", trained, "--episodes", 1, "--steps", 3, "--out", file)
    told(*words, "--command", LEFT, capsys=capsys)
    found = read_trajectories([file])
    assert len(found.rewards_K) == 3 and found.command == LEFT


@pytest.mark.parametrize("recipe", ["robot", "robot-pictures"])
def test_what_is_kept_of_earlier_steps_is_what_reading_them_again_gives(
    recipe: str, files: list[Path], tmp_path: Path
) -> None:
    train_quietly(run_of(recipe, files, "engine.steps=3", "model.max_length=3"), tmp_path)
    model = load(tmp_path, "cpu")
    policy, again = (model.policy(command=LEFT) for _ in range(2))
    again.given = lambda at_R: model.answered(again.window(at_R))[:, -1]  # type: ignore[method-assign]
    worlds = [open_world("lane-keeping") for _ in range(2)]
    kept, read = (list(episodes(worlds, one, 2, (1,), most=7)) for one in (policy, again))
    for one, other in zip(kept, read, strict=True):
        np.testing.assert_allclose(np.array(one.actions), np.array(other.actions), atol=1e-5)

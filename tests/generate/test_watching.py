"""An episode that is watched: frames of the world, and the attention that the model has at each step alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headway
from headway.data.steps import step_inputs
from headway.errors import InputError
from headway.explore.payload import payload
from headway.generate import watching
from headway.traces import Trace
from headway.worlds.catalog import open_world
from small_policies import COMMAND, balancing, practising, seeing

WINDOW, TOKENS = 3, 3


@pytest.fixture(scope="module")
def cart(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return balancing(tmp_path_factory.mktemp("cart"))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return seeing(tmp_path_factory.mktemp("driver"))


def alone(model: Any, episode: Any, step: int) -> list[np.ndarray]:
    """(H, S) of each layer: where the model looks from the state of one step, which is asked without a policy."""
    at = range(max(0, step - WINDOW + 1), step + 1)
    states = model.observations.encode(np.stack([episode.states[one] for one in at]))
    done = model.actions.encode(np.array([episode.actions[one] for one in at]))
    togo = [(model.most - sum(episode.rewards[:one])) / model.observations.config.scale for one in at]
    inputs = step_inputs(states[None], done[None], np.array([togo], np.float32), np.array([list(at)]))
    with headway.trace(model, tensors="weights") as seen:
        model.model.encode(inputs)
    last = TOKENS * (len(at) - 1) + 1
    found = [seen.tensors[f"decoder.{layer}.attention.weights"][0, :, last, : last + 1].numpy() for layer in (0, 1)]
    return [np.pad(row_HS, ((0, 0), (TOKENS * (WINDOW - len(at)), 0))) for row_HS in found]


def test_the_attention_of_a_frame_is_that_of_its_step_alone(cart: Any) -> None:
    trace = cart.trace("3")
    [episode] = cart.play(1, seed=3)
    steps = trace.about["episode"]["steps"]
    assert steps == [*range(len(episode.rewards)), len(episode.rewards)] and len(steps) > WINDOW + 2
    for frame, step in enumerate(steps[:-1]):
        for layer, row_HS in enumerate(alone(cart, episode, step)):
            np.testing.assert_allclose(trace[f"frame.decoder.{layer}.attention.weights"][:, frame], row_HS, atol=1e-6)
    assert trace.tracks["before"].labels[-5:] == ("return −1", "state −1", "action −1", "return now", "state now")
    assert not trace["frame.decoder.0.attention.weights"][:, -1].any()  # at the end nothing is looked at


def test_rewards_actions_and_pictures_are_those_of_the_world(cart: Any) -> None:
    trace, world = cart.trace("3"), open_world("CartPole-v1")
    [episode] = cart.play(1, seed=3)
    told = trace.about["episode"]
    assert told["rewards"] == episode.rewards and told["actions"] == [str(int(one)) for one in episode.actions]
    assert told["wanted"] == cart.most and trace.about["return"] == episode.total
    world.reset(episode.seed)
    for frame, action in enumerate(episode.actions):
        np.testing.assert_array_equal(trace["frames"][frame], world.picture(watching.SIDE))
        world.step(action)
    np.testing.assert_array_equal(trace["frames"][-1], world.picture(watching.SIDE))


def test_a_long_episode_has_fewer_frames_and_says_so(cart: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cart.trace("3")
    monkeypatch.setattr(watching, "FRAMES", 4)
    trace = cart.trace("3")
    every, length = trace.about["episode"]["every"], len(whole.tracks["frames"]) - 1
    assert trace.about["episode"]["steps"] == [*range(0, length, every), length] and every > 1
    assert f"Of the episode's {length} steps one in {every} is shown." in trace.about["told"]
    for name in ("frames", "frame.decoder.1.attention.weights"):
        axis = trace.axes[name].index("frames")
        np.testing.assert_array_equal(trace[name].take(range(-(-length // every)), axis),
                                      whole[name].take(range(0, length, every), axis))  # fmt: skip


def test_large_pictures_are_fewer(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    each = 3 * 16 * 16
    monkeypatch.setattr(watching, "SIZE", 5 * each)
    frames = driver.trace(COMMAND)["frames"]
    assert 2 < len(frames) <= 5 + 1 and frames.nbytes <= 5 * each + each  # and the end


def test_a_step_that_is_asked_for_is_the_one_that_is_traced(cart: Any) -> None:
    trace = cart.trace("3 @5")
    assert [label for label in trace.tracks["steps"].labels if label.startswith("state")] == [
        "state 3", "state 4", "state 5",
    ]  # fmt: skip
    np.testing.assert_allclose(
        trace["decoder.1.attention.weights"][:, -2, :-1], trace["frame.decoder.1.attention.weights"][:, 5], atol=1e-6
    )
    with pytest.raises(InputError, match="number of a step"):
        cart.trace("3 @soon")


def test_what_is_not_asked_for_is_not_played(cart: Any) -> None:
    trace = cart.trace("3", tensors="weights")
    assert "episode" not in trace.about and not [name for name in trace if name.startswith("frame")]
    assert trace.sites() == [("decoder", "attention")]


def test_a_world_without_pictures_says_so(cart: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(world: Any, size: int) -> Any:
        raise InputError("the world draws no pictures")

    monkeypatch.setattr("headway.worlds.gym.GymWorld.picture", fail)
    trace = cart.trace("3")
    assert "frames" not in trace and trace["frame.decoder.0.attention.weights"].shape[0] == 2
    assert trace.about["told"][0] == "There are no pictures of the episode: the world draws no pictures."


def test_frames_of_a_policy_that_sees_are_what_it_saw(driver: Any) -> None:
    trace = driver.trace(COMMAND)
    [episode] = driver.play(1, seed=1, pictures=16)
    steps = trace.about["episode"]["steps"][:-1]
    np.testing.assert_array_equal(trace["frames"][:-1], np.stack(episode.pictures)[steps])
    for frame, step in list(enumerate(steps))[:: max(1, len(steps) // 4)]:
        one = driver.trace(f"{COMMAND} @{step}", tensors="weights")
        for name in ("look.0.attention", "look.1.attention", "look.0.cross", "look.1.cross"):
            np.testing.assert_allclose(
                trace[f"frame.{name}.weights"][:, frame], one[f"{name}.weights"][:, 0], atol=1e-6
            )
        own = one["decoder.0.attention.weights"][:, -1]
        np.testing.assert_allclose(
            trace["frame.decoder.0.attention.weights"][:, frame, -own.shape[1] :], own, atol=1e-6
        )


def test_a_file_has_the_whole_episode(cart: Any, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(payload(cart.trace("3")))
    again = Trace.load(tmp_path / "a.safetensors").only(heads=[1])
    assert again["frame.decoder.0.attention.weights"].shape[0] == 1 and again["frames"].dtype == np.uint8
    assert again.attention().shape[-1] == WINDOW * TOKENS  # by itself, the attention of the one step


def test_a_policy_looks_no_farther_back_than_it_can(tmp_path: Path) -> None:
    model = practising(tmp_path)
    trace = model.trace("3")
    assert trace.tracks["before"].labels == ("state −4", "state −3", "state −2", "state −1", "state now")
    weights_HFS = trace["frame.decoder.1.attention.weights"][:, :-1]
    np.testing.assert_allclose(weights_HFS.sum(-1), 1, atol=1e-5)
    assert not weights_HFS[..., :2].any() and weights_HFS[:, 4:, 2:].all()
    one = model.trace("3 @6", tensors="weights")["decoder.1.attention.weights"]
    np.testing.assert_allclose(weights_HFS[:, 6], one[:, -1], atol=1e-6)

"""Worlds: gymnasium's are gymnasium's, ours follows its equations, and each is restored to the bit."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
import pytest

from headway.errors import InputError
from headway.worlds import Choices, Numbers, World, open_world
from headway.worlds.lane import BENT, HALF, SPEED, STEEPEST, STEP, WHEELBASE, LaneKeeping
from headway.worlds.policies import policy_named
from headway.worlds.world import space_of

NAMES = ("CartPole-v1", "Pendulum-v1", "lane-keeping")


def walked(world: World, steps: int, draw: np.random.Generator) -> list[tuple[Any, ...]]:
    found = []
    for _ in range(steps):
        moved = world.step(world.actions.random(draw))
        found.append((moved.state_S.tobytes(), moved.reward, moved.over))
    return found


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_a_world_of_gymnasium_is_its_own(name: str) -> None:
    ours, theirs = open_world(name), gymnasium.make(name)
    state, _ = theirs.reset(seed=7)
    space = theirs.observation_space
    assert np.array_equal(ours.reset(7), np.asarray(gymnasium.spaces.flatten(space, state), np.float32))
    assert ours.states.width == gymnasium.spaces.flatdim(space)
    draw = np.random.default_rng(0)
    for _ in range(30):
        action = ours.actions.random(draw)
        moved, (state, reward, ended, cut, _) = ours.step(action), theirs.step(action)
        assert np.array_equal(moved.state_S, np.asarray(gymnasium.spaces.flatten(space, state), np.float32))
        assert (moved.reward, moved.ended, moved.cut) == (float(reward), ended, cut)
        if moved.over:
            break


class Spoken(gymnasium.Env[Any, Any]):
    """A grid, a direction, and a mission in words, as MiniGrid's worlds have them; actions are counted from 1."""

    class Mission(gymnasium.spaces.Space[str]):
        pass

    observation_space = gymnasium.spaces.Dict({
        "direction": gymnasium.spaces.Discrete(4),
        "image": gymnasium.spaces.Box(0, 255, (2, 2), np.uint8),
        "mission": Mission(),
    })  # fmt: skip
    action_space = gymnasium.spaces.Discrete(3, start=1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.seen(2), {}

    def seen(self, direction: int) -> dict[str, Any]:
        return {"direction": direction, "image": np.full((2, 2), 9, np.uint8), "mission": "find the key"}

    def step(self, action: int) -> Any:
        return self.seen(int(action)), float(action), action == 3, False, {"success": action == 3}


def test_of_a_state_in_parts_the_numbers_are_read() -> None:
    gymnasium.register("Spoken-v0", Spoken, disable_env_checker=True)
    try:
        world = open_world("Spoken-v0")
        assert world.reset(1).tolist() == [0, 0, 1, 0, 9, 9, 9, 9] and world.states.width == 8
        moved = world.step(2)  # the third of them is gymnasium's 3
        assert moved.state_S[:4].tolist() == [0, 0, 0, 1]
        assert (moved.reward, moved.ended, moved.succeeded) == (3.0, True, True)
        with pytest.raises(InputError, match="the world 'Spoken-v0' draws no pictures"):
            world.picture(8)
    finally:
        del gymnasium.registry["Spoken-v0"]


@pytest.mark.parametrize("name", NAMES)
def test_a_world_is_restored_to_the_bit(name: str) -> None:
    world, other = open_world(name), open_world(name)
    world.reset(3)
    walked(world, 7, np.random.default_rng(0))
    other.restore(json.loads(json.dumps(world.carried())))
    assert walked(world, 5, np.random.default_rng(2)) == walked(other, 5, np.random.default_rng(2))


def test_the_lane_follows_its_equations() -> None:
    """Small steps of the same equations from the same place, in one long double computation."""
    world = LaneKeeping()
    world.reset(5)
    y, heading, place, steering = world.y, world.heading, world.place, 0.2
    moved = world.step(np.array([steering]))
    parts = 2000
    for _ in range(parts):
        bend = float(world.curvature(np.array(place)))
        along = SPEED * np.cos(heading) / (1 - y * bend)
        y += STEP / parts * SPEED * np.sin(heading)
        heading += STEP / parts * (SPEED * np.tan(steering * STEEPEST) / WHEELBASE - along * bend)
        place += STEP / parts * along
    assert world.place == pytest.approx(place, abs=0.01)
    assert world.heading == pytest.approx(heading, abs=0.01)
    assert world.y == pytest.approx(y, abs=0.02)
    assert moved.state_S[0] == np.float32(world.y / HALF)


def test_the_roads_bend_as_much_as_they_should() -> None:
    places = np.linspace(0, 3000, 20_000)
    world, bends = LaneKeeping(), []
    for seed in range(20):
        world.reset(seed)
        bends.append(world.curvature(places))
    assert np.std(bends) == pytest.approx(BENT, rel=0.1)


@pytest.mark.parametrize(
    "name, expert, random", [("CartPole-v1", 490, 60), ("Pendulum-v1", -450, -700), ("lane-keeping", 290, 60)]
)
def test_experts_do_what_random_actions_do_not(name: str, expert: float, random: float) -> None:
    from headway.generate.acting import episodes

    world = open_world(name)
    best, worst = (
        [episode.total for episode in episodes([world], policy_named(policy, world), 5, (1,))]
        for policy in ("expert", "random")
    )
    assert min(best) > expert and np.mean(worst) < random


def test_the_car_is_drawn_on_the_road_it_is_on() -> None:
    world = LaneKeeping()
    world.reset(1)
    seen = world.picture(64)
    assert seen.shape == (64, 64, 3) and seen.dtype == np.uint8
    assert seen[-1, 32].tolist() == [200, 40, 40]
    world.y = 6.0
    off = world.picture(64)
    assert off[-1, 5].tolist() == [70, 120, 60] and (off != seen).any()


def test_a_world_of_gymnasium_is_drawn() -> None:
    world = open_world("CartPole-v1")
    world.reset(1)
    assert world.picture(48).shape == (48, 48, 3)


@pytest.mark.parametrize("space", [Choices(3), Numbers((-1.0, -np.inf), (1.0, np.inf))])
def test_spaces_are_written_and_read(space: Any) -> None:
    assert space_of(space.plain()) == space


def test_noise_of_choices_is_a_share_and_of_numbers_a_deviation() -> None:
    draw = np.random.default_rng(0)
    kept = [Choices(4).shaken(2, 0.4, draw) == 2 for _ in range(4000)]
    assert np.mean(kept) == pytest.approx(0.6 + 0.4 / 4, abs=0.03)
    moved = [float(Numbers((-10.0,), (10.0,)).shaken(np.zeros(1), 0.1, draw)[0]) for _ in range(4000)]
    assert np.std(moved) == pytest.approx(1.0, rel=0.05)
    assert Numbers((-1.0,), (1.0,)).shaken(np.array([1.0]), 5.0, draw)[0] <= 1


@pytest.mark.parametrize(
    "name, said",
    [
        ("CartPol-v1", "there is no world 'CartPol-v1'; did you mean 'CartPole-v1'?"),
        ("lane keeping please", "headway collect --worlds shows those there are"),
        ("CartPole-v99", "CartPole"),
    ],
)
def test_an_unknown_world_is_one_line(name: str, said: str) -> None:
    with pytest.raises(InputError, match=".*") as caught:
        open_world(name)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_world_without_an_expert_says_which_have_one() -> None:
    with pytest.raises(InputError, match=r"'FrozenLake-v1' has no expert here; these have one: .*CartPole-v1"):
        policy_named("expert", open_world("FrozenLake-v1"))


def test_minigrid_is_seen_as_ones_and_zeros_and_says_when_it_succeeds() -> None:
    pytest.importorskip("minigrid")
    world = open_world("MiniGrid-Empty-5x5-v0")
    state_S = world.reset(1)
    assert set(np.unique(state_S)) == {0.0, 1.0} and world.states.width == 7 * 7 * 20 + 4
    turn, ahead = 1, 2
    moves = [ahead, ahead, turn, ahead, ahead]  # to the other corner
    found = [world.step(action) for action in moves]
    assert [one.succeeded for one in found] == [False] * 4 + [True] and found[-1].ended
    carried = world.carried()
    assert (world.restore(carried) == found[-1].state_S).all()


def test_meta_world_begins_by_its_seed_and_its_expert_succeeds() -> None:
    if not find_spec("metaworld"):  # not imported: MuJoCo is to be told first how to draw
        pytest.skip("metaworld is not installed")
    world = open_world("Meta-World/reach-v3")
    first, same, other = (world.reset(seed).copy() for seed in (5, 5, 6))
    assert (first == same).all() and (first != other).any() and world.states.width == 39
    from headway.generate.acting import episodes

    [episode] = episodes([world], policy_named("expert", world), 1, (1,), most=120)
    assert episode.succeeded
    state = world.restore(world.carried())
    again = world.restore(world.carried())
    assert (state == again).all()
    with pytest.raises(InputError, match="Meta-World has no task 'reach-v9'"):
        open_world("Meta-World/reach-v9")


def test_a_picture_of_meta_world_shows_where_the_goal_is() -> None:
    if not find_spec("metaworld"):  # not imported: MuJoCo is to be told first how to draw
        pytest.skip("metaworld is not installed")
    world = open_world("Meta-World/reach-v3")
    pictures = []
    for seed in (5, 6):  # the hand begins at one place
        world.reset(seed)
        try:
            pictures.append(world.picture(64).astype(int))
        except InputError as error:
            pytest.skip(str(error))
    changed_PP = np.abs(pictures[0] - pictures[1]).max(-1) > 40
    world.close()
    assert changed_PP.sum() >= 16 and changed_PP[8:56, 8:56].sum() == changed_PP.sum()

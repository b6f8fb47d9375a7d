"""Policies that learn by acting: rollouts, advantages, learning, resuming."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from headway.errors import InputError
from headway.generate.rollout import Rollout
from headway.models.action_heads import Chosen, Gaussian
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.loading import load
from headway.tasks.reinforcement import PpoObjective, Reinforcement
from headway.tasks.start import RunContext
from headway.train.log import Log
from headway.train.parallel.ranks import ALONE
from small_runs import train_quietly

SMALL = (
    "engine.device=cpu", "data.world=lane-keeping", "data.rows=3", "data.rollout=24", "data.judged=2",
    "data.episodes=0", "model.width=16", "model.max_length=7", "engine.log=10", "validation.every=8",
    "validation.score_every=8",
)  # fmt: skip
OWN = {"ppo-rnn": ("model.layers=2",), "ppo-transformer": ("model.past=3",)}


def make(recipe: str, *settings: str) -> Any:
    return change(RECIPES[recipe].make(), [*SMALL, *settings])


def task(recipe: str, tmp_path: Path, *settings: str) -> Reinforcement:
    context = RunContext(tmp_path, Log(quiet=True), torch.device("cpu"), torch.float32, ALONE)
    return Reinforcement(make(recipe, *settings), context)


def rollout(rows: int = 3, steps: int = 9) -> Rollout:
    draw = np.random.default_rng(0)
    over = draw.random((rows, steps)) < 0.3
    fresh = np.concatenate([np.zeros((rows, 1), bool), over[:, :-1]], 1)
    floats = {
        name: draw.standard_normal((rows, steps)).astype(np.float32) for name in ("log_p_RT", "values_RT", "rewards_RT")
    }
    return Rollout(
        states_RTS=draw.standard_normal((rows, steps, 2)).astype(np.float32),
        actions_RTA=np.zeros((rows, steps, 2), np.float32), over_RT=over, fresh_RT=fresh,
        times_RT=np.zeros((rows, steps), np.int64), memory_RTM=np.zeros((rows, steps, 0), np.float32),
        last_R=draw.standard_normal(rows).astype(np.float32), **floats,
    )  # fmt: skip


def test_advantages_are_sums_of_discounted_surprises() -> None:
    """Σ (γλ)ᵏ δₜ₊ₖ up to the episode's end, written out."""
    found, discount, trace = rollout(), 0.9, 0.8
    gains, targets = found.advantages(discount, trace)
    rows, steps = gains.shape
    for row in range(rows):
        for t in range(steps):
            total = 0.0
            for k in range(t, steps):
                ahead = found.last_R[row] if k == steps - 1 else found.values_RT[row, k + 1]
                stays = not found.over_RT[row, k]
                surprise = found.rewards_RT[row, k] + discount * ahead * stays - found.values_RT[row, k]
                total += (discount * trace) ** (k - t) * surprise
                if not stays:
                    break
            assert gains[row, t] == pytest.approx(total, abs=1e-5)
    np.testing.assert_allclose(targets, gains + found.values_RT)


def test_parts_of_episodes_have_every_step_once() -> None:
    found = rollout()
    seen = []
    for row, start, length in found.segments(4).tolist():
        assert 1 <= length <= 4 and not found.fresh_RT[row, start + 1 : start + length].any()
        seen += [(row, step) for step in range(start, start + length)]
    assert sorted(seen) == [(row, step) for row in range(3) for step in range(9)]
    back = Rollout.of(found.tensors()).tensors()
    assert all(torch.equal(tensor, back[name]) for name, tensor in found.tensors().items())


@pytest.mark.parametrize("recipe", ["ppo", "ppo-rnn", "ppo-transformer"])
def test_what_was_done_is_as_probable_when_it_is_learned_from(recipe: str, tmp_path: Path) -> None:
    """Steps one by one while acting, and parts of episodes at once while learning: the same probabilities."""
    tried = task(recipe, tmp_path, *OWN.get(recipe, ()))
    for step in (0, tried.per_rollout):  # a second rollout begins in the middle of episodes
        for part in range(4):
            batch = tried.batch(step + part)
            given, _ = tried.model.head.both(tried.model.encode(batch.inputs))
            log_p = tried.model.head.out.log_p(given, batch.inputs.actions_BTA)
            torch.testing.assert_close(log_p * batch.there_BT, batch.log_p_BT * batch.there_BT, atol=2e-5, rtol=1e-4)


def test_every_step_is_in_one_batch_of_an_epoch(tmp_path: Path) -> None:
    tried = task("ppo", tmp_path)
    epochs = [sum(tried.batch(step).tokens for step in range(first, first + 4)) for first in (0, 4)]
    assert epochs == [3 * 24, 3 * 24]


def test_the_clipped_loss_is_that_of_the_paper() -> None:
    class Given:
        log_p_BT, gain_BT = torch.zeros(1, 4), torch.tensor([[1.0, -1.0, 1.0, -1.0]])

    objective = PpoObjective(torch.nn.Identity(), RECIPES["ppo"].make().objective)
    log_p = torch.log(torch.tensor([[2.0, 2.0, 0.5, 0.5]]))
    torch.testing.assert_close(objective.loss(log_p, Given()), torch.tensor([[-1.2, 2.0, -0.5, 0.8]]))  # type: ignore[arg-type]


def test_choices_and_numbers_are_drawn_by_their_probabilities() -> None:
    chance = (torch.arange(20_000) + 0.5)[:, None] / 20_000
    given = torch.tensor([[0.3, -1.0, 1.2]]).expand(20_000, 3)
    chosen = Chosen()
    torch.testing.assert_close(chosen.drawn(given, chance).mean(0), given[0].softmax(-1), atol=1e-3, rtol=0)
    assert chosen.drawn(given[:1], torch.ones(1, 1)).tolist() == [[0.0, 0.0, 1.0]]
    other = torch.distributions.Categorical(logits=given[0])
    torch.testing.assert_close(chosen.entropy(given[:1])[0], other.entropy())
    normal = Gaussian(2)
    wanted = torch.distributions.Normal(torch.zeros(2), normal.log_std_A.detach().exp())
    drawn = normal.drawn(torch.zeros(20_000, 2), chance.expand(-1, 2)).detach()
    torch.testing.assert_close(drawn.std(0), wanted.stddev, atol=2e-3, rtol=0)
    at = torch.tensor([0.2, -0.7])
    torch.testing.assert_close(normal.log_p(torch.zeros(2), at), wanted.log_prob(at).sum())
    torch.testing.assert_close(normal.entropy(torch.zeros(2)), wanted.entropy().sum())


@pytest.mark.parametrize("recipe, stop", [("ppo", 11), ("ppo-rnn", 8), ("ppo-transformer", 8), ("reinforce", 3)])
def test_a_resumed_run_ends_with_the_same_bits(recipe: str, stop: int, tmp_path: Path) -> None:
    """Stopped in the middle of a rollout, of its episodes, and of a world."""
    settings = ("schedule=staircase", "schedule.peak=0.001", "schedule.factor=1.0", f"engine.checkpoint={stop}")

    def train(out: str, steps: int, resume: bool = False) -> None:
        train_quietly(make(recipe, *settings, f"engine.steps={steps}"), tmp_path / out, resume)

    train("whole", 20)
    train("parts", stop)
    train("parts", 20, resume=True)
    first, second = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("whole", "parts"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_it_learns_to_balance(tmp_path: Path) -> None:
    settings = (
        "engine.steps=240", "data.world=CartPole-v1", "data.rows=8", "data.rollout=128", "model.width=64",
        "model.max_length=128", "validation.every=120", "validation.score_every=120", "data.judged=4",
    )  # fmt: skip
    scores = train_quietly(make("ppo", *settings), tmp_path).scores
    assert scores["validation return"] > 80  # at random about 22
    model = load(tmp_path, "cpu")
    assert np.mean([one.total for one in model.play(3)]) > 60 and model.world == "CartPole-v1"


def test_what_it_refuses(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="learns from episodes that were collected"):
        make("ppo", "model=decision-transformer")
    with pytest.raises(InputError, match="reads no files: set data.world"):
        make("ppo", "data.train=x.npz")
    with pytest.raises(InputError, match=r"objective.clip must lie between 0 and 1"):
        make("ppo", "objective.clip=2")
    with pytest.raises(InputError, match="did you mean 'CartPole-v1'"):
        train_quietly(make("ppo", "data.world=CartPol-v1"), tmp_path)


@pytest.mark.parametrize("recipe", ["ppo-rnn", "ppo-transformer"])
def test_a_rollout_in_bfloat16(recipe: str, tmp_path: Path) -> None:
    context = RunContext(tmp_path, Log(quiet=True), torch.device("cpu"), torch.bfloat16, ALONE)
    tried = Reinforcement(make(recipe), context)
    batch = tried.batch(0)
    given, _ = tried.model.head.both(tried.model.encode(batch.inputs))
    assert given.dtype == torch.bfloat16 and torch.isfinite(given).all()


def test_it_goes_on_in_another_world_of_the_same_states_and_actions(tmp_path: Path) -> None:
    """As in a longer corridor: weights and how states are read come along, the model is then for the new world."""
    steps = ("engine.steps=8", "data.world=CartPole-v1")
    train_quietly(make("ppo-rnn", *steps), tmp_path / "first")
    onward = make("ppo-rnn", "engine.steps=1", "data.world=CartPole-v0", "schedule.peak=1e-30")
    train_quietly(replace(onward, init=str(tmp_path / "first")), tmp_path / "second")
    first, second = (load(tmp_path / name, "cpu") for name in ("first", "second"))
    assert (first.world, second.world) == ("CartPole-v1", "CartPole-v0")
    assert first.observations.config.mean == second.observations.config.mean
    for name, weight in first.model.state_dict().items():
        torch.testing.assert_close(second.model.state_dict()[name], weight, rtol=0, atol=1e-6)
    with pytest.raises(InputError, match="has other states or actions than 'lane-keeping'"):
        train_quietly(replace(make("ppo-rnn", "engine.steps=1"), init=str(tmp_path / "first")), tmp_path / "third")

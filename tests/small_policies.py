"""Small policies for the tests: one that balances CartPole's pole, and one that sees the lane it drives in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headway.data.trajectories import save_trajectories
from headway.generate.acting import episodes, gathered
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.loading import load
from headway.worlds.catalog import open_world
from headway.worlds.policies import policy_named
from small_runs import train_quietly

SET = (
    "engine.device=cpu", "engine.steps=2", "model.width=16", "model.heads=2", "model.max_length=3",
    "validation.every=2", "validation.score_every=2", "data.episodes=0",
)  # fmt: skip
CART = ("engine.batch=80", "model.layers=2")
SEES = (
    "engine.batch=32", "model.layers=1", "model.looks=2", "model.words=8", "head.chunk=2", "model.image=16",
    "model.stem.layers=2", "data.reads=2", "data.shift=1",
)  # fmt: skip
PRACTISES = (
    "engine.device=cpu", "data.world=CartPole-v1", "data.rows=2", "data.rollout=8", "data.judged=1",
    "data.episodes=0", "engine.steps=2", "model.width=16", "model.heads=2", "model.past=2", "model.max_length=4",
    "validation.every=2", "validation.score_every=2",
)  # fmt: skip
COMMAND = "keep to the middle"


def learned(recipe: str, world_name: str, out: Path, *settings: str, command: str = "", **how: Any) -> Any:
    """A model after a few steps on episodes of the world's expert."""
    world = open_world(world_name)
    found = list(episodes([world], policy_named("expert", world), 10, (3,), noise=0.3, most=40, **how))
    some = gathered(world, found)
    save_trajectories(out / "episodes.npz", replace(some, command=command) if command else some)
    return opened(recipe, out, f"data.train={out / 'episodes.npz'}", *SET, *settings)


def opened(recipe: str, out: Path, *settings: str) -> Any:
    """A model after a few steps, its weights disturbed."""
    train_quietly(change(RECIPES[recipe].make(), list(settings)), out / "run")
    model = load(out / "run", "cpu")
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():  # after so few steps attention is still the same everywhere
        for weight in model.model.parameters():
            weight.add_(torch.randn(weight.shape, generator=draw) * 0.25)
    return model


def practising(out: Path) -> Any:
    """A Transformer over its own past, which learned by acting."""
    return opened("ppo-transformer", out, *PRACTISES)


def balancing(out: Path) -> Any:
    return learned("decision-transformer", "CartPole-v1", out, *CART)


def seeing(out: Path) -> Any:
    return learned("robot-pictures", "lane-keeping", out, *SEES, command=COMMAND, pictures=16, intended=True)

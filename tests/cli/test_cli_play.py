"""headway play, and collecting with a trained policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.data.trajectories import read_trajectories, save_trajectories
from headway.generate.acting import episodes, gathered
from headway.plain import change
from headway.recipes import RECIPES
from headway.worlds.catalog import open_world
from headway.worlds.policies import policy_named
from small_runs import train_quietly

SET = (
    "engine.device=cpu", "engine.steps=6", "engine.batch=80", "model.width=16", "model.layers=1", "model.max_length=4",
    "validation.every=3", "validation.score_every=3", "data.episodes=0",
)  # fmt: skip


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("policy")
    world = open_world("CartPole-v1")
    found = list(episodes([world], policy_named("expert", world), 12, (3,), noise=0.6))
    save_trajectories(place / "cart.npz", gathered(world, found))
    run = change(RECIPES["decision-transformer"].make(), [f"data.train={place / 'cart.npz'}", *SET])
    train_quietly(run, place / "run")
    return place


def test_tells_the_return_and_its_interval(headway: Any, policy: Path) -> None:
    said = headway("play", str(policy / "run"), "--episodes", "3", "--steps", "15").out
    assert said.startswith("return ") and " ± " in said and "steps" in said
    found = json.loads(headway("play", str(policy / "run"), "--episodes", "3", "--steps", "15", "--json").out)
    assert found["world"] == "CartPole-v1" and found["rows"][0]["return"] <= 15 and found["correlation"] is None


def test_several_returns_and_one_that_it_never_saw(headway: Any, policy: Path) -> None:
    words = ("--return", "15", "--return", "30", "--return", "9000", "--episodes", "2", "--steps", "10")
    said = headway("play", str(policy / "run"), *words)
    assert [line.split()[0] for line in said.out.splitlines()[:3]] == ["wanted"] * 3
    assert "a return of 9000 is beyond what it has learned from" in said.err and "extrapolate" in said.err


def test_exploring_a_policy_needs_no_text(headway: Any, policy: Path, tmp_path: Path) -> None:
    file = tmp_path / "episode.html"
    assert headway("explore", str(policy / "run"), "--html", str(file)).code == 0
    assert 'type="application/octet-stream"' in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_a_film_of_the_best_the_median_and_the_worst(suffix: str, headway: Any, policy: Path, tmp_path: Path) -> None:
    from PIL import Image

    film = tmp_path / f"cart.{suffix}"
    words = ("--episodes", "3", "--steps", "6", "--film", str(film), "--size", "48")
    assert headway("play", str(policy / "run"), *words).code == 0
    with Image.open(film) as opened:
        assert opened.width == 48 and opened.height > 48 and opened.n_frames >= 6


def test_a_trained_policy_collects(headway: Any, policy: Path, tmp_path: Path) -> None:
    out = tmp_path / "more.npz"
    words = ("--policy", str(policy / "run"), "--episodes", "3", "--steps", "9", "--out", str(out))
    assert headway("collect", "CartPole-v1", *words).code == 0
    assert len(read_trajectories([out])) == 3


@pytest.mark.parametrize(
    "words, said",
    [
        (("--world", "lane-keeping"), "'lane-keeping' has other states or actions than the model"),
        (("--world", "Pendulum-v1"), "'Pendulum-v1' has other states or actions than the model"),
        (("--world", "CartPol-v1"), "did you mean 'CartPole-v1'?"),
        (("--film", "x.mp4"), "a film is written as .gif or .webp"),
        (("--film", "nowhere/x.gif"), "there is no folder nowhere"),
        (("--return", "nan"), "--return is nan: a finite number"),
        (("--episodes", "2000000"), "1,000,000 at most"),
    ],
)
def test_what_it_refuses(words: tuple[str, ...], said: str, refuses: Any, policy: Path) -> None:
    assert said in refuses("play", str(policy / "run"), *words)


def test_another_model_does_not_play(refuses: Any, policy: Path) -> None:
    assert "headway play" in refuses("predict", str(policy / "run"), "--text", "left")


def test_a_policy_that_is_not_told_takes_no_return(refuses: Any, policy: Path, tmp_path: Path) -> None:
    run = change(RECIPES["clone"].make(), [f"data.train={policy / 'cart.npz'}", *SET])
    train_quietly(run, tmp_path / "run")
    assert refuses("play", str(tmp_path / "run"), "--return", "100").startswith("--return has no meaning here")

"""headway collect"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.data.trajectories import read_trajectories


def test_collects_episodes_and_says_what_they_reached(headway: Any, tmp_path: Path) -> None:
    file = tmp_path / "cart.npz"
    words = ("--policy", "expert", "--noise", "0.5", "--episodes", "4", "--seed", "3", "--out", str(file))
    said = headway("collect", "CartPole-v1", *words)
    found = read_trajectories([file])
    assert len(found) == 4 and found.policies[0] == {
        "policy": "expert",
        "noise": 0.5,
        "intended": False,
        "episodes": 4,
        "seed": 3,
        "skill": 1.0,
    }
    assert f"4 episodes, {len(found.rewards_K):,} steps" in str(said) and "return: " in str(said)


def test_says_how_often_a_world_was_mastered(headway: Any, tmp_path: Path) -> None:
    said = headway("collect", "lane-keeping", "--policy", "expert", "--episodes", "2", "--out", str(tmp_path / "a.npz"))
    assert "succeeded: 100.0 %" in str(said)


def test_a_file_that_is_there_is_kept(headway: Any, refuses: Any, tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    file.write_text("mine")
    words = ("collect", "lane-keeping", "--episodes", "1", "--out", str(file))
    assert refuses(*words).endswith("a.npz is there already: choose another --out, or pass --overwrite")
    assert file.read_text() == "mine"
    assert headway(*words, "--overwrite").code == 0 and len(read_trajectories([file])) == 1


def test_lists_worlds(headway: Any) -> None:
    said = str(headway("collect", "--worlds"))
    assert "lane-keeping" in said and "CartPole-v1" in said


@pytest.mark.parametrize(
    "words, said",
    [
        ((), "name a world, such as CartPole-v1"),
        (("CartPol-v1",), "did you mean 'CartPole-v1'?"),
        (("CartPole-v1", "--policy", "clever"), "no policy 'clever': write expert, random or a model's folder"),
        (("CartPole-v1", "--skill", "0.5"), "--skill is of an expert, not of the policy 'random'"),
        (("CartPole-v1", "--out", "x.txt"), "x.txt: trajectories are written as an .npz"),
        (("CartPole-v1", "--out", "nowhere/x.npz"), "there is no folder nowhere"),
        (("CartPole-v1", "--pictures", "9999"), "4,096 pixels a side at most"),
    ],
)
def test_what_it_refuses(words: tuple[str, ...], said: str, refuses: Any) -> None:
    assert said in refuses("collect", *words)

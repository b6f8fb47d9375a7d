"""Hopper, a leg that has to run, from episodes of three levels that are collected here: random actions, a policy that
has practised a little, and one that has practised long.

    PYTHONPATH=src python benchmarks/hopper.py --parallel 2 --parts practise collect
    PYTHONPATH=src python benchmarks/hopper.py --parallel 8 --parts train --device cuda
    PYTHONPATH=src python benchmarks/hopper.py --parallel 2 --parts play

`practise`: `ppo`, twice (`PRACTICE`, steps of the world). `collect`: three sets of episodes of what they do (`SETS`).
`train`: the Decision Transformer, `clone` and `clone-best` learn from each; needs no world, so that another machine can
do it. `play`: the Decision
Transformer is asked for the highest return that it has learned from. `film`: the first one of all levels.
Figures are normalised as D4RL does (Fu et al. 2020): 0 is a random policy's return there, 100 an expert's. The episodes
are our own, not D4RL's: other figures on its sets do not compare.
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import os
from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scores import trained
from side_by_side import grouped, mean, side_by_side, spread, training_options

from headway.data.trajectories import Trajectories, read_trajectories, save_trajectories
from headway.evaluate.episodes import EpisodeScores
from headway.generate.acting import episodes, gathered
from headway.generate.film import frames_of, write_film
from headway.tasks.loading import load
from headway.worlds.catalog import open_world
from headway.worlds.policies import policy_named

WORLD = "Hopper-v5"
RANDOM, EXPERT = -20.272305, 3234.3  # D4RL's returns of Hopper
DOCS = Path(__file__).parent.parent / "docs"
ROWS, ROLLOUT, EPOCHS, SHARES = 8, 256, 10, 16
PRACTICE = {"medium": 100 * ROWS * ROLLOUT, "expert": 500 * ROWS * ROLLOUT}
PPO = (
    f"data.world={WORLD}", f"data.rows={ROWS}", f"data.rollout={ROLLOUT}", f"objective.epochs={EPOCHS}",
    f"objective.parts={SHARES}", "model.max_length=16", "objective.entropy=0.0", "schedule.peak=3e-4",
    "data.reward=0.1", "data.judged=8", "data.episodes=20",
)  # fmt: skip
STEPS = {"random": 10_000, "medium": 100_000, "expert": 100_000}  # of each level, about
SETS = {"medium": ("medium",), "medium and expert": ("medium", "expert"), "all levels": ("random", "medium", "expert")}
RECIPES = {
    "decision-transformer": ("engine.steps=20_000", "validation.every=1000", "validation.score_every=1000"),
    "clone": ("engine.steps=4000", "engine.batch=1280", "model.max_length=4"),
    "clone-best": ("engine.steps=4000", "engine.batch=1280", "model.max_length=4"),
}


class Job(NamedTuple):
    data: str
    recipe: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.data.replace(' ', '-')}-{self.recipe}-seed-{self.seed}"


def normalised(value: float) -> float:
    return 100 * (value - RANDOM) / (EXPERT - RANDOM)


def practised(level: str, options: Namespace) -> Any:
    updates = PRACTICE[level] // (ROWS * ROLLOUT) * EPOCHS * SHARES
    often = max(1600, updates // 20)
    times = [f"engine.steps={updates}", f"validation.every={often}", f"validation.score_every={often}"]
    return trained("ppo", level, options.runs, [*PPO, *times, f"engine.device={options.device}"])


def collected(level: str, options: Namespace) -> Trajectories:
    """What a level does, disturbed a little, so that its episodes differ."""
    file = options.runs / f"{level}.npz"
    if not file.exists():
        random = level == "random"
        worlds = [open_world(WORLD) for _ in range(1 if random else 32)]
        actor = None if random else load(options.runs / level, "cpu")
        policy: Any = policy_named("random", worlds[0]) if actor is None else actor.policy()
        found: list[Any] = []
        while sum(len(one.rewards) for one in found) < STEPS[level]:
            found += list(episodes(worlds, policy, 32, (len(found), 4), noise=0.0 if random else 0.1))
        save_trajectories(file, gathered(worlds[0], found))
    return read_trajectories([file])


def learned(job: Job, options: Namespace) -> dict[str, Any]:
    files = ",".join(str(options.runs / f"{level}.npz") for level in SETS[job.data])
    settings = [f"data.train={files}", f"engine.seed={job.seed}", f"engine.device={options.device}", "data.episodes=0"]
    return trained(job.recipe, job.name, options.runs, [*settings, *RECIPES[job.recipe], *options.settings])


def acted(job: Job, options: Namespace) -> dict[str, Any]:
    reached = EpisodeScores.of(load(options.runs / job.name, "cpu").play(options.episodes)).figures()
    print(f"{job.name}: {reached}", flush=True)
    return learned(job, options) | reached


def jobs(options: Namespace) -> list[Job]:
    return [Job(data, recipe, seed) for seed in range(1, options.seeds + 1) for data in SETS for recipe in RECIPES]


def practise(options: Namespace) -> None:
    side_by_side(lambda level: practised(level, options), list(PRACTICE), options.parallel)


def collect(options: Namespace) -> None:
    for level in STEPS:
        collected(level, options)


def train(options: Namespace) -> None:
    side_by_side(lambda job: learned(job, options), jobs(options), options.parallel)


def film(options: Namespace) -> None:
    actor = load(options.runs / Job("all levels", "decision-transformer", 1).name, "cpu")
    [episode] = actor.play(1, pictures=200, seed=2, most=400)
    write_film(DOCS / "hopper.gif", frames_of(episode.pictures, episode.rewards))


def play(options: Namespace) -> None:
    levels = {level: collected(level, options) for level in STEPS}
    rows: list[dict[str, Any]] = [
        {"data": level, "who": "who acted", "return": round(float(found.returns_E.mean()), 1),
         "normalised": round(normalised(float(found.returns_E.mean())), 1), "episodes": len(found),
         "steps": len(found.rewards_K), "most": round(float(found.returns_E.max()), 1)}
        for level, found in levels.items()
    ]  # fmt: skip
    found = side_by_side(lambda job: acted(job, options), jobs(options), options.parallel)
    for (data, recipe), own in grouped(found).items():
        each = [one["return"] for one in own.values()]
        rows.append({
            "data": data, "who": recipe, "return": mean(each, 1), "normalised": mean(map(normalised, each), 1),
            "spread": spread([normalised(one) for one in each], 1), "each": np.round(each, 1).tolist(),
        })  # fmt: skip
    case = {"world": WORLD, "seeds": options.seeds, "episodes_played": options.episodes}
    write("hopper", "cpu", rows, options.out, case=case)


PARTS = {"practise": practise, "collect": collect, "train": train, "play": play, "film": film}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["practise", "collect", "train", "play"])
    parser.add_argument("--episodes", type=int, default=20, help="that each policy plays")
    options = training_options(parser, "hopper", seeds=3)
    os.environ.setdefault("PYTHONPATH", "src")
    for part in options.parts:
        PARTS[part](options)


if __name__ == "__main__":
    main()

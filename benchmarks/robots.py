"""A robot policy on Meta-World (Yu et al. 2019): one model, six tasks that are named in words, goals drawn anew for
each episode.

    PYTHONPATH=src python benchmarks/robots.py --parts collect --demonstrations runs/robots/data
    PYTHONPATH=src python benchmarks/robots.py --parts train --device cuda --demonstrations runs/robots/data
    PYTHONPATH=src python benchmarks/robots.py --parts play --ways "states, chunks" "states, bins"

`collect`: the written experts show each task so often, disturbed a little; what is kept is what they wanted to do.
`train`: ways to tell actions, from states and from pictures (camera corner2, with the place and the opening of the
hand), with and without the steps before. Needs no world. `play`: each model acts from so many starts that no
demonstration has, beside the expert (what has been found with as many starts is kept beside a model); and how many
actions it decides on in a second, one robot at a time. `film`: one episode of each task by the first way, as
docs/robots.gif, or of a way that sees as docs/robots-seeing.gif.
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import json
import os
import time
from argparse import Namespace
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from scores import trained
from side_by_side import mean, side_by_side, training_options

from headway.data.trajectories import save_trajectories
from headway.evaluate.episodes import EpisodeScores
from headway.generate.acting import episodes, gathered
from headway.generate.actor import played
from headway.generate.film import frames_of, veiled, write_film
from headway.tasks.loading import load
from headway.worlds.catalog import open_world
from headway.worlds.policies import Seen, policy_named

TASKS = ("reach", "push", "pick-place", "door-open", "drawer-open", "button-press-topdown")
WORLDS = {task: f"Meta-World/{task}-v3" for task in TASKS}
NOISE = 0.1
STATES = ("engine.steps=3000", "engine.batch=1024")  # two cores train these in ten minutes each
ALONE = ("model.max_length=1", "head.chunk=1")
WAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "states, chunks": ("robot", STATES),
    "states, one action": ("robot", (*STATES, "head.chunk=1")),
    "states, bins": ("robot-bins", STATES),
    "states, without history": ("robot", (*STATES, *ALONE)),
    "pictures, chunks": ("robot-pictures", ()),
    "pictures, one action": ("robot-pictures", ("head.chunk=1",)),
    "pictures, bins": ("robot-pictures", ("head.chunk=1", "head.numbers=bins")),
    "pictures, without history": ("robot-pictures", ALONE),
}
EXPERT, BESIDE = "expert", 17  # worlds side by side
DOCS = Path(__file__).parent.parent / "docs"
WARM, ASKED = 10, 200  # actions before the clock runs, and those that are timed


def collect(options: Namespace) -> None:
    """Tasks side by side, each in a process of its own."""
    options.demonstrations.mkdir(parents=True, exist_ok=True)
    left = [task for task in TASKS if not (options.demonstrations / f"{task}.npz").exists()]
    with ProcessPoolExecutor(options.parallel, get_context("spawn")) as pool:
        for said in pool.map(shown, left, [options] * len(left)):
            print(said, flush=True)


def shown(task: str, options: Namespace) -> str:
    file, world = options.demonstrations / f"{task}.npz", open_world(WORLDS[task])
    how: dict[str, Any] = {"noise": NOISE, "intended": True, "pictures": options.pixels}
    found = list(episodes([world], policy_named(EXPERT, world), options.shown, (1,), **how))
    about = {"policy": EXPERT, "episodes": options.shown, "seed": 1, "noise": NOISE, "intended": True}
    save_trajectories(file, gathered(world, found, (about,)))
    world.close()
    return f"{file}: {options.shown} episodes"


def train(options: Namespace) -> None:
    files = ",".join(str(options.demonstrations / f"{task}.npz") for task in TASKS)
    common = (f"data.train={files}", "data.episodes=0", f"engine.device={options.device}", *options.settings)

    def one(way: str) -> Any:
        recipe, own = WAYS[way]
        return trained(recipe, folder(way), options.runs, [*own, *common])

    side_by_side(one, options.ways, options.parallel)


def folder(way: str) -> str:
    return way.replace(", ", "-").replace(" ", "-")


@lru_cache
def opened(name: str) -> list[Any]:
    """To open a world takes longer than to act in it: all ways use these."""
    return [open_world(name) for _ in range(BESIDE)]


def success(name: str, policy: Any, count: int) -> float:
    """From starts that no demonstration has: `played` draws them apart."""
    worlds = opened(name)[: min(count, policy.at_once)]
    return EpisodeScores.of(list(played(worlds, policy, count, 2))).figures()["success"]


def actions_per_second(actor: Any, task: Any) -> float:
    """Of one robot: how fast it decides, without the world."""
    world, policy = open_world(task.world), actor.policy(command=task.command)
    [episode] = episodes([world], policy, 1, (3,), most=1, pictures=policy.sees)
    seen = [Seen(episode.states[0], 0.0, episode.pictures[0] if policy.sees else None)]
    for number in range(WARM + ASKED):
        if number == WARM:
            began = time.perf_counter()
        policy.act([0], seen)
    world.close()
    return ASKED / (time.perf_counter() - began)


def successes(file: Path, count: int, policy_of: Callable[[str], Any]) -> dict[str, Any]:
    """Of each task, and their mean. Kept task by task: what an earlier call found with as many starts is not acted
    again."""
    before: Any = json.loads(file.read_text()) if file.exists() else {"starts": count, "found": {}}
    found: dict[str, float] = before["found"] if before["starts"] == count else {}
    for task, name in WORLDS.items():
        if task not in found:
            found[task] = success(name, policy_of(name), count)
            file.write_text(json.dumps({"starts": count, "found": found}))
            print(f"{file.parent.name}, {task}: {found[task]}", flush=True)
    each = {task: found[task] for task in WORLDS}
    return {"success": mean(each.values()), **each}


def of_expert(file: Path, count: int) -> dict[str, Any]:
    return {"who": EXPERT, **successes(file, count, lambda name: policy_named(EXPERT, opened(name)[0]))}


def of_model(place: Path, count: int) -> dict[str, Any]:
    actor: Any = load(place, "cpu", verb="play")
    commands = {task.world: task.command for task in actor.tasks()}
    return successes(place / "played.json", count, lambda name: actor.policy(command=commands[name]))


def play(options: Namespace) -> None:
    count = options.starts
    rows = [of_expert(options.runs / "expert.json", count)]
    for way in options.ways:
        place = options.runs / folder(way)
        if not (place / "model" / "headway.json").exists():
            print(f"{way}: not trained", flush=True)
            continue
        found = of_model(place, count)
        actor: Any = load(place, "cpu", verb="play")
        [reach] = [task for task in actor.tasks() if task.world == WORLDS["reach"]]
        score = actor.card.score
        rows.append({
            "who": way, **found, "steps": score["steps"], "seconds": score["training seconds"],
            "parameters": sum(weight.numel() for weight in actor.model.parameters()),
            "of_expert": round(found["success"] / rows[0]["success"], 4),
            "actions_per_second": round(actions_per_second(actor, reach), 1),
        })  # fmt: skip
    case = {"starts": count, "demonstrations": options.shown, "noise": NOISE, "threads": torch.get_num_threads()}
    write("robots", "cpu", rows, options.out, case=case)


def film(options: Namespace) -> None:
    """An episode of each task by the first of the ways, every third step; with attention where it sees pictures."""
    actor: Any = load(options.runs / folder(options.ways[0]), "cpu", verb="play")
    frames: list[Any] = []
    for task in actor.tasks():
        policy, world = actor.policy(command=task.command), open_world(task.world)
        policy.watched = bool(policy.sees)
        [episode] = played([world], policy, 1, 2, pictures=160, most=150)
        looks = policy.looks if policy.watched else ()
        pictures = [veiled(*pair) for pair in zip(episode.pictures, looks, strict=True)] if looks else episode.pictures
        frames += frames_of(pictures, episode.rewards, f"{task.command}: ")[::3]
        world.close()
    write_film(DOCS / ("robots-seeing.gif" if actor.grid else "robots.gif"), frames)


PARTS = {"collect": collect, "train": train, "play": play, "film": film}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["collect", "train", "play"])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--states-only", action="store_true", help="no ways that see pictures")
    parser.add_argument("--demonstrations", type=Path, default=Path("runs/robots/data"))
    parser.add_argument("--pixels", type=int, default=84, help="sides of their pictures; 0: none")
    parser.add_argument("--shown", type=int, default=100, help="demonstrations of each task")
    parser.add_argument("--starts", type=int, default=50, help="episodes of each task")
    options = training_options(parser, "robots", seeds=1)
    os.environ.setdefault("PYTHONPATH", "src")
    options.ways = [way for way in options.ways if way.startswith("states") or not options.states_only]
    for part in options.parts:
        PARTS[part](options)


if __name__ == "__main__":
    main()

"""What a policy remembers: MiniGrid's memory worlds by recurrent policies, by a Transformer over its own past, and by a
policy without a memory.

An object is seen at the start of a corridor; at its end the policy must turn to the side where the same object is. Each
policy practises so many steps (`--world-steps`; the Transformer half as many) by PPO, with the same settings, and then
plays episodes that it has not seen; without a memory half of them can be right. With `--onward` a policy continues in
each further world with what it has learned in the one before (record memory-onward). `--speed` measures how many steps
a second are learned, beside stable-baselines3's RecurrentPPO with the same worlds, rollouts, epochs, rate and width, in
turn, and what each reaches in them.

    PYTHONPATH=src python benchmarks/memory.py --device cpu --parallel 2
    PYTHONPATH=src python benchmarks/memory.py --device cpu --parallel 2 --onward 300000 \
        --policies LSTM "without memory" \
        --worlds MiniGrid-MemoryS7-v0 MiniGrid-MemoryS13Random-v0 MiniGrid-MemoryS17Random-v0
    PYTHONPATH=src python benchmarks/memory.py --device cpu --worlds MiniGrid-MemoryS17Random-v0 --distance \
        --policies LSTM "without memory"
    PYTHONPATH=src python benchmarks/memory.py --device cpu --speed

`--distance` lets the trained policies play in corridors of random length, and tells how often each is right by how far
the cue is from the choice; docs/memory-distance.png. `--film` draws an episode, docs/memory.gif.
"""

from __future__ import annotations

from measure import arguments, median, write

# isort: split
import time
from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from scores import trained
from side_by_side import grouped, mean, side_by_side, training_options

from headway.generate.film import frames_of, write_film
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.loading import load
from headway.tasks.reinforcement import Reinforcement
from headway.tasks.start import RunContext
from headway.train.log import Log
from headway.train.optimiser import Masters
from headway.train.parallel.ranks import ALONE
from headway.train.step import TrainStep
from headway.worlds.catalog import open_world

POLICIES = {
    "LSTM": ("ppo-rnn", ("model.width=128", "model.max_length=64")),
    "GRU": ("ppo-rnn", ("model.width=128", "model.max_length=64", "model.cell=gru")),
    "Transformer": ("ppo-transformer", ("model.width=128", "model.past=16", "model.max_length=64")),
    "without memory": ("ppo", ("model.width=128",)),
}
SHARE = {"Transformer": 0.5}  # of the steps of practice: one takes it three times as long
ROWS, ROLLOUT, EPOCHS, PARTS = 16, 128, 4, 4
PEAK, ENTROPY = 5e-4, 0.02
CUE = 1  # the column of the cue
JUDGED = 200  # episodes, for the return beside the speed
DOCS = Path(__file__).parent.parent / "docs"
COMMON = (
    f"data.rows={ROWS}", f"data.rollout={ROLLOUT}", f"objective.epochs={EPOCHS}", f"objective.parts={PARTS}",
    f"schedule.peak={PEAK}", "data.judged=16", "data.episodes=200",
    f"objective.entropy={ENTROPY}",
)  # fmt: skip


class Job(NamedTuple):
    """onward: it starts with what was learned in another world."""

    world: str
    policy: str
    seed: int
    onward: bool = False

    @property
    def name(self) -> str:
        return f"{self.world}-{self.policy.replace(' ', '-')}{'-onward' * self.onward}-seed-{self.seed}"


def settings(job: Job, steps: int, options: Namespace) -> list[str]:
    updates = max(1, steps // (ROWS * ROLLOUT)) * EPOCHS * PARTS
    often = max(1, updates // 10)
    own = [f"data.world={job.world}", f"engine.seed={job.seed}", f"engine.device={options.device}"]
    times = [f"engine.steps={updates}", f"validation.every={often}", f"validation.score_every={often}"]
    return [*own, *COMMON, *times, *POLICIES[job.policy][1], *options.settings]


def played(start: Job, options: Namespace) -> dict[Job, dict[str, Any]]:
    """What a policy reaches in each world, one after the other."""
    recipe, found, before = POLICIES[start.policy][0], dict[Job, dict[str, Any]](), ""
    steps = round(options.world_steps * SHARE.get(start.policy, 1.0))
    for world in options.worlds:
        job = start._replace(world=world, onward=bool(before))
        found[job] = trained(recipe, job.name, options.runs, settings(job, steps, options), before)
        if options.onward:
            steps, before = options.onward, str(options.runs / job.name)
    return found


def learned(options: Namespace) -> None:
    jobs = [Job("", policy, seed) for seed in range(1, options.seeds + 1) for policy in options.policies]
    each = side_by_side(lambda job: played(job, options), jobs, options.parallel)
    found = {job: score for world in options.worlds for one in each.values() for job, score in one.items()
             if job.world == world}  # fmt: skip
    rows = []
    for (world, policy), own in grouped(found).items():
        scores = list(own.values())
        rows.append({
            "world": world, "policy": policy, "success": mean(one["test success"] for one in scores),
            "each_seed": [one["test success"] for one in scores], "return": mean(one["test return"] for one in scores),
            "world_steps": scores[0]["world steps"], "parameters": scores[0]["parameters"],
            "seconds": mean((one["training seconds"] for one in scores), 1),
        })  # fmt: skip
    name = "memory-onward" if options.onward else "memory"
    write(name, options.device, rows, options.out, case={"seeds": options.seeds, "episodes": 200})


def ours(world: str, steps: int, options: Namespace) -> tuple[float, float]:
    """Steps a second, of whole rollouts with all that is learned from them, and the mean return after them."""
    job = Job(world, "LSTM", 1)
    run = change(RECIPES["ppo-rnn"].make(), settings(job, steps, options))
    context = RunContext(Path(), Log(quiet=True), torch.device(options.device), torch.float32, ALONE)
    task = Reinforcement(run, context)
    masters = Masters(task.model.named_parameters(), run.optimiser, 0.5)
    masters.set_rate(PEAK)
    step = TrainStep(run.objective.build(task.model), masters)
    updates = steps // (ROWS * ROLLOUT) * EPOCHS * PARTS
    began = time.perf_counter()
    for number in range(updates):
        step(task.batch(number), 1)
    seconds = time.perf_counter() - began
    return ROWS * ROLLOUT * (updates // (EPOCHS * PARTS)) / seconds, task.scores(JUDGED, 1)["return"]


def theirs(world: str, steps: int) -> tuple[float, float]:
    """The same; of their policy the likeliest actions or drawn ones, whichever reach more."""
    import gymnasium
    import minigrid  # noqa: F401
    from minigrid.wrappers import ImgObsWrapper, OneHotPartialObsWrapper
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import DummyVecEnv

    def make() -> Any:
        return gymnasium.wrappers.FlattenObservation(ImgObsWrapper(OneHotPartialObsWrapper(gymnasium.make(world))))

    torch.manual_seed(0)
    model = RecurrentPPO(
        "MlpLstmPolicy", DummyVecEnv([make] * ROWS), learning_rate=PEAK, n_steps=ROLLOUT,
        batch_size=ROWS * ROLLOUT // PARTS, n_epochs=EPOCHS, seed=1, device="cpu", ent_coef=ENTROPY,
        policy_kwargs={"lstm_hidden_size": 128, "net_arch": [], "enable_critic_lstm": False, "shared_lstm": True},
    )  # fmt: skip
    rounds = steps // (ROWS * ROLLOUT)
    began = time.perf_counter()
    model.learn(rounds * ROWS * ROLLOUT)
    seconds = time.perf_counter() - began
    worlds = DummyVecEnv([make] * ROWS)
    reached = (evaluate_policy(model, worlds, JUDGED, deterministic=sure, warn=False)[0] for sure in (True, False))
    return rounds * ROWS * ROLLOUT / seconds, float(max(reached))


def speed(options: Namespace) -> None:
    world, steps = options.worlds[0], options.speed_steps
    found: dict[str, list[tuple[float, float]]] = {"headway": [], "RecurrentPPO": []}
    for _ in range(options.repeats or 3):
        found["headway"].append(ours(world, steps, options))
        found["RecurrentPPO"].append(theirs(world, steps))
    middle = {who: median([speed for speed, _ in values]) for who, values in found.items()}
    rows = [
        {"who": who, "steps_per_second": round(value, 1), "each": [round(speed, 1) for speed, _ in found[who]],
         "times": round(value / middle["RecurrentPPO"], 2), "return": mean(reached for _, reached in found[who]),
         "returns": [round(reached, 4) for _, reached in found[who]]}
        for who, value in middle.items()
    ]  # fmt: skip
    write("memory-speed", options.device, rows, options.out, case={"world": world, "steps": steps})


def far(world: Any, seed: int) -> int:
    """Places from the cue to the choice, in the episode of this seed."""
    world.reset(seed)
    return int(world.world.unwrapped.success_pos[0]) - CUE


def distance(options: Namespace) -> None:
    """Success by the distance of the cue, of policies that were trained before."""
    name, rows = options.worlds[0], []
    world = open_world(name)
    for policy in options.policies:
        places = [options.runs / Job(name, policy, 1, onward).name for onward in (True, False)]
        place = next((one for one in places if (one / "model" / "headway.json").exists()), None)
        if place is None:
            print(f"{policy}: not trained", flush=True)
            continue
        actor: Any = load(place, "cpu", verb="play")
        by: dict[int, list[bool]] = {}
        for episode in actor.play(options.episodes, seed=5):
            by.setdefault(far(world, episode.seed), []).append(bool(episode.succeeded))
        rows += [
            {"policy": policy, "distance": away, "success": mean(found), "episodes": len(found)}
            for away, found in sorted(by.items())
        ]
    write("memory-distance", options.device, rows, options.out, case={"world": name, "episodes": options.episodes})
    if options.out is None:
        drawn(rows)


def film(options: Namespace) -> None:
    """An episode of the first policy in the last world."""
    place = options.runs / Job(options.worlds[-1], options.policies[0], 1, len(options.worlds) > 1).name
    actor: Any = load(place, "cpu", verb="play")
    [episode] = actor.play(1, pictures=200, seed=3)
    write_film(DOCS / "memory.gif", frames_of(episode.pictures, episode.rewards))


def drawn(rows: list[dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 3.4))
    for policy in dict.fromkeys(row["policy"] for row in rows):
        points = [(row["distance"], 100 * row["success"]) for row in rows if row["policy"] == policy]
        axes.plot(*zip(*points, strict=True), marker="o", label=policy)
    axes.axhline(50, color="grey", linewidth=0.8, linestyle=":")
    axes.set(xlabel="places from the cue to the choice", ylabel="right, %", ylim=(0, 104))
    axes.legend()
    figure.tight_layout()
    figure.savefig(DOCS / "memory-distance.png", dpi=120)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--worlds", nargs="+", default=["MiniGrid-MemoryS7-v0"])
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--world-steps", type=int, default=1_500_000)
    parser.add_argument("--onward", type=int, help="so many steps in each further world, from what was learned before")
    parser.add_argument("--distance", action="store_true")
    parser.add_argument("--episodes", type=int, default=400, help="of each policy, for --distance")
    parser.add_argument("--film", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--speed-steps", type=int, default=50_000)
    options = training_options(parser, "memory", seeds=1)
    (speed if options.speed else distance if options.distance else film if options.film else learned)(options)


if __name__ == "__main__":
    main()

"""CartPole from episodes of all skills: a policy that is told the return to reach, beside policies that imitate.

Episodes of an expert at nine skills, most of them bad (`SKILLS`), are learned from by `decision-transformer`, `clone`
and `clone-best`, the same steps each, several seeds. Then each acts in worlds whose first states nobody has collected:
the highest return that it has learned from, and the Decision Transformer at ten returns. Trainings run in processes
side by side; one that has ended is not trained again: `--runs` is where they lie. `--picture` draws
`docs/decisions.png` from the record (the return that is wanted, and the one that is reached), and films the first
Decision Transformer as `docs/cartpole.gif`.

    PYTHONPATH=src python benchmarks/decisions.py --device cpu --seeds 10 --parallel 2
    PYTHONPATH=src python benchmarks/decisions.py --picture
"""

from __future__ import annotations

from measure import RESULTS, arguments, write

# isort: split
import json
from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scores import trained
from side_by_side import grouped, mean, side_by_side, spread, training_options

from headway.data.trajectories import Trajectories, read_trajectories, save_trajectories
from headway.evaluate.episodes import EpisodeScores
from headway.evaluate.label_sets import correlation
from headway.generate.acting import episodes, gathered
from headway.generate.film import frames_of, write_film
from headway.tasks.loading import load
from headway.worlds.catalog import open_world
from headway.worlds.policies import policy_named

WORLD, NOISE = "CartPole-v1", 0.1
SKILLS = {0.0: 100, 0.2: 100, 0.4: 100, 0.5: 80, 0.6: 80, 0.7: 60, 0.8: 30, 0.9: 10, 1.0: 10}  # episodes of each
RECIPES = ("decision-transformer", "clone", "clone-best")
# Two cores train these in minutes; the recipe has the sizes of the paper.
SETTINGS = {
    "decision-transformer": ("model.layers=2", "model.width=64"),
    "clone": ("model.width=64",),
    "clone-best": ("model.width=64",),
}
STEPS = ("engine.steps=2000", "engine.batch=640", "schedule.warmup=100", "validation.every=200",
         "validation.score_every=200")  # fmt: skip
DOCS = Path(__file__).parent.parent / "docs"
TARGETS = tuple(range(50, 501, 50))


class Job(NamedTuple):
    recipe: str
    told: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.recipe}-seed-{self.seed}"


def collected(file: Path) -> Trajectories:
    """The episodes that all learn from."""
    if not file.exists():
        world, found = open_world(WORLD), []
        for number, (skill, count) in enumerate(SKILLS.items()):
            found += episodes([world], policy_named("expert", world, skill), count, (number,), noise=NOISE)
        save_trajectories(file, gathered(world, found))
    return read_trajectories([file])


def carried_out(job: Job, file: Path, options: Namespace) -> dict[str, Any]:
    settings = [f"data.train={file}", f"engine.device={options.device}", f"engine.seed={job.seed}", *STEPS]
    score = trained(job.recipe, job.name, options.runs, [*settings, *SETTINGS[job.recipe], *options.settings])
    actor = load(options.runs / job.name, "cpu")
    asked = TARGETS if job.told else (actor.most,)
    reached = [EpisodeScores.of(actor.play(options.episodes, float(wanted))).figures()["return"] for wanted in asked]
    print(f"{job.name}: {dict(zip(asked, np.round(reached, 1).tolist(), strict=True))}", flush=True)
    return score | {"reached": dict(zip(asked, reached, strict=True))}


def draw(rows: list[dict[str, Any]], data: Trajectories) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.6), layout="constrained")
    told = [row for row in rows if not row["recipe"]]
    wanted, errors = [row["wanted"] for row in told], [row["spread"] or 0 for row in told]
    axes.plot(wanted, wanted, color="0.7", linestyle=":", label="as wanted")
    reached = [row["return"] for row in told]
    axes.errorbar(wanted, reached, errors, marker="o", capsize=3, label="Decision Transformer")
    for row, colour in zip([row for row in rows if row["recipe"] in RECIPES[1:]], ("C1", "C2"), strict=True):
        axes.axhline(row["return"], color=colour, linestyle="--", label=row["recipe"])
    axes.hist(data.returns_E, bins=25, range=(0, 500), color="0.88", zorder=0, label="episodes learned from (number)")
    axes.set(xlabel="return that is wanted", ylabel="return that is reached", title=f"{WORLD}, mean over seeds")
    axes.legend(loc="center right", bbox_to_anchor=(1.0, 0.42), fontsize=9)
    figure.savefig(DOCS / "decisions.png", dpi=130)


def film(run: Path) -> None:
    """An episode of each of three returns that are wanted."""
    actor, frames = load(run, "cpu"), []
    for wanted in (50.0, 200.0, 500.0):
        [episode] = actor.play(1, wanted, pictures=200, seed=2)
        frames += frames_of(episode.pictures, episode.rewards, f"wanted {wanted:g}: ")[:: 1 if wanted < 500 else 2]
    write_film(DOCS / "cartpole.gif", frames)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--episodes", type=int, default=20, help="that each policy plays, of each return")
    parser.add_argument("--picture", action="store_true", help="only draw what the record has")
    options = training_options(parser, "decisions", seeds=10)
    data = collected(options.runs / "episodes.npz")
    if options.picture:
        draw(json.loads((RESULTS / "decisions.json").read_text())["rows"], data)
        film(options.runs / f"{RECIPES[0]}-seed-1")
        return
    jobs = [
        Job(recipe, "told" if recipe == RECIPES[0] else "", seed)
        for seed in range(1, options.seeds + 1) for recipe in RECIPES
    ]  # fmt: skip
    file = options.runs / "episodes.npz"
    found = side_by_side(lambda job: carried_out(job, file, options), jobs, options.parallel)
    rows: list[dict[str, Any]] = []
    for (recipe, told), own in grouped(found).items():
        each = [list(score["reached"].values())[-1] for score in own.values()]
        row = {"recipe": recipe, "return": mean(each, 1), "spread": spread(each, 1), "each": np.round(each, 1).tolist()}
        if told:
            linear = [correlation(*np.array(list(one["reached"].items()), float).T) for one in own.values()]
            row |= {"wanted": 500, "correlation": mean(linear, 3), "correlations": np.round(linear, 3).tolist()}
        seconds = mean((one["training seconds"] for one in own.values()), 1)
        rows.append(row | {"parameters": next(iter(own.values()))["parameters"], "seconds": seconds})
    told_rows = []
    for wanted in TARGETS:
        each = [score["reached"][wanted] for job, score in found.items() if job.told]
        told_rows.append({"wanted": wanted, "return": mean(each, 1), "spread": spread(each, 1)})
    returns = data.returns_E
    case = {
        "world": WORLD, "seeds": options.seeds, "episodes learned from": len(data), "lowest return": int(returns.min()),
        "mean return": round(float(returns.mean()), 1), "highest return": int(returns.max()),
        "episodes of each return": options.episodes,
    }  # fmt: skip
    write("decisions", options.device, rows + [{"recipe": ""} | row for row in told_rows], options.out, case=case)


if __name__ == "__main__":
    main()

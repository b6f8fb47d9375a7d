"""What an encoder that has read much before is worth, and how many of its weights must be trained: SST-2 in nine ways.

Every way starts from MODEL (all-MiniLM-L6-v2) by the recipe `sst2-minilm`: `head` trains the head alone, `last-2` the
last two layers too, `all` every weight, `all-mean` the same with the mean of all tokens for the text (transformers' own
head reads the first token: such a model cannot be exported to it), `by-layer` every weight at a rate that falls from
layer to layer, `r-drop` by mean and by layer with two passes of each batch whose answers are kept close (Liang et
al. 2021; chosen by `choose.py`: the recipe `sst2-minilm-r-drop`), `lora-N` adapters of rank N and the head. Then
`trec-minilm`, `mr-minilm` and `cola-minilm`, `all` and `all-mean`. Each way has the best of its rates below by the
validation figure of the first seed; the test texts are asked once, by the weights that were best in validation. MR has
no test of its own: each seed has another tenth of its texts as one. Trainings run in processes side by side; one that
has ended is not trained again, one that was stopped is resumed: `--runs` is where they lie.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/transfer.py MODEL --device cuda --seeds 3 --parallel 8
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import json
from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

from scores import trained
from side_by_side import grouped, mean, side_by_side, spread, training_options
from text_cnn import folds

FIGURES = {
    "sst2-minilm": "accuracy", "trec-minilm": "accuracy", "mr-minilm": "accuracy", "cola-minilm": "matthews",
}  # fmt: skip
LORA = ["engine.adapters=lora", "schedule.warmup=200"]
WAYS = {
    "head": ["engine.last_layers=0"],
    "last-2": ["engine.last_layers=2"],
    "all": [],
    "all-mean": ["head.pooling=mean"],
    "r-drop": ["head.pooling=mean", "objective=labels-r-drop", "objective.weight=4", "engine.layer_decay=0.8"],
    "by-layer": ["engine.layer_decay=0.8"],
    **{f"lora-{rank}": [*LORA, f"engine.adapters.rank={rank}", f"engine.adapters.alpha={2 * rank}"] for rank in (1, 4)},
    # At this rank only the attention's maps, so that at most 2 % of the weights are trained.
    "lora-16": [*LORA, "engine.adapters.rank=16", "engine.adapters.alpha=32", "engine.adapters.on=qkv,output"],
}
RATES = {
    "head": (1e-3, 3e-3), "last-2": (1e-4, 2e-4), "all": (3e-5, 6e-5, 1.2e-4), "all-mean": (6e-5, 1.2e-4),
    "r-drop": (1e-4, 2e-4), "by-layer": (1e-4, 2e-4),
}  # fmt: skip
LORA_RATES = (1e-3, 2e-3)
OTHERS = ("all", "all-mean")  # ways of the other recipes


class Job(NamedTuple):
    recipe: str
    way: str
    rate: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.recipe}-{self.way}-rate-{self.rate:g}-seed-{self.seed}"


def carried_out(job: Job, options: Namespace, of_fold: list[list[str]]) -> dict[str, Any]:
    """What a training reached, and how many weights it trained."""
    settings = [f"engine.device={options.device}", f"engine.seed={job.seed}"]
    settings += [*WAYS[job.way], f"schedule.peak={job.rate}", *options.settings]
    if job.recipe == "mr-minilm":
        settings += of_fold[(job.seed - 1) % len(of_fold)]
    score = trained(job.recipe, job.name, options.runs, settings, options.model)
    log = (options.runs / job.name / "log.jsonl").read_text(encoding="utf-8").splitlines()
    start = next(event for event in map(json.loads, log) if event["event"] == "start")
    return score | {"weights": start["parameters"], "trained": start["trained"]}


def row(found: dict[Job, dict[str, Any]]) -> dict[str, Any]:
    """A way's figures over its seeds."""
    job, scores = next(iter(found)), list(found.values())
    figure = FIGURES[job.recipe]
    each = [score[f"test {figure}"] for score in scores]
    return {
        "recipe": job.recipe, "learns": job.way, "figure": f"test {figure}", "mean": mean(each),
        "spread": spread(each), "each": each,
        "validation": mean(score[f"validation {figure}"] for score in scores),
        "trained": scores[0]["trained"], "share": round(scores[0]["trained"] / scores[0]["weights"], 5),
        "steps": scores[0]["steps"], "peak": job.rate,
        "seconds": mean((score["training seconds"] for score in scores), 1),
    }  # fmt: skip


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("model")
    parser.add_argument("--recipes", nargs="+", choices=FIGURES, default=list(FIGURES))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="of SST-2")
    parser.add_argument("--record", default="transfer", help="name of the record")
    options = training_options(parser, "transfer")
    options.model = str(Path(options.model).resolve())
    of_fold = folds(options.runs) if "mr-minilm" in options.recipes else []
    first = [
        Job(recipe, way, rate, 1) for recipe in options.recipes
        for way in (options.ways if recipe == "sst2-minilm" else OTHERS) for rate in RATES.get(way, LORA_RATES)
    ]  # fmt: skip

    def all_of(jobs: list[Job]) -> dict[Job, dict[str, Any]]:
        return side_by_side(lambda job: carried_out(job, options, of_fold), jobs, options.parallel)

    tried = all_of(first)
    best: dict[tuple[str, str], Job] = {}
    for job in sorted(first, key=lambda job: tried[job][f"validation {FIGURES[job.recipe]}"]):
        best[job[:2]] = job
    more = [job._replace(seed=seed) for job in best.values() for seed in range(2, options.seeds + 1)]
    found = tried | all_of(more)
    chosen = {job: score for job, score in found.items() if job._replace(seed=1) == best[job[:2]]}
    rows = [row(own) for own in grouped(chosen).values()]
    case = {"seeds": options.seeds, "trainings": len(found), "at_a_time": min(options.parallel, len(first))}
    write(f"{options.record}-{options.device}", options.device, rows, options.out, case=case)


if __name__ == "__main__":
    main()

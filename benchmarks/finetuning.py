"""What reading much before is worth: SST-2 and CoLA by the same encoder, three ways, several seeds.

`all` goes on from MODEL (all-MiniLM-L6-v2) with every weight, `head` holds its embedding and layers still, `nothing`
starts from random weights and a vocabulary of its own. The best step is chosen on the validation texts; the figures are
those of the test texts, accuracy for SST-2 and Matthews' correlation for CoLA (whose test is its out-of-domain part).
Every way has its own peak rate, named below; more steps where nothing was read before. With `--share` each way takes
that share of the recipe's steps, all alike: on a CPU the whole would take hours. `--only` measures one
task, in a record of its own.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/finetuning.py MODEL --device cuda --seeds 3
    HEADWAY_DATA=data OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/finetuning.py MODEL --device cpu \
        --share 0.08 --judged 1
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import statistics
import tempfile
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.folder import find_model, read_card
from headway.models.bert import BertConfig
from headway.recipes import RECIPES
from headway.train.job import train
from headway.train.log import Log
from headway.train.run import Run

TASKS = {"sst2-minilm": "test accuracy", "cola-minilm": "test matthews"}
RATES = {"all": 1e-4, "head": 3e-3, "nothing": 3e-4}
LONGER = {"all": 1, "head": 1, "nothing": 3}


def run_of(recipe: str, way: str, seed: int, options: Namespace) -> Run:
    run, model = RECIPES[recipe].make(), options.model
    count = max(1, round(run.engine.steps * (options.share or LONGER[way])))
    log = max(1, count // 20)
    engine = replace(run.engine, seed=seed, device=options.device, steps=count, checkpoint=10**9, log=log)
    every = -(-count // options.judged)
    validation = replace(run.validation, every=every, score_every=every)
    schedule: Any = replace(run.schedule, peak=RATES[way], warmup=max(1, count // 10))
    if way == "nothing":
        return replace(run, engine=engine, validation=validation, schedule=schedule)
    card = read_card(find_model(model))
    assert isinstance(card.config, BertConfig) and isinstance(run.model, BertConfig)
    if way == "head":
        engine = replace(engine, frozen=("embed", "encoder"))
    return replace(run, engine=engine, validation=validation, schedule=schedule, model=card.config, init=model)


def scores(run: Run) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return train(run, Path(folder), Log(quiet=True)).scores


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("model")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--share", type=float, help="of the recipe's steps, the same for every way")
    parser.add_argument("--only", choices=TASKS, help="one task, in a record of its own")
    parser.add_argument("--judged", type=int, default=10, help="how often the best step is looked for")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for recipe, figure in TASKS.items():
        if options.only not in (None, recipe):
            continue
        for way in RATES:
            found = []
            for seed in range(1, options.seeds + 1):
                run = run_of(recipe, way, seed, options)
                found.append(scores(run))
                print(recipe, way, seed, found[-1], flush=True)
            values = [one[figure] for one in found]
            rows.append({
                "recipe": recipe, "learns": way, "figure": figure, "steps": run.engine.steps,
                "peak": RATES[way], "mean": round(statistics.mean(values), 4),
                "spread": round(statistics.stdev(values), 4) if len(values) > 1 else 0.0, "each": values,
                "seconds": round(statistics.mean(one["training seconds"] for one in found), 1),
                "times_judged": options.judged,
            })  # fmt: skip
    case = {"seeds": options.seeds}
    name = "-".join(["finetuning", *filter(None, [options.only]), options.device])
    write(name, options.device, rows, options.out, case=case)


if __name__ == "__main__":
    main()

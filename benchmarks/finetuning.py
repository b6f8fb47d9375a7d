"""What reading much before is worth: SST-2 and CoLA by the same encoder, three ways, several seeds.

`all` goes on from MODEL (all-MiniLM-L6-v2) with every weight, `head` holds its embedding and layers still, `nothing`
starts from random weights and a vocabulary of its own. The best step is chosen on the validation texts; the figures are
those of the test texts, accuracy for SST-2 and Matthews' correlation for CoLA (whose test is its out-of-domain part).
Every way has its own peak rate, named below; more steps where nothing was read before.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/finetuning.py MODEL --device cuda --seeds 3
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.folder import find_model, read_card
from headway.models.bert import BertConfig
from headway.recipes import RECIPES
from headway.train.kinds import trainer
from headway.train.log import Log
from headway.train.run import Run

TASKS = {"sst2-minilm": "test accuracy", "cola-minilm": "test matthews"}
RATES = {"all": 1e-4, "head": 3e-3, "nothing": 3e-4}
LONGER = {"all": 1, "head": 1, "nothing": 3}


def run_of(recipe: str, way: str, model: str, seed: int, device: str, steps: int | None) -> Run:
    run = RECIPES[recipe].make()
    count = steps or run.engine.steps * LONGER[way]
    engine = replace(run.engine, seed=seed, device=device, steps=count, checkpoint=10**9, log=max(1, count // 20))
    every = max(1, count // 10)
    validation = replace(run.validation, every=every, score_every=every)
    schedule: Any = replace(run.schedule, peak=RATES[way], warmup=max(1, count // 10))
    if way == "nothing":
        return replace(run, engine=engine, validation=validation, schedule=schedule)
    card = read_card(find_model(model))
    assert isinstance(card.config, BertConfig) and isinstance(run.model, BertConfig)
    if way == "head":
        engine = replace(engine, frozen=("embed", "encoder"))
    config = replace(card.config, task=run.model.task)
    return replace(run, engine=engine, validation=validation, schedule=schedule, model=config, init=model)


def scores(run: Run) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return trainer(run)(run, Path(folder), Log(quiet=True)).scores


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("model")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="fewer, for a try")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for recipe, figure in TASKS.items():
        for way in RATES:
            found = []
            for seed in range(1, options.seeds + 1):
                found.append(scores(run_of(recipe, way, options.model, seed, options.device, options.steps)))
                print(recipe, way, seed, found[-1], flush=True)
            values = [one[figure] for one in found]
            rows.append({
                "recipe": recipe, "learns": way, "figure": figure, "mean": round(statistics.mean(values), 4),
                "spread": round(statistics.stdev(values), 4) if len(values) > 1 else 0.0, "each": values,
                "seconds": round(statistics.mean(one["training seconds"] for one in found), 1),
            })  # fmt: skip
    write(f"finetuning-{options.device}", options.device, rows, options.out)


if __name__ == "__main__":
    main()

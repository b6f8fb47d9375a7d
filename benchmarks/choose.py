"""Train a recipe with several settings, without its test part, and keep their validation figures.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/choose.py fashion-mnist-vit "" "engine.steps=8000 model.width=96"

Each quoted argument is one candidate: settings as `headway train --set` has them, each trained with `--seeds` seeds,
from the model `--init` where the recipe wants one. What is chosen here is scored on the test part once, by scores.py or
the benchmark of its kind. All candidates share the machine, so their seconds tell little.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
from pathlib import Path

import torch
from measure import RESULTS, command, machine
from scores import trained
from side_by_side import side_by_side


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("candidates", nargs="+", metavar="SETTINGS")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--init", default="")
    parser.add_argument("--record", help="name of the record, choose-RECIPE where it is not given")
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--runs", type=Path, default=Path("runs/choose"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "2")

    def row(job: tuple[int, int]) -> dict[str, object]:
        number, seed = job
        settings = options.candidates[number]
        name, own = f"{options.recipe}-{number}-seed-{seed}", ["data.test=[]", f"engine.seed={seed}", *settings.split()]
        try:
            score = trained(options.recipe, name, options.runs, own, options.init)
        except Exception as error:  # the others go on
            return {"settings": settings, "seed": seed, "failed": str(error)}
        return {"settings": settings, "seed": seed, **score}

    jobs = [(number, seed) for number in range(len(options.candidates)) for seed in range(1, options.seeds + 1)]
    rows = list(side_by_side(row, jobs, options.parallel).values())
    record = {
        "benchmark": "choose", "recipe": options.recipe, "date": datetime.date.today().isoformat(),
        "machine": machine("cuda" if torch.cuda.is_available() else "cpu"), "versions": {"torch": torch.__version__},
        "command": command(), "rows": rows,
    }  # fmt: skip
    (options.out / f"{options.record or f'choose-{options.recipe}'}.json").write_text(
        json.dumps(record, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()

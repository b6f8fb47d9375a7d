"""The road to attention on one data set: every translator of `headway compare road`, German to English captions.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/road.py --device cuda --seeds 3 --parallel 7

One comparison a recipe, side by side in `--parallel` processes, each with all its seeds; the same data and as many
tokens for all. Writes `results/road-DEVICE.json` and draws `docs/road.png` and `docs/road-lengths.png` from it.
The same call resumes it when it was stopped.
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import json
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from side_by_side import mean, side_by_side, spread

from headway.explore.curves import breakdown_picture, comparison_picture
from headway.recipes import GROUPS
from headway.train.comparison import Entry

DOCS = Path(__file__).parent.parent / "docs"


def compared(options: Any, recipe: str) -> dict[str, Any]:
    """What `headway compare` finds for one recipe."""
    words = ["compare", recipe, "--seeds", str(options.seeds), "--out", str(options.runs / recipe), "--json"]
    words += ["--tokens", options.tokens, "--device", options.device]
    with (options.runs / f"{recipe}.txt").open("a") as log:
        done = subprocess.run([sys.executable, "-m", "headway", *words], check=True, stdout=subprocess.PIPE, stderr=log)
    [found] = json.loads(done.stdout)["runs"]
    print(recipe, found["test"], flush=True)
    return dict(found)


def row(found: dict[str, Any]) -> dict[str, Any]:
    each = [round(value, 2) for value in found["test"]]
    groups = zip(*found["breakdown"], strict=True)  # a group of lengths, of every seed
    return {
        "recipe": found["name"],
        "test": mean(each, 2),
        "spread": spread(each, 2),
        "each": each,
        "validation": mean(found["validation"], 2),
        "parameters": found["parameters"],
        "operations": round(found["operations"]),
        "path": found.get("path"),
        "tokens": found["tokens"],
        "epochs": mean(found["epochs"], 1),
        "seconds": round(statistics.median(found["seconds"]), 1),
        "lengths": [{**group[0], "value": mean((seed["value"] for seed in group), 2)} for group in groups],
    }


def draw(rows: list[dict[str, Any]]) -> None:
    entries = [
        Entry(
            row["recipe"], "BLEU", row["parameters"], test=row["each"], seconds=[row["seconds"]],
            by="words of the source", breakdown=[row["lengths"]],
        )
        for row in rows
    ]  # fmt: skip
    comparison_picture(entries, DOCS / "road.png")
    breakdown_picture(entries, DOCS / "road-lengths.png")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tokens", default="32M", help="that each may see in training")
    parser.add_argument("--parallel", type=int, default=1, help="recipes at a time")
    parser.add_argument("--recipes", nargs="+", default=GROUPS["road"], choices=GROUPS["road"], help="only these")
    parser.add_argument("--runs", type=Path, default=Path("runs/road"))
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    found = side_by_side(partial(compared, options), options.recipes, options.parallel)
    rows = [row(one) for one in found.values()]
    case = {"seeds": options.seeds, "tokens": options.tokens, "beside": options.parallel - 1}
    write(f"road-{options.device}", options.device, rows, options.out, case=case)
    draw(rows)


if __name__ == "__main__":
    main()

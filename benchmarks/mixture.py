"""One model of captions, of questions about pictures and of a robot's actions, beside one of the same size for each.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/mixture.py --parts make
    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/mixture.py --parts train --device cuda --parallel 4
    PYTHONPATH=src python benchmarks/mixture.py --parts play

`make` draws scenes with questions into data/mixture; benchmarks/flickr8k.py packs Flickr8k's pictures, and
benchmarks/robots.py collects the demonstrations (data/robots). `train`: every model has the same layers and sees of
each of its kinds the same number of rows; captions are judged by CIDEr, questions by the share of right answers, on
test data. `play`: those that act, in six tasks of Meta-World, from starts that no demonstration has, beside the expert.
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from robots import of_expert, of_model
from scores import trained
from side_by_side import side_by_side, training_options

from headway.data.scene_questions import drawn_questions, save_picture_questions
from headway.data.scenes import Scenes
from headway.tasks.loading import load

ROWS = {"captions": 96, "questions": 96, "demonstrations": 240}  # in a batch, as the recipe has them
KINDS = tuple(ROWS)
WAYS = {"all three": KINDS} | {f"{kind} alone": (kind,) for kind in KINDS}
SCENES = {"train": (1, 6000), "valid": (2**63, 500), "test": (2**63 + 1, 1000)}  # seeds, and how many


def data_folder() -> Path:
    return Path(os.environ.get("HEADWAY_DATA", "data"))


def make(options: Namespace) -> None:
    place = data_folder() / "mixture"
    place.mkdir(parents=True, exist_ok=True)
    for part, (seed, count) in SCENES.items():
        save_picture_questions(place / f"questions-{part}.npz", drawn_questions(Scenes(), seed, np.arange(count), 64))


def folder(way: str) -> str:
    return way.replace(" ", "-")


def train(options: Namespace) -> None:
    def one(way: str) -> Any:
        kinds = WAYS[way]
        own = [f"data.{kind}={rows if kind in kinds else 0}" for kind, rows in ROWS.items()]
        batch = sum(ROWS[kind] for kind in kinds)
        common = [f"engine.batch={batch}", f"engine.device={options.device}", *options.settings]
        return trained("mixture-all", folder(way), options.runs, [*own, *common])

    side_by_side(one, options.ways, options.parallel)


def play(options: Namespace) -> None:
    """What each model reached; acting is done here, where the worlds are."""
    count, rows = options.starts, []
    expert = of_expert(options.runs / "expert.json", count)
    for way, kinds in WAYS.items():
        place = options.runs / folder(way)
        if not (place / "model" / "headway.json").exists():
            print(f"{way}: not trained", flush=True)
            continue
        loaded: Any = load(place, "cpu")
        score = loaded.card.score
        row: dict[str, Any] = {
            "who": way, "cider": score.get("test cider"), "bleu": score.get("test bleu"),
            "right": score.get("test right answers"), "steps": score["steps"], "seconds": score["training seconds"],
            "parameters": sum(weight.numel() for weight in loaded.model.parameters()),
        }  # fmt: skip
        if "demonstrations" in kinds:
            own = of_model(place, count)
            row |= own | {"of_expert": round(own["success"] / expert["success"], 4)}
        rows.append(row)
    case = {"starts": count, **{f"rows of {kind}": rows for kind, rows in ROWS.items()}}
    case["threads"] = torch.get_num_threads()
    rows.append(expert)
    write("mixture", "cpu", rows, options.out, case=case)


PARTS = {"make": make, "train": train, "play": play}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="which are trained")
    parser.add_argument("--starts", type=int, default=50, help="episodes of each task")
    options = training_options(parser, "mixture", seeds=1)
    os.environ.setdefault("PYTHONPATH", "src")
    for part in options.parts:
        PARTS[part](options)


if __name__ == "__main__":
    main()

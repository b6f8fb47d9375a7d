"""Spoken digits from nothing: FSDD's official split, several seeds; AudioMNIST, five folds of speakers never heard.

The recipes `fsdd-digits` and `audiomnist-digits`; benchmarks/sound_sets.py packs the recordings. The best step is
chosen on recordings held out of the training ones, the test recordings are asked once. Trainings run in processes side
by side; one that has ended is not trained again: `--runs` is where they lie.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/digits.py --device cuda --seeds 3 --parallel 4
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, NamedTuple

from scores import trained
from side_by_side import grouped, mean, side_by_side, spread, training_options

FOLDS = 5
RECIPES = {"FSDD": "fsdd-digits", "AudioMNIST": "audiomnist-digits"}
PUBLISHED = {"AudioMNIST": 0.9582}  # Becker et al. 2018, AlexNet on spectrograms, 25 times the recordings


class Job(NamedTuple):
    data: str
    recipe: str
    number: int  # a seed of FSDD, a fold of AudioMNIST

    @property
    def name(self) -> str:
        return f"{self.recipe}-{self.number}"

    def settings(self, options: Namespace) -> list[str]:
        parts = ("train", "test") if self.data == "AudioMNIST" else ()
        files = [f"data.{part}=audiomnist/fold-{self.number - 1}-{part}.npz" for part in parts]
        return [*files, f"engine.seed={self.number}", f"engine.device={options.device}", *options.settings]


def jobs(options: Namespace) -> Iterator[Job]:
    for data in options.data:
        many = FOLDS if data == "AudioMNIST" else options.seeds
        yield from (Job(data, RECIPES[data], number) for number in range(1, many + 1))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", nargs="+", choices=RECIPES, default=list(RECIPES))
    options = training_options(parser, "digits")
    every = list(jobs(options))

    def score(job: Job) -> dict[str, Any]:
        return trained(job.recipe, job.name, options.runs, job.settings(options))

    rows = []
    for (data, recipe), scores in grouped(side_by_side(score, every, options.parallel)).items():
        each = [round(one["test accuracy"], 4) for one in scores.values()]
        over = "folds" if data == "AudioMNIST" else "seeds"
        rows.append({
            "data": data, "recipe": recipe, "over": over, "accuracy": mean(each), "each": each, "spread": spread(each),
            "validation": mean(one["validation accuracy"] for one in scores.values()),
            "published": PUBLISHED.get(data), "parameters": next(iter(scores.values()))["parameters"],
            "seconds_each": mean((one["training seconds"] for one in scores.values()), 1),
        })  # fmt: skip
    case = {"trainings": len(every), "at_a_time": min(options.parallel, len(every))}
    write(f"digits-{options.device}", options.device, rows, options.out, case=case)


if __name__ == "__main__":
    main()

"""Tags of words: entities of CoNLL-2003, phrases of CoNLL-2000, parts of speech of UD English; several seeds.

Each by a BiLSTM on words and letters from nothing and, with `--init MODEL` (all-MiniLM-L6-v2), by that encoder; each
with a conditional random field (`crf`) and with a tag for each word alone (`tags`). The best step is chosen on
validation sentences, the test sentences are asked once. Many trainings, in processes side by side; one that has ended
is not trained again: `--runs` is where they lie.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/tagging.py --init MODEL --device cuda --seeds 3 --parallel 8
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, NamedTuple

from scores import trained
from side_by_side import grouped, mean, side_by_side, spread, training_options


class Case(NamedTuple):
    """published: of another program with the same kind of model, where there is one."""

    data: str
    model: str
    figure: str
    published: float | None = None
    pretrained: bool = False


BILSTM, MINILM = "BiLSTM, words and letters", "MiniLM"
CASES = {
    "conll2003-bilstm-crf": Case("CoNLL-2003", BILSTM, "f1"),
    "conll2003-minilm": Case("CoNLL-2003", MINILM, "f1", pretrained=True),
    "conll2000-chunks": Case("CoNLL-2000", BILSTM, "f1", 0.9413),  # Huang et al. 2015
    "ud-english-tags": Case("UD English", BILSTM, "accuracy"),
    "ud-english-minilm": Case("UD English", MINILM, "accuracy", pretrained=True),
}
HEADS = {"crf": "CRF", "tags": "linear"}


class Job(NamedTuple):
    recipe: str
    head: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.recipe}-{self.head}-seed-{self.seed}"

    def settings(self, options: Namespace) -> list[str]:
        head = [] if self.head == "crf" else [f"head={self.head}"]
        return [*head, f"engine.seed={self.seed}", f"engine.device={options.device}", *options.settings]


def jobs(options: Namespace) -> Iterator[Job]:
    """All heads of a seed before the next seed: what is stopped early has whole rows."""
    recipes = [recipe for recipe in options.recipes if options.init or not CASES[recipe].pretrained]
    return (
        Job(recipe, head, seed) for seed in range(1, options.seeds + 1) for recipe in recipes for head in options.heads
    )


def row(recipe: str, head: str, scores: list[dict[str, Any]]) -> dict[str, Any]:
    case = CASES[recipe]
    each = [round(float(score[f"test {case.figure}"]), 4) for score in scores]
    return {
        "data": case.data, "model": case.model, "head": HEADS[head], "recipe": recipe, "figure": case.figure,
        "test": mean(each), "each_seed": each, "spread": spread(each),
        "validation": mean(score[f"validation {case.figure}"] for score in scores),
        "published": case.published if head == "crf" else None, "parameters": scores[0]["parameters"],
        "seconds_each": mean((score["training seconds"] for score in scores), 1),
    }  # fmt: skip


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--init", default="", help="the folder of MiniLM; without it only what starts from nothing")
    parser.add_argument("--recipes", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS))
    options = training_options(parser, "tagging")
    every = list(jobs(options))

    def score(job: Job) -> dict[str, Any]:
        init = options.init if CASES[job.recipe].pretrained else ""
        return trained(job.recipe, job.name, options.runs, job.settings(options), init)

    found = grouped(side_by_side(score, every, options.parallel))
    rows = [row(recipe, head, list(scores.values())) for (recipe, head), scores in found.items()]
    case = {"seeds": options.seeds, "trainings": len(every), "at_a_time": min(options.parallel, len(every))}
    write(f"tagging-{options.device}", options.device, rows, options.out, case=case)


if __name__ == "__main__":
    main()

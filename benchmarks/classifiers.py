"""The ladder of classifiers on SST-2, MR and TREC: accuracy, seconds, and what each reads of order and context.

Every rung of `headway compare classifiers` learns from the same texts; the test texts are asked once, by the weights
that were best in validation. Of MR, which has no test part, a tenth is held out for it. With `--init MODEL`
(all-MiniLM-L6-v2) the frozen and the fine-tuned encoder are there too. Then each trained model is asked again:

    order    the test texts with their words shuffled: the share of labels that change, and the accuracy left
    context  two tokens, three or more apart, are replaced by "the", one, the other and both. What both do together,
             less what each does alone, as a share of what each does alone: 0 where no word depends on another
    left, right   how much the vector of a token changes, as a share of its length, when a token three or more places
             before or behind it is replaced

Many small trainings, in processes side by side; one that has ended is not trained again, one that was stopped is
resumed: `--runs` is where they lie.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/classifiers.py --device cuda --init MODEL --seeds 3 --parallel 12
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import random
import statistics
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from scores import trained
from side_by_side import grouped, mean, side_by_side, spread, training_options

from headway.recipes import GROUPS, RECIPES
from headway.tasks.loading import load
from headway.text.framing import Framed, frame

FILES = {
    "SST-2": {"train": "textcls/stsa.binary.train.gz", "valid": "textcls/stsa.binary.dev.gz",
              "test": "textcls/stsa.binary.test.gz"},
    "MR": {"train": "textcls/rt-polarity.all.gz", "encoding": "latin-1", "hold_out_test": "0.1"},
    "TREC": {"train": "textcls/TREC.train.all.gz", "test": "textcls/TREC.test.all.gz", "encoding": "latin-1"},
}  # fmt: skip
WORDS = ["data.text.kind=word", "data.text.size=30000", "data.text.min_count=1", "data.text.lowercase=true"]
APART, ASKED, NEUTRAL = 3, 400, "the"


class Job(NamedTuple):
    data: str
    rung: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.data}-{self.rung}-seed-{self.seed}"


def jobs(options: Namespace) -> Iterator[Job]:
    for data in options.data:
        for rung in options.rungs:
            if RECIPES[rung].pretrained and not options.init:
                continue
            once = RECIPES[rung].make().objective.one_pass
            yield from (Job(data, rung, seed) for seed in range(1, (1 if once else options.seeds) + 1))


def learned(job: Job, options: Namespace) -> dict[str, Any]:
    """The scores of a training that is done now, or was done before."""
    starts = RECIPES[job.rung].pretrained
    files = [f"data.{key}={value}" for key, value in FILES[job.data].items()]
    own = [f"engine.seed={job.seed}", f"engine.device={options.device}", *options.settings]
    init = options.init if starts else ""
    return trained(job.rung, job.name, options.runs, [*files, *([] if starts else WORDS), *own], init)


def test_texts(folder: Path) -> list[tuple[str, str]]:
    """The test texts of a run with their labels, as its model calls them."""
    from headway.tasks.classification import Classification
    from headway.tasks.start import RunContext
    from headway.train.log import Log
    from headway.train.run import read_run

    run = read_run(folder / "run.json")
    task = Classification.__new__(Classification)
    task.run, task.log = run, Log(quiet=True)
    task.context = RunContext(folder, task.log, torch.device("cpu"), torch.float32, None)
    parts = task.open_parts()
    called = dict(zip(task.written, task.labels, strict=True))
    return [(one.text, called[one.label]) for one in parts["test"]]


def labels(model: Any, texts: Sequence[str]) -> list[str]:
    return [best.text for best, *_ in model.classify(list(texts), truncate=True)]


def order(model: Any, texts: Sequence[tuple[str, str]]) -> dict[str, float]:
    draw = random.Random(0)
    shuffled = [" ".join(draw.sample(words := text.split(), len(words))) for text, _ in texts]
    before, after = labels(model, [text for text, _ in texts]), labels(model, shuffled)
    right = [given == wanted for given, (_, wanted) in zip(after, texts, strict=True)]
    return {
        "changed": statistics.mean(a != b for a, b in zip(before, after, strict=True)),
        "shuffled": statistics.mean(right),
    }


def token_of(model: Any, word: str) -> int:
    [framed] = frame(model.tokenizer, [word], model.limit, spans=True)
    return next(entry for entry, at in zip(framed.ids, framed.words, strict=True) if at is not None)


def replaced(ids: list[int], places: Sequence[int], entry: int) -> list[int]:
    return [entry if at in places else one for at, one in enumerate(ids)]


@torch.inference_mode()
def context(model: Any, texts: Sequence[tuple[str, str]]) -> dict[str, float]:
    draw, neutral = random.Random(1), token_of(model, NEUTRAL)
    together = alone = 0.0
    sides: dict[str, list[float]] = {"left": [], "right": []}
    framed = frame(model.tokenizer, [text for text, _ in texts[:ASKED]], model.limit, truncate=True, spans=True)
    for one in framed:
        own = [at for at, word in enumerate(one.words) if word is not None and one.ids[at] != neutral]
        pairs = [(a, b) for a in own for b in own if b - a >= APART]
        if not pairs:
            continue
        first, second = draw.choice(pairs)
        rows = [replaced(one.ids, places, neutral) for places in ((), (first,), (second,), (first, second))]
        encoded = model.model.encode(model._inputs([Framed(row) for row in rows]))
        logits_BL = model.model.head(encoded).double()
        best, next_best = logits_BL[0].topk(2).indices.tolist()
        whole, no_first, no_second, neither = (logits_BL[:, best] - logits_BL[:, next_best]).tolist()
        together += abs(whole - no_first - no_second + neither)
        alone += abs(whole - no_first) + abs(whole - no_second)
        if model.model.encoder.per_token:
            for side, row, at in (("left", 1, second), ("right", 2, first)):
                moved = (encoded.x_BTD[row, at] - encoded.x_BTD[0, at]).norm() / encoded.x_BTD[0, at].norm()
                sides[side].append(float(moved))
    found = {"together": together / alone if alone else 0.0}
    return found | {side: statistics.mean(values) for side, values in sides.items() if values}


def row_of(own: dict[Job, dict[str, Any]], options: Namespace) -> dict[str, Any]:
    """Figures of all seeds, and what the model of the first seed reads."""
    first, scores = next(iter(own)), list(own.values())
    each = [score["test accuracy"] for score in scores]
    folder = options.runs / first.name
    texts, model = test_texts(folder), load(folder, options.device, "float32")
    read = order(model, texts) | context(model, texts)
    seconds = [score.get("training seconds", score.get("fitting seconds")) for score in scores]
    return {
        "data": first.data, "rung": first.rung, "accuracy": mean(each), "each_seed": each, "spread": spread(each),
        "seconds": mean(seconds, 1), "parameters": scores[0]["parameters"],
    } | {name: round(value, 4) for name, value in read.items()}  # fmt: skip


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--init", help="an encoder that has read much before: its frozen and fine-tuned rungs too")
    parser.add_argument("--data", nargs="+", choices=FILES, default=list(FILES))
    parser.add_argument("--rungs", nargs="+", choices=GROUPS["classifiers"], default=list(GROUPS["classifiers"]))
    options = training_options(parser, "classifiers")
    every = list(jobs(options))
    found = side_by_side(lambda job: learned(job, options), every, options.parallel)
    rows = [row_of(own, options) for own in grouped(found).values()]
    case = {"seeds": options.seeds, "trainings": len(every), "at_a_time": min(options.parallel, len(every))}
    write(f"classifiers-{options.device}", options.device, rows, options.out, case=case)


if __name__ == "__main__":
    main()

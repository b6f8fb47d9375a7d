"""Kim's convolutional classifier (2014) on his data: MR in ten folds, TREC, SST-2; several seeds, random vectors.

SST-2 is trained on the phrases of GLUE and tested on whole sentences; of MR and TREC a tenth of the training texts
chooses the step, and their words are those of Kim's own program. How the batches are made (CANDIDATES) is chosen for
each data set by validation, in trainings that have no test part: one seed in every fold of MR, three seeds of the
others. The test texts are asked once, by the weights that were best in validation, of trainings of the chosen way. Many
small trainings, in processes side by side; one that has ended is not trained again, one that was stopped is resumed:
`--runs` is where they lie. With `--vectors FILE` (word2vec's text or binary form, such as
`headway vectors` writes) the same with vectors that are static, tuned, and both.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/text_cnn.py --device cuda --seeds 3 --parallel 12
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import re
import statistics
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scores import trained
from side_by_side import grouped, mean, side_by_side, training_options

from headway.data.catalog import find
from headway.data.labelled import Labelled, read_labelled
from headway.text.vectors import read_vectors

FOLDS = 10
PUBLISHED = {"MR": 0.761, "TREC": 0.912, "SST-2": 0.827}  # Kim 2014, table 2, CNN-rand
RECIPES = {"MR": "mr-cnn", "TREC": "trec-cnn", "SST-2": "sst2-cnn"}
SHORT = r"n't|'(?:s|ve|re|d|ll)"
WORD = re.compile(rf"{SHORT}|(?:(?!{SHORT})[A-Za-z0-9'`])+|[(),!?]")
WAYS = {"static": "static", "tuned": "non-static", "both": "multichannel"}
# Tokens of a batch of about fifty sentences; where sentences of any length share one, as Kim's do, as if all were as
# long as the longest.
BATCHES = {
    "by-length": {"MR": 1024, "TREC": 640, "SST-2": 1024},
    "mixed": {"MR": 3200, "TREC": 2000, "SST-2": 2800},
}
CANDIDATES = {
    "by length": ("by-length", 0.0),
    "mixed": ("mixed", 0.0),
    "by length, hidden 0.1": ("by-length", 0.1),
    "mixed, hidden 0.1": ("mixed", 0.1),
}
SEEDS_TO_CHOOSE = {"MR": 1, "TREC": 3, "SST-2": 3}


class Job(NamedTuple):
    data: str
    vectors: str
    candidate: str
    seed: int
    fold: int
    settings: tuple[str, ...]
    tested: bool

    @property
    def name(self) -> str:
        fold = f"-fold-{self.fold}" if self.data == "MR" else ""
        way = re.sub(r"[ ,.]+", "-", self.candidate)
        return f"{RECIPES[self.data]}-{self.vectors}-{way}{fold}-seed-{self.seed}{'' if self.tested else '-choosing'}"


def kims_words(text: str) -> str:
    """The words that Kim's program makes of a text: contractions taken apart, no marks but ( ) , ! ? ' and `"""
    return " ".join(WORD.findall(text))


def written(file: Path, texts: Sequence[Labelled], clean: Callable[[str], str]) -> Path:
    file.write_text("".join(f"{one.label} {clean(one.text)}\n" for one in texts), encoding="utf-8")
    return file


def questions(runs: Path) -> list[str]:
    """TREC: the settings that name its files."""
    places = {part: find(f"textcls/TREC.{part}.all.gz") for part in ("train", "test")}
    files = {
        part: written(runs / f"trec.{part}", read_labelled([place], encoding="latin-1"), kims_words)
        for part, place in places.items()
    }
    return [f"data.{part}={file}" for part, file in files.items()] + ["data.encoding=utf-8"]


def folds(runs: Path, clean: Callable[[str], str] = str) -> list[list[str]]:
    """The texts of MR in ten parts: of each fold the settings that name its training and its test file."""
    texts = read_labelled([find("textcls/rt-polarity.all.gz")], encoding="latin-1")
    part = np.random.default_rng(0).permutation(len(texts)) % FOLDS
    found = []
    for fold in range(FOLDS):
        files = {name: runs / f"mr-fold-{fold}.{name}" for name in ("train", "test")}
        for name, file in files.items():
            chosen = [one for one, at in zip(texts, part, strict=True) if (at == fold) == (name == "test")]
            written(file, chosen, clean)
        found.append([f"data.{name}={file}" for name, file in files.items()] + ["data.encoding=utf-8"])
    return found


def files(options: Namespace) -> dict[str, list[list[str]]]:
    """Of each data set the settings that name the files of its folds."""
    found: dict[str, list[list[str]]] = {"SST-2": [[]]}
    found |= {"MR": folds(options.runs, kims_words)} if "MR" in options.data else {}
    found |= {"TREC": [questions(options.runs)]} if "TREC" in options.data else {}
    return {data: found[data] for data in options.data}


def vectors(options: Namespace) -> dict[str, list[str]]:
    """The settings of each kind of word vectors."""
    if not options.vectors:
        return {"random": []}
    width = read_vectors(options.vectors).width
    return {"random": []} | {
        name: [f"init={options.vectors}", f"model.vectors={kind}", f"model.width={width}"]
        for kind, name in WAYS.items()
    }


def jobs(
    options: Namespace, data: str, of_fold: list[list[str]], way: str, candidate: str, seeds: int, tested: bool
) -> Iterator[Job]:
    order, hidden = CANDIDATES[candidate]
    batches = f"data.order={order}", f"data.hidden={hidden}", f"engine.batch={BATCHES[order][data]}"
    common = [*vectors(options)[way], *batches, f"engine.device={options.device}", *options.settings]
    for seed in range(1, seeds + 1):
        for fold, named in enumerate(of_fold):
            without = () if tested else ("data.test=[]",)
            settings = (f"engine.seed={seed}", *named, *without, *common)
            yield Job(data, way, candidate, seed, fold, settings, tested)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--vectors", type=Path, help="a file of word vectors, for three more rows of each data set")
    parser.add_argument("--data", nargs="+", choices=PUBLISHED, default=list(PUBLISHED))
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    options = training_options(parser, "text-cnn")
    of_data, ways = files(options), list(vectors(options))

    def score(job: Job) -> dict[str, Any]:
        return trained(RECIPES[job.data], job.name, options.runs, job.settings)

    choosing = [
        job for data, of_fold in of_data.items() for candidate in options.candidates
        for job in jobs(options, data, of_fold, "random", candidate, SEEDS_TO_CHOOSE[data], tested=False)
    ]  # fmt: skip
    validation: dict[str, dict[str, float]] = {data: {} for data in of_data}
    tried = side_by_side(score, choosing, options.parallel)
    for data in of_data:
        for candidate in options.candidates:
            own = [tried[job]["validation accuracy"] for job in choosing if job[0] == data and job[2] == candidate]
            validation[data][candidate] = mean(own)
    best = {data: max(tried_of, key=lambda name: tried_of[name]) for data, tried_of in validation.items()}
    every = [
        job for data, of_fold in of_data.items() for way in ways
        for job in jobs(options, data, of_fold, way, best[data], options.seeds, tested=True)
    ]  # fmt: skip

    rows: list[dict[str, Any]] = []
    for (data, way), own in grouped(side_by_side(score, every, options.parallel)).items():
        seeds, scores = range(1, options.seeds + 1), own.values()
        each = [statistics.mean(own[job]["test accuracy"] for job in own if job.seed == seed) for seed in seeds]
        rows.append({
            "data": data, "vectors": way, "folds": FOLDS if data == "MR" else 1, "batches": best[data],
            "accuracy": mean(each), "each_seed": [round(value, 4) for value in each],
            "validation": mean(one["validation accuracy"] for one in scores),
            "published": PUBLISHED[data] if way == "random" else None,
            "seconds_each": mean((one["training seconds"] for one in scores), 1),
        })  # fmt: skip
    case = {"seeds": options.seeds, "trainings": len(choosing) + len(every), "at_a_time": options.parallel}
    write(f"text-cnn-{options.device}", options.device, rows, options.out, case=case, validation=validation)


if __name__ == "__main__":
    main()

"""Kim's convolutional classifier (2014) on his data: MR in ten folds, TREC, SST-2; several seeds, random vectors.

SST-2 is trained on the phrases of GLUE and tested on whole sentences; of MR and TREC a tenth of the training texts
chooses the step, and their words are those of Kim's own program. The test texts are asked once, by the weights that
were best in validation. Many small trainings, in processes side by side; one that has ended is not trained again, one
that was stopped is resumed: `--runs` is where they lie. With `--vectors FILE` (word2vec's text or binary form, such as
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


class Job(NamedTuple):
    data: str
    vectors: str
    seed: int
    fold: int
    settings: tuple[str, ...]

    @property
    def name(self) -> str:
        fold = f"-fold-{self.fold}" if self.data == "MR" else ""
        return f"{RECIPES[self.data]}-{self.vectors}{fold}-seed-{self.seed}"


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


def jobs(options: Namespace) -> Iterator[Job]:
    files_of: dict[str, list[list[str]]] = {"SST-2": [[]]}
    files_of |= {"MR": folds(options.runs, kims_words)} if "MR" in options.data else {}
    files_of |= {"TREC": [questions(options.runs)]} if "TREC" in options.data else {}
    common = [f"engine.device={options.device}", *options.settings]
    ways = {"random": list[str]()}
    if options.vectors:
        width = read_vectors(options.vectors).width
        ways |= {
            name: [f"init={options.vectors}", f"model.vectors={kind}", f"model.width={width}"]
            for kind, name in WAYS.items()
        }
    for data in options.data:
        for vectors, chosen in ways.items():
            for seed in range(1, options.seeds + 1):
                for fold, files in enumerate(files_of[data]):
                    yield Job(data, vectors, seed, fold, (f"engine.seed={seed}", *chosen, *files, *common))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--vectors", type=Path, help="a file of word vectors, for three more rows of each data set")
    parser.add_argument("--data", nargs="+", choices=PUBLISHED, default=list(PUBLISHED))
    options = training_options(parser, "text-cnn")
    every = list(jobs(options))

    def score(job: Job) -> dict[str, Any]:
        return trained(RECIPES[job.data], job.name, options.runs, job.settings)

    rows: list[dict[str, Any]] = []
    for (data, vectors), own in grouped(side_by_side(score, every, options.parallel)).items():
        seeds, scores = range(1, options.seeds + 1), own.values()
        each = [statistics.mean(own[job]["test accuracy"] for job in own if job.seed == seed) for seed in seeds]
        rows.append({
            "data": data, "vectors": vectors, "folds": FOLDS if data == "MR" else 1,
            "accuracy": mean(each), "each_seed": [round(value, 4) for value in each],
            "validation": mean(one["validation accuracy"] for one in scores),
            "published": PUBLISHED[data] if vectors == "random" else None,
            "seconds_each": mean((one["training seconds"] for one in scores), 1),
        })  # fmt: skip
    case = {"seeds": options.seeds, "trainings": len(every), "at_a_time": min(options.parallel, len(every))}
    write(f"text-cnn-{options.device}", options.device, rows, options.out, case=case)


if __name__ == "__main__":
    main()

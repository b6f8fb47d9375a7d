"""Spelling to sound in 15 languages (SIGMORPHON 2020, task 1): word error rate by language, and the mean of all.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/g2p.py --parallel 8

3,600 words of each language to train on, 450 to choose weights by, 450 to test once. Every language is one run of a
recipe with the same settings. A run that was stopped is resumed by the same command, one that has ended is not trained
again: `--runs` is where they lie. The archive `sigmorphon2020_g2p/task1.tar.xz` below HEADWAY_DATA is unpacked there.
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import tarfile
from pathlib import Path
from typing import Any

from scores import trained
from side_by_side import side_by_side, training_options

from headway.data.catalog import find

ARCHIVE = "sigmorphon2020_g2p/task1.tar.xz"
LANGUAGES = ("ady", "arm", "bul", "dut", "fre", "geo", "gre", "hin", "hun", "ice", "jpn", "kor", "lit", "rum", "vie")
RECIPES = ("g2p", "g2p-transformer")
FIGURES = {"validation": "validation word error", "test": "test word error", "test tokens": "test token error"}


def unpacked(folder: Path) -> Path:
    if not (folder / "test").is_dir():
        with tarfile.open(find(ARCHIVE)) as archive:
            archive.extractall(folder, filter="data")
    return folder


def row(recipe: str, language: str, seed: int, data: Path, runs: Path, settings: list[str]) -> dict[str, Any]:
    parts = {"train": "train", "valid": "dev", "test": "test"}
    files = [f"data.{key}={data / name / f'{language}_{name}.tsv'}" for key, name in parts.items()]
    name = f"{recipe}-{language}-seed-{seed}"
    score = trained(recipe, name, runs, [*files, f"engine.seed={seed}", *settings])
    found = {name: score[key] for name, key in FIGURES.items()}
    return {"recipe": recipe, "language": language, "seed": seed, **found, "parameters": score["parameters"],
            "seconds": score["training seconds"]}  # fmt: skip


def means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each recipe over all languages (and seeds), every language counting alike."""
    found = []
    for recipe in dict.fromkeys(row["recipe"] for row in rows):
        own = [row for row in rows if row["recipe"] == recipe]
        figures = {name: round(sum(row[name] for row in own) / len(own), 2) for name in FIGURES}
        seconds = round(sum(row["seconds"] for row in own), 1)
        found.append({"recipe": recipe, "language": "mean", **figures, "seconds": seconds})
    return found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--languages", nargs="+", default=list(LANGUAGES), choices=LANGUAGES)
    options = training_options(parser, "g2p", seeds=1)
    data = unpacked(options.runs / "data")
    settings = [f"engine.device={options.device}", *options.settings]
    jobs = [
        (recipe, language, seed)
        for recipe in options.recipes for language in options.languages for seed in range(1, options.seeds + 1)
    ]  # fmt: skip
    found = side_by_side(lambda job: row(*job, data, options.runs, settings), jobs, options.parallel)
    rows = list(found.values())
    case = {"languages": len(options.languages), "seeds": options.seeds, "at a time": options.parallel}
    write("g2p", options.device, means(rows) + rows, options.out, case=case, settings=options.settings)


if __name__ == "__main__":
    main()

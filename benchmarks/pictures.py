"""The pictures of the docs that no measurement draws, and the list of which script draws which.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/pictures.py DEMO --runs runs/pictures

DEMO is what `headway demo --out DEMO` leaves: its pictures of heads are taken from there. Three short trainings give
the curves, an LSTM that reads Shakespeare letter by letter the gates, the record of the ladder its
picture. A training that was stopped is resumed; `--only` takes some of the pictures.
"""

from __future__ import annotations

from measure import RESULTS, arguments

# isort: split
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

import headway
from headway.explore.curves import comparison_picture
from headway.explore.gates import gates_of, gates_picture
from headway.train.comparison import Entry

DOCS = Path(__file__).parent.parent / "docs"
LINE = "But, soft! what light"
# By the script that draws them.
PICTURES = {
    "pictures.py": ("alignment", "heads", "curves", "gates", "ladder"),
    "counting.py": ("chains", "votes"),
    "distance.py": ("recurrent",),
    "last_words.py": ("last-words",),
    "analyses.py": ("analyse-alignment", "analyse-antecedents", "analyse-heads", "analyse-reach"),
    "looking.py": (
        "looking-contexts-gpt", "looking-contexts-minilm", "looking-importance", "looking-lens", "looking-pronouns",
        "looking-relations-gpt", "looking-relations-minilm",
    ),
    "worked.py": (
        "worked-alignment", "worked-biases", "worked-it", "worked-masks", "worked-positions", "worked-roles",
        "worked-steps", "worked-variance",
    ),
    "scene_pictures.py": ("scenes",),
    "road.py": ("road", "road-lengths"),
    "decisions.py": ("decisions",),
    "memory.py": ("memory-distance",),
    "page_pictures.py": (
        "explore-attention", "explore-beam", "explore-compare", "explore-lines", "explore-next", "explore-positions",
        "explore-states", "explore-steps",
    ),
}  # fmt: skip


def run(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "headway", *words], check=True)


def of_the_demo(name: str) -> Callable[[Path, Path], None]:
    return lambda demo, runs: shutil.copy(demo / f"{name}.png", DOCS / f"{name}.png") and None


def curves(demo: Path, runs: Path) -> None:
    """Three rates."""
    places = {peak: runs / f"peak-{peak}" for peak in ("0.0005", "0.003", "0.01")}
    for peak, place in places.items():
        if not (place / "model").exists():
            run("demo", "--out", str(place), "--set", f"schedule.peak={peak}", "engine.steps=400",
                "engine.log=10", "validation.every=40", "validation.score_every=40")  # fmt: skip
    run("plot", *map(str, places.values()), "--out", str(DOCS / "curves.png"))


def gates(demo: Path, runs: Path) -> None:
    """An LSTM that has read Shakespeare for a minute or two."""
    place = runs / "letters"
    text = Path(os.environ["HEADWAY_DATA"]) / "tinyshakespeare" / "input.txt.gz"
    if not (place / "model").exists():
        run("train", "lstm", "--data", str(text), "--out", str(place), "--set", "data.text.kind=char",
            "model.width=128", "engine.steps=600")  # fmt: skip
    generator = headway.load(str(place))
    ids = generator.tokenizer.encode(LINE)
    gates_picture(gates_of(generator.model, torch.tensor(ids)), list(LINE), DOCS / "gates.png")


def ladder(demo: Path, runs: Path) -> None:
    """From the record: Jane Eyre."""
    [path] = sorted(RESULTS.glob("ladder-*.json"))[-1:]
    rows = [row for row in json.loads(path.read_text(encoding="utf-8"))["rows"] if row["corpus"] == "Jane Eyre"]
    entries = [
        Entry(row["recipe"], "perplexity", row["parameters"], test=row["each"], validation=[row["validation"]],
              seconds=[row["seconds"]], speed=[row["tokens"] / max(row["seconds"], 0.1)], tokens=row["tokens"])
        for row in rows
    ]  # fmt: skip
    comparison_picture(entries, DOCS / "ladder.png", higher_is_better=False)


DRAW: dict[str, Callable[[Path, Path], None]] = {
    "alignment": of_the_demo("alignment"),
    "heads": of_the_demo("heads"),
    "curves": curves,
    "gates": gates,
    "ladder": ladder,
}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("demo", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/pictures"))
    parser.add_argument("--only", nargs="+", choices=DRAW, default=list(DRAW))
    options = parser.parse_args()
    for name in options.only:
        DRAW[name](options.demo, options.runs)
        print(f"docs/{name}.png", flush=True)


if __name__ == "__main__":
    main()

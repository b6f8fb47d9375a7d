"""What several folders of tests share: sentence pairs in files, and surroundings of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from headway.data.token_store import Amount
from headway.recipes.grammar import sample
from headway.text.tokenizer import END


@dataclass(frozen=True)
class TokenArray:
    """A corpus of packed documents that is an array in memory."""

    ids: NDArray[np.integer[Any]]
    end: int = END
    amount: Amount | None = None

    @property
    def tokens(self) -> int:
        return len(self.ids)

    def windows(self, starts: list[int], width: int) -> NDArray[np.int64]:
        return np.stack([self.ids[start : start + width] for start in starts]).astype(np.int64)


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

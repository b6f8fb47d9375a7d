"""Minimal pairs: of two endings of one context, does a language model find the right one more likely?

    margin = log p(context right) − log p(context wrong)    in nats; the right one is preferred where it is above 0

What the two texts share at their start cancels, so the margin is that of the endings, wherever a tokenizer cuts.
A set may hold the mirror of each pair (contexts that differ in what matters alone, endings changed about): a model that
does not see what matters then scores exactly one half.

B rows, T length.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headway.data.documents import cut_up
from headway.errors import InputError
from headway.evaluate.perplexity import token_logp
from headway.text.tokenizer import END, PAD, Tokenizer

TOKENS_AT_ONCE = 1 << 14
KEYS = ("context", "right", "wrong")


@dataclass(frozen=True)
class Pair:
    """Endings stand right behind the context: a space between them is part of the ending."""

    context: str
    right: str
    wrong: str


@dataclass(frozen=True)
class Preference:
    """The margin of each pair, in their order."""

    margins: tuple[float, ...]

    @property
    def share(self) -> float:
        """Of the pairs whose right ending is preferred; one that is as likely as the other counts half."""
        return sum(0.5 + 0.5 * ((margin > 0) - (margin < 0)) for margin in self.margins) / len(self.margins)

    @property
    def nats(self) -> float:
        """By which the right ending is preferred, on average."""
        return math.fsum(self.margins) / len(self.margins)

    def values(self) -> dict[str, float | int]:
        """By name, for a log or a table."""
        return {"pairs": len(self.margins), "share": self.share, "nats": self.nats}


def score_pairs(model: Any, tokenizer: Tokenizer, pairs: Sequence[Pair]) -> Preference:
    """Each text is read as at the start of a document."""
    if not pairs:
        raise InputError("there are no pairs to score: the list is empty")
    texts = [pair.context + ending for pair in pairs for ending in (pair.right, pair.wrong)]
    rows = [[END, *_encoded(tokenizer, text)] for text in texts]
    longest, context = max(map(len, rows)) - 1, getattr(model, "context", None)
    if context is not None and longest > context:
        raise InputError(f"a pair has {longest} tokens, the model reads at most {context}: shorten its context")
    for number, (right, wrong) in enumerate(zip(rows[::2], rows[1::2], strict=True), 1):
        if right == wrong:
            raise InputError(f"the endings of pair {number} are the same tokens to this model: {pairs[number - 1]}")
    logp = [value for some in _batches(rows) for value in _log_probabilities(model, some)]
    return Preference(tuple(right - wrong for right, wrong in zip(logp[::2], logp[1::2], strict=True)))


def _encoded(tokenizer: Tokenizer, text: str) -> list[int]:
    """Its ids as a store has them, without END."""
    return [i for ids in tokenizer.encode_batch([part.text for part in cut_up(iter([text]))]) for i in ids]


def _batches(rows: list[list[int]]) -> list[list[list[int]]]:
    count = max(1, TOKENS_AT_ONCE // max(map(len, rows)))
    return [rows[at : at + count] for at in range(0, len(rows), count)]


def _log_probabilities(model: Any, rows: list[list[int]]) -> list[float]:
    """Of each row, its first token given."""
    longest = max(map(len, rows))
    ids_BT = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])
    logp_BT = token_logp(model, ids_BT).double().cpu()
    found: list[float] = logp_BT.masked_fill(ids_BT == PAD, 0.0).sum(1).tolist()
    return found


def read_pairs(path: str | Path) -> list[Pair]:
    """A .jsonl file: an object with `context`, `right` and `wrong` on each line."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    pairs = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}, line {number} is no JSON: {error}") from None
        if not isinstance(found, dict) or not all(isinstance(found.get(key), str) for key in KEYS):
            raise InputError(f"{path}, line {number}: expected an object with the texts {', '.join(KEYS)}")
        pairs.append(Pair(*(found[key] for key in KEYS)))
    if not pairs:
        raise InputError(f"{path} holds no pairs")
    return pairs

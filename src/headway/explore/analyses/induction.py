"""Heads that carry a pattern on: [A][B] … [A] → [B] (Olsson et al. 2022, "In-context learning and induction heads").

Random tokens are read twice over. previous: what a place gives to the one before it. induction: what a place of the
second round gives to the token behind its own first occurrence, the one that comes next.

B rows, H heads, N tokens of a round, T places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headway.errors import InputError, refuse
from headway.explore.analyses.analysis import Analysis, Table, Traced
from headway.explore.analyses.heads import head_map, head_rows
from headway.explore.analyses.sites import sites
from headway.explore.plots import heat_maps
from headway.generate.tracing import trace
from headway.traces import Array


@dataclass(frozen=True)
class Options:
    """length: tokens of a round (less where the model reads less). rows: how many such texts. seed: draws them."""

    length: int = 50
    rows: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        if self.length < 2 or self.rows < 1:
            raise InputError(f"length {self.length}, rows {self.rows}: at least 2 tokens, at least 1 row")


def scores(weights_HTT: Array, before: int, length: int) -> tuple[Array, Array]:
    """(previous, induction) of each head, of `before` places and then twice `length` tokens. Leading axes are kept."""
    t = np.arange(before + 1, before + 2 * length)
    again = np.arange(before + length, before + 2 * length)
    return weights_HTT[..., t, t - 1].mean(-1), weights_HTT[..., again, again - length + 1].mean(-1)


def random_rounds(generator: Any, length: int, rows: int, seed: int) -> torch.Tensor:
    """Tokens of the vocabulary, specials apart, twice over; each row begins as the model's texts do."""
    tokenizer = generator.tokenizer
    special = {*tokenizer.stops, tokenizer.start, tokenizer.end, tokenizer.pad, tokenizer.unknown}
    usual = [i for i in range(min(len(tokenizer), generator.model.vocabulary)) if i not in special]
    ids_BN = np.random.default_rng(seed).choice(usual, (rows, length))
    opening_BO = np.tile(generator.ids(""), (rows, 1))
    return torch.from_numpy(np.concatenate([opening_BO, ids_BN, ids_BN], 1).astype(np.int64))


def induction(traced: Traced, files: Sequence[str], options: Options) -> Table:
    """Heads that look at the previous token, and heads that carry a repeated pattern on."""
    generator = traced.loaded
    if generator.takes != "one":
        raise InputError("induction is for language models, which read a text from left to right: this is none")
    if files:
        raise InputError(f"{files[0]}: this analysis makes up its own texts, leave the file out")
    before = len(generator.ids(""))
    length = min(options.length, (generator.context - before) // 2)
    refuse(length < 2, f"this model reads {generator.context} tokens, too few for two rounds of two")
    ids_BT = random_rounds(generator, length, options.rows, options.seed).to(generator.device)
    with torch.inference_mode(), trace(generator, tensors=("attention.weights", "logits")) as recording:
        model: Any = generator.model
        model(ids_BT)
    first_sites = [sites(recording.row(row))[0] for row in range(options.rows)]
    found = [scores(site.weights_LHTS, before, length) for site in first_sites]
    previous_LH, induction_LH = (np.mean(some, 0) for some in zip(*found, strict=True))
    rows = head_rows(first_sites[0].name, first_sites[0].layers, previous_LH, induction_LH)
    first, second = _losses(recording.tensors["logits"], ids_BT, before, length)
    best = max(rows, key=lambda row: float(row[4] or 0))
    anywhere = float((1 / np.arange(before + length + 1, before + 2 * length + 1)).mean())  # 1/(places seen)
    notes = (
        f"{options.rows} texts of {length} random tokens twice over; a head that looks anywhere gives "
        f"{anywhere:.3f} to any one place of the second round",
        f"loss in the first round {first:.3f} nats a token, in the second {second:.3f}",
        f"strongest induction: layer {best[1]}, head {best[2]} ({float(best[4] or 0):.3f})",
    )
    return Table(("site", "layer", "head", "previous", "induction"), rows, notes, {"loss": [first, second]})


def _losses(logits_BTV: torch.Tensor, ids_BT: torch.Tensor, before: int, length: int) -> tuple[float, float]:
    """−log p of the tokens of each round; the first of a round is left out: nothing predicts it."""
    logp_BTV = logits_BTV[:, :-1].double().log_softmax(-1)
    loss_BT = -logp_BTV.gather(-1, ids_BT[:, 1:, None]).squeeze(-1)
    starts = [before, before + length]  # of the rounds; the loss of the token at t stands at t − 1
    first, second = (float(loss_BT[:, start : start + length - 1].mean()) for start in starts)
    return first, second


def draw(table: Table, path: Path) -> Path:
    site, titles = table.column("site")[0], {"previous": "previous token", "induction": "induction"}
    maps = [head_map(table, name, site, title, high=1.0) for name, title in titles.items()]
    return heat_maps([maps], path, heading="Random tokens read twice over")


INDUCTION = Analysis("induction", "nothing", ("attention.weights",), induction, draw, Options)

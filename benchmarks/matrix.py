"""Attention query by query and key by key, and as products of matrices: the same numbers, timed.

One head of width 64 over n tokens, float32, one forward pass: a loop over every query and key, a loop over the queries
(each against all keys at once), softmax(QKᵀ/√d)V, and torch's fused kernel. `apart`: the largest difference from the
same in float64. The loop over pairs is left out where it would take minutes. Draws `results/matrix-DEVICE.svg` beside
its JSON.

    PYTHONPATH=src python benchmarks/matrix.py --device cpu
    PYTHONPATH=src python benchmarks/matrix.py --device cpu --lengths 8 16 --repeats 2
"""

from __future__ import annotations

from measure import RESULTS, arguments, interleaved, median, write

# isort: split
import math
from functools import partial
from pathlib import Path
from typing import Any

import torch
from panels import Panel, draw
from torch import Tensor

from headway.nn.attention import attend, fused_attend
from headway.nn.view import SEE_ALL

LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
WIDTH = 64
PAIRS = 256  # tokens up to which every pair is computed by itself


def by_pairs(q_TK: Tensor, k_SK: Tensor, v_SK: Tensor) -> Tensor:
    """z_i = Σ_j softmax_j(q_i·k_j/√d) v_j, number by number."""
    rows = []
    for q_K in q_TK:
        scores_S = torch.stack([q_K @ k_K / math.sqrt(len(q_K)) for k_K in k_SK])
        weights_S = (scores_S - scores_S.max()).exp()
        weights_S = weights_S / weights_S.sum()
        mixed_K = torch.zeros_like(q_K)
        for weight, v_K in zip(weights_S, v_SK, strict=True):
            mixed_K = mixed_K + weight * v_K
        rows.append(mixed_K)
    return torch.stack(rows)


def by_queries(q_TK: Tensor, k_SK: Tensor, v_SK: Tensor) -> Tensor:
    """z_i = softmax(q_i Kᵀ/√d) V."""
    return torch.stack([torch.softmax(k_SK @ q_K / math.sqrt(len(q_K)), 0) @ v_SK for q_K in q_TK])


def as_matrices(q_TK: Tensor, k_SK: Tensor, v_SK: Tensor) -> Tensor:
    return attend(*(part[None, None] for part in (q_TK, k_SK, v_SK)))[0][0, 0]


def fused(q_TK: Tensor, k_SK: Tensor, v_SK: Tensor) -> Tensor:
    q, k, v = (part[None, None] for part in (q_TK, k_SK, v_SK))
    return fused_attend(q, k, v, SEE_ALL)[0, 0]


WAYS = {
    "loop over queries and keys": by_pairs,
    "loop over queries": by_queries,
    "matrices": as_matrices,
    "one kernel": fused,
}


@torch.no_grad()
def at(length: int, device: str, repeats: int) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    given = [torch.randn(length, WIDTH, device=device) for _ in range(3)]
    ways = {name: way for name, way in WAYS.items() if length <= PAIRS or way is not by_pairs}
    found = {name: way(*given) for name, way in ways.items()}
    exact = as_matrices(*(part.double() for part in given))
    times = interleaved({name: partial(way, *given) for name, way in ways.items()}, device, 1, repeats)
    best = median(times["matrices"])
    return [
        {
            "way": name,
            "length": length,
            "milliseconds": float(f"{1e3 * median(times[name]):.3g}"),
            "times_matrices": float(f"{median(times[name]) / best:.3g}"),
            "apart": float(f"{(found[name] - exact).abs().max():.1e}"),
        }
        for name in ways
    ]


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    lines = {way: [(row["length"], row["milliseconds"]) for row in rows if row["way"] == way] for way in WAYS}
    draw(
        [Panel("attention of one head, ms", lines, "tokens", sorted({row["length"] for row in rows}), log_y=True)], path
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for length in options.lengths for row in at(length, options.device, options.repeats or 5)]
    name = f"matrix-{options.device}"
    write(name, options.device, rows, options.out, case={"width": WIDTH})
    picture(rows, (Path(options.out) if options.out else RESULTS) / f"{name}.svg")


if __name__ == "__main__":
    main()

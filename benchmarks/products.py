"""The product of one row, tile by tile: which sizes suit a GPU, beside torch's own product. Writes no result.

Each shape of GPT's is tried on as many different weights as no cache holds, captured as one graph and replayed; given
are microseconds a product and the rate at which weights were read. The last line is what won, as
`headway.fast.product.MEASURED` takes it.

    PYTHONPATH=src python benchmarks/products.py --device cuda
    PYTHONPATH=src python benchmarks/products.py --device cuda --shape 2304 768    one shape only
"""

from __future__ import annotations

from measure import arguments, interleaved, median

# isort: split
import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from headway.fast import product as product_kernels
from headway.fast.overlap import overlapped

BYTES = 2**28  # of different weights: several times the cache
# What stands around each product of a block, and of the head.
PLAIN, TANH = ({"KIND": product_kernels.ACTIVATIONS[name]} for name in ("none", "tanh"))
NORMED: dict[str, Any] = {**PLAIN, "NORM": True, "SHIFT": True, "BIAS": True, "RESIDUAL": False}
ADDED: dict[str, Any] = {**PLAIN, "NORM": False, "SHIFT": False, "BIAS": True, "RESIDUAL": True}
BARE: dict[str, Any] = {**PLAIN, "NORM": False, "SHIFT": False, "BIAS": False, "RESIDUAL": False}
SHAPES: dict[tuple[int, int], dict[str, Any]] = {
    (2304, 768): NORMED, (768, 768): ADDED, (3072, 768): NORMED | TANH, (768, 3072): ADDED,
    (50_304, 768): BARE, (4800, 1600): NORMED, (1600, 1600): ADDED, (6400, 1600): NORMED | TANH,
    (1600, 6400): ADDED, (50_304, 1600): BARE,
}  # fmt: skip
OUTPUTS, COLUMNS, WARPS = (1, 2, 4, 8), (512, 1024, 2048, 4096), (1, 2, 4)
TILES = (1024, 8192)  # weights asked for at a time: at least, at most


def captured(work: Callable[[], Any]) -> Any:
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def by_kernel(
    x: torch.Tensor, weights: list[torch.Tensor], y: torch.Tensor, tiles: tuple[int, int, int]
) -> Callable[[], None]:
    outputs, columns, warps = tiles
    rows, width = weights[0].shape

    def work() -> None:
        for w in weights:
            product_kernels._one_row[(-(-rows // outputs),)](
                x, w, w, x, x, w, y, 1e-5, N=rows, D=width, **SHAPES[rows, width], OUTPUTS=outputs, COLUMNS=columns,
                WIDTH=1 << (width - 1).bit_length(), num_warps=warps, **overlapped(x),
            )  # fmt: skip

    return work


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shape", type=int, nargs=2, metavar=("OUTPUTS", "WIDTH"), help="only this one")
    options = parser.parse_args()
    if options.device != "cuda":
        raise SystemExit("these are kernels of a GPU: --device cuda")
    if options.shape and tuple(options.shape) not in SHAPES:
        raise SystemExit(f"the shapes are {', '.join(map(str, SHAPES))}")
    best = {}
    for rows, width in [tuple(options.shape)] if options.shape else SHAPES:
        count = max(2, BYTES // (2 * rows * width))
        weights = [torch.randn(rows, width, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
        x, y = torch.randn(1, width, device="cuda").bfloat16(), torch.empty(rows, device="cuda", dtype=torch.bfloat16)
        works = {"torch": captured(lambda: [F.linear(x, w) for w in weights]).replay}  # noqa: B023
        by_name = {}
        for tiles in itertools.product(OUTPUTS, COLUMNS, WARPS):
            each = tiles[0] * tiles[1]  # 32 to 64 weights a thread at most: registers hold no more
            if TILES[0] <= each <= min(TILES[1], 2048 * tiles[2]) and tiles[1] < 2 * width:
                name = f"{tiles[0]} outputs, {tiles[1]} columns, {tiles[2]} warps"
                by_name[name], works[name] = tiles, captured(by_kernel(x, weights, y, tiles)).replay
        times = {name: median(each) / count for name, each in interleaved(works, "cuda", 2, 7).items()}
        now = product_kernels.tiles(rows, width)
        print(f"{rows} × {width}; now {now[0]} outputs, {now[1]} columns, {now[2]} warps")
        for name in ["torch", *sorted(times, key=times.__getitem__)[:5]]:
            rate = 2 * rows * width / times[name] / 1e12
            print(f"  {times[name] * 1e6:7.2f} µs {rate:5.2f} TB/s  {name}", flush=True)
        best[rows, width] = by_name[min(by_name, key=times.__getitem__)]
    print(best)


if __name__ == "__main__":
    main()

"""RNN, convolution and attention layers: how long one takes, beside the multiply-adds that are counted for it.

The layers of `headway cost layers` (torch's own recurrent layers and convolutions, headway's attention), forward and
backward, a batch of rows, against length at one width and against width at one length. `products` are counted on the
real layer, of one row forward; `per_second` counts three times as many for all rows, since the backward pass has twice
the forward's: it is low where steps wait for one another. Draws `results/layer-times-DEVICE.svg` beside its JSON.

    PYTHONPATH=src python benchmarks/layer_times.py --device cuda
    PYTHONPATH=src python benchmarks/layer_times.py --device cpu --lengths 16 32 --widths 16 32 --repeats 2
"""

from __future__ import annotations

from measure import RESULTS, arguments, interleaved, median, write

# isort: split
from functools import partial
from pathlib import Path
from typing import Any

import torch
from panels import Panel, draw
from torch import nn

from headway.evaluate.layers import KINDS, compare

CASES: dict[str, dict[str, Any]] = {
    "cuda": {"rows": 32, "width": 256, "length": 256, "window": 3, "lengths": [32, 64, 128, 256, 512, 1024, 2048],
             "widths": [64, 128, 256, 512, 1024]},
    "cpu": {"rows": 4, "width": 128, "length": 128, "window": 3, "lengths": [16, 32, 64, 128, 256, 512],
            "widths": [32, 64, 128, 256, 512]},
}  # fmt: skip


def step(layer: nn.Module, x_BTD: torch.Tensor, more: tuple[Any, ...]) -> None:
    """Forward and backward."""
    made: Any = layer(x_BTD, *more)
    made = made[0] if isinstance(made, tuple) else made
    made.sum().backward()


def at(length: int, width: int, case: dict[str, Any], device: str, repeats: int) -> list[dict[str, Any]]:
    counted = {cost.name: cost for cost in compare(length, width, case["window"])}
    torch.manual_seed(0)
    x_BTD = torch.randn(case["rows"], length, width, device=device, requires_grad=True)
    works = {
        kind.name: partial(step, kind.build(width, case["window"], 0).to(device), x_BTD, kind.more) for kind in KINDS
    }
    times = interleaved(works, device, 2, repeats)
    return [
        {
            "layer": name,
            "length": length,
            "width": width,
            "milliseconds": float(f"{1e3 * median(some):.3g}"),
            "products": counted[name].products,
            "steps": counted[name].steps,
            "per_second": float(f"{3 * case['rows'] * counted[name].products / median(some):.3g}"),
        }
        for name, some in times.items()
    ]


def picture(rows: list[dict[str, Any]], case: dict[str, Any], path: Path) -> None:
    def panel(along: str, key: str, title: str) -> Panel:
        other = "width" if along == "length" else "length"
        some = [row for row in rows if row[other] == case[other]]
        lines = {kind.name: [(row[along], row[key]) for row in some if row["layer"] == kind.name] for kind in KINDS}
        return Panel(title, lines, along, sorted({row[along] for row in some}), log_y=True)

    draw(
        [
            panel("length", "milliseconds", f"ms, width {case['width']}"),
            panel("length", "products", "multiply-adds counted, one row"),
            panel("width", "milliseconds", f"ms, length {case['length']}"),
            panel("width", "products", "multiply-adds counted, one row"),
        ],
        path,
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--lengths", type=int, nargs="+")
    parser.add_argument("--widths", type=int, nargs="+")
    options = parser.parse_args()
    case = dict(CASES[options.device])
    for name, fixed in (("lengths", "length"), ("widths", "width")):
        if getattr(options, name):
            case[name], case[fixed] = getattr(options, name), getattr(options, name)[-1]
    shapes = [(length, case["width"]) for length in case["lengths"]]
    shapes += [(case["length"], width) for width in case["widths"]]
    repeats = options.repeats or 5
    rows = [row for shape in dict.fromkeys(shapes) for row in at(*shape, case, options.device, repeats)]
    name = f"layer-times-{options.device}"
    write(name, options.device, rows, options.out, case=case)
    picture(rows, case, (Path(options.out) if options.out else RESULTS) / f"{name}.svg")


if __name__ == "__main__":
    main()

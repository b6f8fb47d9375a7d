"""The best learning rate against the width of a small GPT, in the standard parametrisation and in μP.

Shakespeare letter by letter, two layers, heads of 32, as many steps at each of several rates, with the weight decay of
the recipes. With `mup` the model of the least width is the same as without, and the others begin and learn so that its
best rate should be theirs (Yang et al. 2021). Draws `results/widths-DEVICE.svg` beside its JSON. Rows are kept one by
one: the same call resumes where it was stopped.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/widths.py --device cuda
    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/widths.py --device cpu --widths 32 64 128 256 --steps 200 \\
        --rows 16 --length 64
"""

from __future__ import annotations

from measure import arguments

# isort: split
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from panels import Panel, draw
from rows import Row, Rows
from small_text import Letters, Training, digits, held_out_loss, sized

from headway.models import parts
from headway.models.gpt import GPT, GPTConfig
from headway.train.optimiser import AdamW
from headway.train.parametrisation import MuP, Standard
from headway.train.schedule import Cosine

HEAD = 32
WAYS = {"standard": "standard", "mup": "μP"}
DECAY = 0.1
RATES = tuple(2.0**power for power in range(-12, -3))
HIGHEST = 2.6  # loss that the picture shows


def point(way: str, width: int, rate: float, letters: Letters, options: Any) -> Row:
    torch.manual_seed(0)
    follows = MuP(min(options.widths)) if way == "mup" else Standard()
    config = GPTConfig(options.layers, width, heads=width // HEAD, position=parts.Rotary(), max_length=options.length)
    model = GPT(config, letters.vocabulary)
    follows.begin(model)
    model.to(options.device)
    rates = follows.rates(model)
    schedule = Cosine(rate, options.steps // 10)
    training = Training(
        options.steps, options.rows, options.length, partial(schedule.rate, steps=options.steps), clip=1.0,
        optimiser=AdamW(0.9, 0.99, 1e-12, DECAY), rates=rates,
        decays={name: 1 / factor for name, factor in rates.items()},
    )  # fmt: skip
    training.run(model, letters)
    return {"loss": digits(held_out_loss(model, letters, options.length), 5)}


def best(rows: list[Row]) -> list[Row]:
    """The rate of the least loss of each width and way."""
    found: dict[tuple[str, int], Row] = {}
    for row in rows:
        key = row["way"], row["width"]
        if row["loss"] is not None and (key not in found or row["loss"] < found[key]["loss"]):
            found[key] = row
    return list(found.values())


def picture(rows: list[Row], path: Path) -> None:
    widths, rates = (sorted({row[key] for row in rows}) for key in ("width", "rate"))
    panels = [
        Panel(
            f"loss on held-out text, {said}",
            {
                f"width {width}": [
                    (row["rate"], row["loss"]) for row in rows if (row["way"], row["width"]) == (way, width)
                ]
                for width in widths
            },
            "peak rate", rates[::2], high=HIGHEST,
        )
        for way, said in WAYS.items()
    ]  # fmt: skip
    draw([replace(panel, ticks=tuple(float(f"{tick:.1g}") for tick in panel.ticks)) for panel in panels], path)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--widths", type=int, nargs="+", default=(64, 128, 256, 512, 1024))
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    options, sizes = sized(parser, steps=400, layers=2, length=128, rows=32)
    torch.set_float32_matmul_precision("high")
    letters = Letters.read(options.device)
    rows = Rows("widths", options, sizes | {"base": min(options.widths)})
    for width in options.widths:
        for way in WAYS:
            for rate in options.rates:
                key = {"way": way, "width": width, "rate": rate}
                rows.add(key, partial(point, way, width, rate, letters, options))
    for row in best(rows.all):
        print(row, flush=True)
    rows.write(picture)


if __name__ == "__main__":
    main()

"""The learning rate, with and without warm-up: the loss of a small GPT after as many steps at each of several rates.

Shakespeare letter by letter; pre-norm and post-norm; the rate goes up over the first steps or stands at its peak from
the first one, then falls along half a cosine. Same weights at the start, same batches. `diverged`: the loss at the end
is above that of predicting letters by their frequency, or no number. Draws `results/rates-DEVICE.svg` beside its JSON.
Rows are kept one by one: the same call resumes where it was stopped.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/rates.py --device cuda
    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/rates.py --device cpu --steps 4 --width 32 --rates 1e-3 1e-1
"""

from __future__ import annotations

from measure import arguments

# isort: split
from functools import partial
from pathlib import Path
from typing import Any

import torch
from panels import Panel, draw
from rows import Row, Rows
from small_text import Letters, Training, digits, held_out_loss, sized

from headway.models import parts
from headway.models.gpt import GPT, GPTConfig
from headway.train.schedule import Cosine

NORMS: dict[str, Any] = {"pre-norm": parts.PreNorm(), "post-norm": parts.PostNorm()}
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
HIGHEST = 4.5  # loss that the picture shows


def guess(letters: Letters) -> float:
    """The loss of predicting each letter by its frequency."""
    counts_V = torch.bincount(letters.train, minlength=letters.vocabulary) + 1.0
    logp_V = (counts_V / counts_V.sum()).log()
    return float(-logp_V[letters.valid].mean())


def point(norm: str, rate: float, warmup: int, letters: Letters, options: Any) -> Row:
    torch.manual_seed(0)
    config = GPTConfig(
        options.layers, options.width, heads=4, norm=NORMS[norm], position=parts.Rotary(), max_length=options.length
    )
    model = GPT(config, letters.vocabulary).to(options.device)
    schedule = Cosine(rate, warmup)
    training = Training(
        options.steps, options.rows, options.length, partial(schedule.rate, steps=options.steps), clip=options.clip
    )
    losses, _ = training.run(model, letters)
    end = digits(held_out_loss(model, letters, options.length))
    return {
        "loss": end,
        "highest_training_loss": digits(max(losses)),
        "diverged": end is None or end > guess(letters),
    }


def picture(rows: list[Row], path: Path) -> None:
    rates = sorted({row["rate"] for row in rows})
    names = dict.fromkeys((row["norm"], row["warmup"]) for row in rows)
    lines = {
        f"{norm}, {f'{warmup} steps of warm-up' if warmup else 'no warm-up'}": [
            (row["rate"], row["loss"]) for row in rows if (row["norm"], row["warmup"]) == (norm, warmup)
        ]
        for norm, warmup in names
    }
    draw([Panel("loss on held-out text, nats a letter", lines, "peak rate", rates, high=HIGHEST)], path)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--warmup", type=int, default=100)
    options, sizes = sized(parser, steps=600, layers=6, width=128, length=128, rows=32, clip=0.0)
    torch.set_float32_matmul_precision("high")
    letters = Letters.read(options.device)
    rows = Rows("rates", options, sizes)
    for norm in NORMS:
        for warmup in (options.warmup, 0):
            for rate in options.rates:
                key = {"norm": norm, "warmup": warmup, "rate": rate}
                rows.add(key, partial(point, norm, rate, warmup, letters, options))
    rows.write(picture)


if __name__ == "__main__":
    main()

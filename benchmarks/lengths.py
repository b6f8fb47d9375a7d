"""Texts longer than those trained on: the loss of every kind of position at 1, 2, 4 and 8 times the training length.

A small GPT reads Shakespeare letter by letter in windows of one length, with each kind of position in turn, the same
batches and rate. Then it reads held-out windows of 1, 2, 4 and 8 times that length, each letter predicted from all
before it in its window. `late` is the loss of the last training length of each window: what was never trained. A
learned table has no row for such a position: its cell says so. Draws `results/lengths-DEVICE.svg` beside its JSON. Rows
are kept one by one: the same call resumes where it was stopped.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/lengths.py --device cuda
    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/lengths.py --device cpu --steps 3 --length 16 --width 32
"""

from __future__ import annotations

from measure import arguments

# isort: split
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from panels import Panel, draw
from rows import Row, Rows
from small_text import Letters, Training, digits, sized
from torch import Tensor, nn

from headway.models import parts
from headway.models.gpt import GPT, GPTConfig
from headway.train.schedule import Cosine

POSITIONS: dict[str, Any] = {
    "none": parts.NoPosition(),
    "index, in every number": parts.Index(),
    "index, in one number": parts.Index(everywhere=False),
    "learned": parts.Learned(),
    "sinusoidal": parts.Sinusoidal(),
    "rotary": parts.Rotary(),
    "relative bias": parts.RelativeBias(),
    "linear bias": parts.LinearBias(),
}
TIMES = (1, 2, 4, 8)
PEAK, WARMUP = 2e-3, 100
CANNOT = "no row in its table"


def build(choice: Any, letters: Letters, options: Any) -> GPT:
    torch.manual_seed(0)
    config = GPTConfig(options.layers, options.width, heads=4, position=choice, max_length=options.length, tied=False)
    model = GPT(config, letters.vocabulary)
    nn.init.normal_(model.embed.table.weight)  # GPT's own would be small beside sine waves
    return model


@torch.no_grad()
def by_place(model: GPT, windows_BT: Tensor, rows: int) -> Tensor:
    """The mean loss at each place of a window."""
    losses = []
    for part_BT in windows_BT.split(rows):
        logits_BTV, _ = model(part_BT[:, :-1])
        losses.append(F.cross_entropy(logits_BTV.mT.float(), part_BT[:, 1:], reduction="none"))
    return torch.cat(losses).mean(0)


def point(choice: Any, letters: Letters, options: Any) -> Row:
    model = build(choice, letters, options).to(options.device)
    schedule = Cosine(PEAK, WARMUP, 0.1)
    training = Training(options.steps, options.rows, options.length, partial(schedule.rate, steps=options.steps))
    training.run(model, letters)
    model.eval()
    found: Row = {}
    for times in TIMES:
        length = times * options.length
        windows_BT = letters.windows(length, options.judged)
        try:
            losses_T = by_place(model, windows_BT, max(1, options.rows // times))
        except IndexError:
            found |= {f"loss at {times}": CANNOT, f"late at {times}": CANNOT}
            continue
        found |= {
            f"loss at {times}": digits(float(losses_T.mean())),
            f"late at {times}": digits(float(losses_T[-options.length :].mean())),
        }
    return found


def picture(rows: list[Row], path: Path) -> None:
    def against(key: str) -> dict[str, list[tuple[float, float | None]]]:
        return {
            row["position"]: [
                (times, value if isinstance(value := row[f"{key} at {times}"], float) else None) for times in TIMES
            ]
            for row in rows
        }

    along = "times the length of training"
    draw(
        [
            Panel("loss of whole windows, nats a letter", against("loss"), along, TIMES, high=5.0),
            Panel("loss of their last part, as long as in training", against("late"), along, TIMES, high=5.0),
        ],
        path,
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--positions", nargs="+", default=list(POSITIONS), choices=POSITIONS)
    parser.add_argument("--judged", type=int, default=65_536, help="letters of the held-out text")
    options, sizes = sized(parser, steps=2000, layers=4, width=128, length=128, rows=32)
    torch.set_float32_matmul_precision("high")
    letters = Letters.read(options.device)
    rows = Rows("lengths", options, sizes | {"judged": options.judged})
    for name in options.positions:
        rows.add({"position": name}, partial(point, POSITIONS[name], letters, options))
    rows.write(picture)


if __name__ == "__main__":
    main()

"""Exploding gradients, and what clipping does: the gradient's norm and the loss, step by step, of an RNN and an LSTM.

They read Shakespeare letter by letter and learn by plain gradient descent at one rate, with clipping and without; same
weights at the start, same batches. Beside it the reason: the gradient of an RNN's state by its state d steps before is
a product of d matrices, so that it grows or vanishes as the d-th power of their size; tanh, where it saturates, takes
the growth away and the memory with it. Draws `results/clipping-DEVICE.svg` beside its JSON.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/clipping.py --device cpu
    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/clipping.py --device cpu --steps 20 --width 16
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

from headway.models.recurrent import Lstm, Recurrent, RecurrentConfig, Rnn
from headway.nn.recurrent import RNNCell
from headway.train.optimiser import Sgd

CELLS: dict[str, Any] = {"RNN": Rnn(), "LSTM": Lstm()}
GAINS = ((0.9, 1e-8), (1.0, 1e-8), (1.1, 1e-8), (1.1, 1.0))  # of the matrix from state to state; size of the inputs
DISTANCES = (1, 2, 4, 8, 16, 32, 64, 128)
POINTS = 100  # of a line


def trained(cell: str, clip: float, letters: Letters, options: Any) -> Row:
    torch.manual_seed(0)
    config = RecurrentConfig(CELLS[cell], 1, options.width, max_length=options.length)
    model = Recurrent(config, letters.vocabulary).to(options.device)
    training = Training(
        options.steps, options.rows, options.length, lambda step: options.rate, clip=clip, optimiser=Sgd()
    )
    losses, norms = training.run(model, letters)
    every = max(1, options.steps // POINTS)
    return {
        "loss": digits(held_out_loss(model, letters, options.length)),
        "highest_norm": digits(max(norms)),
        "median_norm": digits(sorted(norms)[len(norms) // 2]),
        "highest_loss": digits(max(losses)),
        "every": every,
        "norms": [digits(max(norms[at : at + every])) for at in range(0, len(norms), every)],
        "losses": [digits(sum(losses[at : at + every]) / every) for at in range(0, len(losses) - every + 1, every)],
    }


def by_distance(gain: float, inputs: float, width: int) -> list[float]:
    """‖∂h_T/∂h_{T−d}‖ (Frobenius, over √width) of an RNN whose matrix from state to state is `gain` · a rotation."""
    torch.manual_seed(0)
    cell = RNNCell(width, width).double()
    u_HH = gain * torch.linalg.qr(torch.randn(width, width, dtype=torch.float64))[0]
    found = []
    for distance in DISTANCES:
        x_TBH = inputs * torch.randn(distance, 1, width, dtype=torch.float64)

        def last(h_H: torch.Tensor, x_TBH: torch.Tensor = x_TBH) -> torch.Tensor:
            state: Any = (h_H[None],)
            for x_BH in x_TBH:
                state, _ = cell.step(x_BH, state, u_HH)
            return state[0][0]

        start_H = 1e-8 * torch.randn(width, dtype=torch.float64)
        found.append(digits(float(torch.autograd.functional.jacobian(last, start_H).norm() / width**0.5)))
    return found


def picture(rows: list[Row], path: Path) -> None:
    runs = [row for row in rows if row["what"] == "training"]

    def over(key: str) -> dict[str, Any]:
        return {_name(row): [(at * row["every"] + 1, y) for at, y in enumerate(row[key])] for row in runs}

    gains = {
        f"U = {row['gain']:g} · rotation" + (", inputs that saturate tanh" if row["inputs"] == 1 else ""): list(
            zip(DISTANCES, row["jacobian"], strict=True)
        )
        for row in rows
        if row["what"] == "distance"
    }
    draw(
        [
            Panel("norm of the gradient before clipping", over("norms"), "step", log_x=False, log_y=True),
            Panel("loss, nats a letter", over("losses"), "step", log_x=False, log_y=True),
            Panel("∂state / ∂state d steps before", gains, "d", DISTANCES, log_y=True),
        ],
        path,
    )


def _name(row: Row) -> str:
    return f"{row['cell']}, {'clipped at ' + format(row['clip'], 'g') if row['clip'] else 'not clipped'}"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--clip", type=float, default=0.5)
    options, sizes = sized(parser, steps=300, rate=4.0, width=64, length=64, rows=16)
    letters = Letters.read(options.device)
    rows = Rows("clipping", options, sizes)
    for cell in CELLS:
        for clip in (0.0, options.clip):
            key = {"what": "training", "cell": cell, "clip": clip}
            rows.add(key, partial(trained, cell, clip, letters, options))
    for gain, inputs in GAINS:
        key = {"what": "distance", "gain": gain, "inputs": inputs}
        rows.add(key, lambda gain=gain, inputs=inputs: {"jacobian": by_distance(gain, inputs, 32)})
    rows.write(picture)


if __name__ == "__main__":
    main()

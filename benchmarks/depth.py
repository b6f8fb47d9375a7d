"""How deep a GPT trains, with and without residuals and norm: its loss, and its gradient at the start, by depth.

Shakespeare letter by letter; every depth and arrangement is a model of its own, with the same batches and rate. All
matrices start with variance 1/inputs, whatever the arrangement, so that nothing but residual and norm differs. The
gradient is ∂loss/∂hidden of each layer before the first step, its mean norm over the tokens. Draws
`results/depth-DEVICE.svg` beside its JSON. Rows are kept one by one: the same call resumes where it was stopped.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/depth.py --device cuda
    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/depth.py --device cpu --depths 2 4 --steps 5
"""

from __future__ import annotations

from measure import arguments

# isort: split
from functools import partial
from pathlib import Path
from typing import Any

import torch
from panels import Panel, draw
from rows import Rows
from small_text import Letters, Training, digits, held_out_loss, loss_of, sized
from torch import Tensor, nn

from headway.models import parts
from headway.models.gpt import GPT, GPTConfig
from headway.train.schedule import Cosine

NAMES: dict[str, Any] = {
    "pre-norm": parts.PreNorm(),
    "pre-norm, RMS": parts.PreRmsNorm(),
    "post-norm": parts.PostNorm(),
    "post-norm, batch": parts.BatchNorm(),
    "residual, no norm": parts.ResidualOnly(),
    "norm, no residual": parts.NormOnly(),
    "neither": parts.NoNorm(),
}
DEPTHS = (2, 4, 8, 16, 32, 48)
PEAK, WARMUP = 1e-3, 50
HIGHEST = 4.5  # loss that the picture shows; a guess by frequency has 3.3


def build(choice: Any, depth: int, letters: Letters, length: int, width: int) -> GPT:
    torch.manual_seed(0)
    config = GPTConfig(depth, width, heads=4, norm=choice, position=parts.Rotary(), tied=False, max_length=length)
    model = GPT(config, letters.vocabulary)
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=1.0 if "table" in name else weight.shape[1] ** -0.5)
    return model


def gradients(model: GPT, ids_BT: Tensor) -> list[float]:
    """Mean norm of ∂loss/∂hidden after each layer, from the first to the last."""
    kept: list[Tensor] = []

    def keep(block: Any, given: Any, made: Tensor) -> None:
        made.retain_grad()
        kept.append(made)

    hooks = [block.register_forward_hook(keep) for block in model.decoder.layers]
    loss_of(model.train(), ids_BT).backward()
    for hook in hooks:
        hook.remove()
    model.zero_grad(set_to_none=True)
    return [digits(float(h.grad.norm(dim=-1).mean() * h.grad.shape[0] * h.grad.shape[1])) for h in kept]  # type: ignore[union-attr]


def point(name: str, depth: int, letters: Letters, options: Any) -> dict[str, Any]:
    model = build(NAMES[name], depth, letters, options.length, options.width).to(options.device)
    dice = torch.Generator().manual_seed(3)
    by_layer = gradients(model, letters.batch(options.rows, options.length, dice))
    schedule = Cosine(PEAK, WARMUP)
    training = Training(options.steps, options.rows, options.length, partial(schedule.rate, steps=options.steps))
    losses, _ = training.run(model, letters)
    return {
        "loss": digits(held_out_loss(model, letters, options.length)),
        "training_loss": digits(sum(losses[-20:]) / len(losses[-20:])),
        "first_gradient": by_layer[0],
        "last_gradient": by_layer[-1],
        "ratio": digits(by_layer[0] / by_layer[-1], 3) if by_layer[0] is not None and by_layer[-1] else None,
        "gradient_by_layer": by_layer,
    }


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    depths = sorted({row["depth"] for row in rows})
    names = list(dict.fromkeys(row["norm"] for row in rows))
    deepest = {row["norm"]: row for row in rows if row["depth"] == depths[-1]}

    def against(key: str) -> dict[str, list[tuple[float, float | None]]]:
        return {name: [(row["depth"], row[key]) for row in rows if row["norm"] == name] for name in names}

    by_layer = {name: list(enumerate(row["gradient_by_layer"], 1)) for name, row in deepest.items()}
    draw(
        [
            Panel("loss on held-out text, nats a letter", against("loss"), "layers", depths, high=HIGHEST),
            Panel("gradient at the first layer over that at the last", against("ratio"), "layers", depths, log_y=True),
            Panel(f"gradient by layer, {depths[-1]} layers, before the first step", by_layer, "layer", log_x=False,
                  log_y=True),
        ],
        path,
    )  # fmt: skip


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--depths", type=int, nargs="+", default=DEPTHS)
    parser.add_argument("--norms", nargs="+", default=list(NAMES), choices=NAMES)
    options, sizes = sized(parser, steps=400, width=128, length=128, rows=32)
    torch.set_float32_matmul_precision("high")
    letters = Letters.read(options.device)
    rows = Rows("depth", options, sizes | {"peak": PEAK, "warmup": WARMUP})
    for depth in options.depths:
        for name in options.norms:
            rows.add({"norm": name, "depth": depth}, partial(point, name, depth, letters, options))
    rows.write(picture)


if __name__ == "__main__":
    main()

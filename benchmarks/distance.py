"""How far back a model can see: its gradient against distance, and what it recalls from how far away.

The task is recall: among filler words, pairs of a key and a value are shown and, later, keys are asked for. A model is
trained on all distances at once, by its answers alone, and judged by the share of right ones at each distance. The
gradient is that of an answer's log-probability by the embedding of the word d steps before it, before and after the
training. RNN, LSTM, GRU and Transformer, about the same number of weights, same data, same steps.

    PYTHONPATH=src python benchmarks/distance.py --device cpu

B rows, T length, D width.
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.explore.plots import COLOURS, HAIRLINE, INK, QUIET, new_figure, save
from headway.models import parts
from headway.models.gpt import GPT, GPTConfig
from headway.models.language import NextTokenModel
from headway.models.recurrent import Gru, Lstm, Recurrent, RecurrentConfig, Rnn
from headway.train.optimiser import AdamW, Masters
from headway.train.schedule import Cosine

PICTURE = Path(__file__).parent.parent / "docs" / "recurrent.png"
DISTANCES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
LENGTH, ROWS = 100, 32


@dataclass(frozen=True)
class Recall:
    """Words 0 to `values` − 1 are answers; behind them stand all pairs of a key and a value, the questions for each
    key, and the fillers."""

    keys: int = 4
    values: int = 8
    fillers: int = 8

    @property
    def vocabulary(self) -> int:
        return self.values + self.keys * self.values + self.keys + self.fillers

    def batch(self, rows: int, distance: int | None, dice: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Texts, where the questions stand (one for each key), and their answers. A pair stands at any distance before
        its question, or at the one that is asked for."""
        first_pair = self.values
        first_question = first_pair + self.keys * self.values
        text_BT = torch.randint(first_question + self.keys, self.vocabulary, (rows, LENGTH), generator=dice)
        answers_BK = torch.randint(self.values, (rows, self.keys), generator=dice)
        places_BK = torch.empty(rows, self.keys, dtype=torch.long)
        for row in range(rows):
            free = set(range(LENGTH))
            for key in range(self.keys):
                shown, asked = _two(free, distance, dice)
                free -= {shown, asked}
                text_BT[row, shown] = first_pair + key * self.values + answers_BK[row, key]
                text_BT[row, asked] = first_question + key
                places_BK[row, key] = asked
        return text_BT, places_BK, answers_BK


def _two(free: set[int], distance: int | None, dice: torch.Generator) -> tuple[int, int]:
    """Two free places, so far apart; without a distance any is as likely as another on a logarithmic scale."""
    while True:
        far = distance or int((LENGTH - 1) ** float(torch.rand((), generator=dice)))
        shown = int(torch.randint(LENGTH - far, (), generator=dice))
        if shown in free and shown + far in free:
            return shown, shown + far


MODELS: dict[str, Any] = {
    "RNN": RecurrentConfig(Rnn(), 1, 128),
    "LSTM": RecurrentConfig(Lstm(1.0), 1, 64),
    "GRU": RecurrentConfig(Gru(), 1, 74),
    "Transformer": GPTConfig(2, 40, heads=4, position=parts.Rotary(), max_length=LENGTH),
}


def build(config: Any, task: Recall) -> NextTokenModel:
    torch.manual_seed(1)
    return (GPT if isinstance(config, GPTConfig) else Recurrent)(config, task.vocabulary)


def answered(model: NextTokenModel, text_BT: Tensor, places_BK: Tensor, task: Recall) -> Tensor:
    """Scores of the values at each question."""
    hidden_BTD, _ = model.read(text_BT)
    asked_BKD = hidden_BTD.gather(1, places_BK[..., None].expand(-1, -1, hidden_BTD.shape[-1]))
    return model.head(asked_BKD)[..., : task.values]


def train(model: NextTokenModel, task: Recall, steps: int, device: str) -> None:
    masters, schedule = Masters(model.named_parameters(), AdamW(0.9, 0.99, 1e-8, 0.01), clip=1.0), Cosine(1e-2, 50)
    dice = torch.Generator().manual_seed(2)
    model.train()
    for step in range(steps):
        text_BT, places_BK, answers_BK = (part.to(device) for part in task.batch(ROWS, None, dice))
        scores_BKV = answered(model, text_BT, places_BK, task)
        masters.zero()
        F.cross_entropy(scores_BKV.flatten(0, 1), answers_BK.flatten()).backward()
        masters.set_rate(schedule.rate(step + 1, steps))
        masters.step()


@torch.no_grad()
def recall(model: NextTokenModel, task: Recall, device: str) -> list[float]:
    """The share of right answers at each distance."""
    model.eval()
    dice, found = torch.Generator().manual_seed(3), []
    for distance in DISTANCES:
        text_BT, places_BK, answers_BK = (part.to(device) for part in task.batch(100, distance, dice))
        right = answered(model, text_BT, places_BK, task).argmax(-1) == answers_BK
        found.append(round(float(right.double().mean()), 4))
    return found


def gradient(model: NextTokenModel, task: Recall, device: str) -> list[float]:
    """Mean norm of ∂ log p(answer at t) / ∂ embedding at t − d, for d of `DISTANCES`, over that at d = 0."""
    model.eval()
    table = model.get_submodule("table" if isinstance(model, Recurrent) else "embed.table")
    seen: list[Tensor] = []

    def keep(module: Any, given: Any, made: Tensor) -> None:
        made.retain_grad()
        seen.append(made)

    dice = torch.Generator().manual_seed(4)
    text_BT, _, answers_BK = (part.to(device) for part in task.batch(64, None, dice))
    text_BT[:, -1] = task.values * (1 + task.keys)  # each text ends with a question for the first key
    last_B1 = torch.full((len(text_BT), 1), LENGTH - 1, device=device)
    with_hook = table.register_forward_hook(keep)
    scores_B1V = answered(model, text_BT, last_B1, task)
    with_hook.remove()
    F.cross_entropy(scores_B1V[:, 0], answers_BK[:, 0], reduction="sum").backward()
    grad = seen[0].grad
    assert grad is not None
    norms_T = grad.norm(dim=-1).mean(0)
    return [float(norms_T[-1 - distance] / norms_T[-1]) for distance in DISTANCES]


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Two panels: gradient, with the untrained models dashed, and recall."""
    figure = new_figure(10, 3.6)
    left, right = figure.add_axes((0, 0, 0.44, 1)), figure.add_axes((0.55, 0, 0.44, 1))
    for row, colour in zip(rows, COLOURS, strict=False):
        for key, dash, width in (("gradient_before", (0, (4, 2)), 1.2), ("gradient_after", "solid", 2.0)):
            left.plot(DISTANCES, row[key], color=colour, linestyle=dash, linewidth=width)
        right.plot(DISTANCES, row["recall"], color=colour, linewidth=2.0, label=row["who"], marker="o", markersize=3)
    left.set_yscale("log")
    left.set_ylim(1e-10, 10)
    left.set_title("gradient at distance d over that at 0 (dashed: untrained)", fontsize=10, color=INK, loc="left")
    right.set_title("right answers, pair and question d words apart", fontsize=10, color=INK, loc="left")
    right.axhline(1 / Recall.values, color=QUIET, linewidth=1, linestyle=(0, (1, 2)))
    right.text(DISTANCES[0], 1 / Recall.values + 0.015, "chance", fontsize=8, color=QUIET)
    right.set_ylim(0, 1.03)
    right.legend(frameon=False, fontsize=9, labelcolor=INK)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks([1, 2, 4, 8, 16, 32, 64], ["1", "2", "4", "8", "16", "32", "64"])
        axes.minorticks_off()
        axes.set_xlabel("distance d in words", loc="right", fontsize=9, color=QUIET)
        axes.tick_params(colors=QUIET, labelsize=8)
        axes.grid(color=HAIRLINE, linewidth=0.6)
        axes.spines[:].set_visible(False)
    save(figure, path)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    options = parser.parse_args()
    device, task, rows = options.device, Recall(), []
    for who, config in MODELS.items():
        model = build(config, task).to(device)
        before = gradient(model, task, device)
        train(model, task, options.steps, device)
        rows.append({
            "who": who,
            "weights": sum(weight.numel() for weight in model.parameters()),
            "distances": DISTANCES,
            "recall": recall(model, task, device),
            "gradient_before": [float(f"{value:.3g}") for value in before],
            "gradient_after": [float(f"{value:.3g}") for value in gradient(model, task, device)],
        })  # fmt: skip
    draw(rows, options.picture)
    write(f"distance-{device}", device, rows, options.out, steps=options.steps, rows_of_a_batch=ROWS, length=LENGTH)


if __name__ == "__main__":
    main()

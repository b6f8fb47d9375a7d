"""Training speed of an LSTM language model: headway beside the same model of torch.nn modules.

Same shapes (Zaremba's), the same dropout at each step, carried state, clipping, gradient descent, one process, repeats
interleaved, medians. On a GPU: `medium`, 20 × 35 tokens, float32 with products in TensorFloat-32, headway's step
captured as a CUDA graph and launched kernel by kernel. On a CPU: `small` and `medium`, float32.

    PYTHONPATH=src python benchmarks/recurrent.py --device cpu
"""

from __future__ import annotations

from measure import arguments, interleaved, write

# isort: split
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from training_steps import speed_rows

from headway.data.streams import StreamBatch
from headway.models.recurrent import SIZES, Recurrent, RecurrentConfig, Stepwise
from headway.tasks.objective import Carried
from headway.train.optimiser import Masters, Sgd
from headway.train.step import GraphStep, TrainStep

ROWS, VOCABULARY, CLIP = 20, 10_000, 5.0


class TorchLSTM(nn.Module):
    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        assert isinstance(config.dropout, Stepwise)
        self.table = nn.Embedding(VOCABULARY, config.width)
        self.layers = nn.LSTM(
            config.width, config.width, config.layers, batch_first=True, dropout=config.dropout.share
        )  # fmt: skip
        self.dropout = nn.Dropout(config.dropout.share)
        self.head = nn.Linear(config.width, VOCABULARY)

    def forward(self, ids: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        hidden, state = self.layers(self.dropout(self.table(ids)), state)
        return self.head(self.dropout(hidden)), state


def torch_nn(config: RecurrentConfig, ids: torch.Tensor, labels: torch.Tensor, device: str) -> Callable[[], None]:
    model = TorchLSTM(config).to(device)
    optimiser = torch.optim.SGD(model.parameters(), 0.1, fused=True)
    state: Any = None

    def step() -> None:
        nonlocal state
        logits, state = model(ids, state)
        state = tuple(part.detach() for part in state)
        F.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP, foreach=True)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def headway(
    config: RecurrentConfig, ids: torch.Tensor, labels: torch.Tensor, device: str, graphs: bool
) -> Callable[[], None]:  # fmt: skip
    model = Recurrent(config, VOCABULARY).to(device)
    masters = Masters(model.named_parameters(), Sgd(), CLIP)
    masters.set_rate(0.1)
    batch = StreamBatch(ids, labels, None, labels.numel(), fresh=torch.tensor(False, device=device))
    step: Any = (GraphStep if graphs else TrainStep)(Carried().build(model), masters)
    return lambda: step(batch, 1)


def rows_of(size: str, device: str, repeats: int) -> list[dict[str, Any]]:
    config = SIZES[size]
    ids, labels = (torch.randint(4, VOCABULARY, (ROWS, config.max_length), device=device) for _ in range(2))
    works = {"torch.nn.LSTM": torch_nn(config, ids, labels, device)}
    for name, graphs in (("headway", False), ("headway graphs", True))[: 2 if device == "cuda" else 1]:
        works[name] = headway(config, ids, labels, device, graphs)
    times = interleaved(works, device, 5 if device == "cuda" else 2, repeats)
    return speed_rows(times, "torch.nn.LSTM", ids.numel(), "tokens_per_second", size=size)


def main() -> None:
    options = arguments(__doc__).parse_args()
    device = options.device
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    sizes = ("medium",) if device == "cuda" else ("small", "medium")
    rows = [row for size in sizes for row in rows_of(size, device, options.repeats or (50 if device == "cuda" else 7))]
    write(f"recurrent-{device}", device, rows, options.out, rows_of_a_batch=ROWS, vocabulary=VOCABULARY)


if __name__ == "__main__":
    main()

"""One training step of a headway translator, and the rows of a table of such steps: what several benchmarks share."""

from __future__ import annotations

from measure import median

# isort: split
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from headway.batch import TextInputs, TokenBatch
from headway.tasks.objective import CrossEntropy
from headway.train.optimiser import Adam, Masters
from headway.train.step import GraphStep, TrainStep, compiled


def headway_step(
    model: nn.Module, data: Sequence[Tensor], how: str, rate: float = 1e-4, clip: float = 0.0
) -> Callable[[], Any]:  # fmt: skip
    """A step on the same batch each time. `data`: source, target, labels; `how` names compile, graphs, or neither."""
    source, target, labels = data
    masters = Masters(model.named_parameters(), Adam(), clip)
    masters.set_rate(rate)
    objective: Any = CrossEntropy(0.1).build(model)
    if "compile" in how:
        objective = compiled(objective)
    batch = TokenBatch(target, labels, inputs=TextInputs(source))
    step: Any = (GraphStep if "graphs" in how else TrainStep)(objective, masters)
    return lambda: step(batch, 1)


def speed_rows(times: dict[str, list[float]], peer: str, tokens: int, unit: str, **more: Any) -> list[dict[str, Any]]:
    """A row for each contestant; `unit`: the key of its tokens in a second."""
    first = median(times[peer])
    return [
        {
            "who": name,
            **more,
            unit: round(tokens / median(values)),
            "milliseconds": round(median(values) * 1e3, 2),
            "times_torch_nn": round(first / median(values), 2),
        }
        for name, values in times.items()
    ]

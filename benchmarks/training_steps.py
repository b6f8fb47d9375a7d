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
    batch = TokenBatch(target, labels, inputs=TextInputs(source))
    return objective_step(CrossEntropy(0.1).build(model), batch, how, Adam(), rate, clip)


def objective_step(
    objective: Any, batch: Any, how: str, optimiser: Any, rate: float = 1e-4, clip: float = 0.0
) -> Callable[[], Any]:  # fmt: skip
    """A step of an objective, which owns its model, on the same batch each time."""
    masters = Masters(objective.model.named_parameters(), optimiser, clip)
    masters.set_rate(rate)
    run: Any = compiled(objective) if "compile" in how else objective
    step: Any = (GraphStep if "graphs" in how else TrainStep)(run, masters)
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

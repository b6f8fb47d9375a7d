"""headway.capture: what must not happen while a CUDA graph is captured. The graphs themselves are in the gpu tests."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from headway.capture import capture


@pytest.mark.parametrize("collects", [True, False])
def test_no_garbage_is_collected_during_a_capture(monkeypatch: pytest.MonkeyPatch, collects: bool) -> None:
    given: list[Any] = []

    def graph(*arguments: Any, **named: Any) -> Any:
        given.append((arguments, named))
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "graph", graph)
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with capture("graph", "pool"):
            assert not gc.isenabled()
        assert gc.isenabled() == collects
        with pytest.raises(ValueError, match="inside"), capture("graph"):
            raise ValueError("inside")
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()
    assert given[0] == (("graph",), {"pool": "pool", "capture_error_mode": "thread_local"})


@pytest.mark.gpu
def test_a_graph_in_the_garbage_does_not_end_a_capture() -> None:
    """A graph with memory of its own, in a circle of references, just before the next capture."""
    x = torch.ones(1024, device="cuda")
    for _ in range(3):
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with capture(graph):
            y = x * 2
            circles = [[torch.empty(100, 100)] for _ in range(3000)]  # enough objects for a collection
            for circle in circles:
                circle.append(circle)  # type: ignore[arg-type]
        graph.replay()
        torch.testing.assert_close(y, 2 * x)
        kept: list[Any] = [graph, y]
        kept.append(kept)
        del graph, y, kept

"""How `engine.speed=auto` chooses between captured and compiled steps."""

from __future__ import annotations

import pytest

from headway.train.job import best_speed

MINILM = 22_700_000


@pytest.mark.parametrize(
    "device, weights, tokens, wanted",
    [
        ("cpu", MINILM, 10**12, "plain"),
        ("cuda", 10_000_000, 10**12, "graphs"),  # a small model
        ("cuda", MINILM, 6000 * 448, "graphs"),  # a fine-tuning of minutes: compiling would take longer than it saves
        ("cuda", MINILM, 20_000 * 32_768, "compile"),  # a pre-training
        ("cuda", 124_000_000, 20_000 * 32_768, "compile"),
    ],
)
def test_compiles_only_what_is_worth_it(device: str, weights: int, tokens: int, wanted: str) -> None:
    assert best_speed(device, weights, tokens, whole=True, small_kernels=False) == wanted


def test_recurrent_layers_are_never_compiled() -> None:
    assert best_speed("cuda", 10**9, 10**12, whole=True, small_kernels=True) == "graphs"
    assert best_speed("cuda", 10**9, 10**12, whole=False, small_kernels=True) == "plain"


def test_a_step_in_parts_is_not_captured() -> None:
    assert best_speed("cuda", 1000, 1000, whole=False, small_kernels=False) == "compile"

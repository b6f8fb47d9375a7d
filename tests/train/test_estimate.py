"""A dry run takes seconds, whatever the size: a share of a batch is measured, or operations are counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headway.recipes import RECIPES
from headway.train import estimate


def test_of_a_large_model_operations_are_counted_and_no_weight_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "build", lambda *_: pytest.fail("its weights were drawn"))
    run = RECIPES["gpt2-124m"].make()
    told = estimate.describe(replace(run, engine=replace(run.engine, device="cpu", dtype="float32")))
    assert "parameters: 124,475,904" in told and "(counted from its operations)" in told


@pytest.mark.parametrize(("slow", "shares"), [(True, [16]), (False, [16, 4, 1])])
def test_a_larger_share_is_measured_only_where_a_smaller_one_is_quick(
    slow: bool, shares: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RECIPES["gpt"].make()
    tiny = replace(run.model, layers=1, width=16, heads=1, max_length=16)
    run = replace(run, model=tiny, engine=replace(run.engine, batch=1024, device="cpu", dtype="float32"))
    seen: list[int] = []

    def sampled(given: Any, *_: Any) -> None:
        seen.append(run.engine.batch // given.engine.batch)

    monkeypatch.setattr(run.task, "sample", sampled)
    monkeypatch.setattr(estimate.timeit, "repeat", lambda *_, **__: [2.0 if slow else 0.1])
    told = estimate.describe(run)
    assert seen == shares
    assert f"about {2.0 * 16 if slow else 0.1:.2g} s a step" in told


@pytest.mark.parametrize("recipe", ["robot", "robot-bins", "decision-transformer"])
def test_the_head_of_a_policy_fits_its_sample_before_there_are_data(recipe: str) -> None:
    run = RECIPES[recipe].make()
    run = replace(run, engine=replace(run.engine, batch=64, device="cpu", dtype="float32"))
    assert "measured on a few steps" in estimate.describe(run)

"""The example of docs/own.md: it runs, resumes to the same weights, keeps buffers and can be traced."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import headway
from headway.errors import InputError

PAGE = Path(__file__).parents[2] / "docs" / "own.md"
[EXAMPLE] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("own_example")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(EXAMPLE, str(PAGE), "exec"), vars(module))
    return vars(module)


def test_the_example_is_short_and_learns_and_can_be_traced(example: dict[str, Any], capsys: Any) -> None:
    code = [line for line in EXAMPLE.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(code) < 60
    assert example["outcome"].scores["validation loss"] < 0.2
    assert tuple(example["trace"].tensors["attention.weights"].shape) == (64, 2, 9, 9)
    assert (example["outcome"].folder / "model.safetensors").is_file()


def test_a_run_in_two_parts_ends_with_the_weights_and_buffers_of_one(example: dict[str, Any], tmp_path: Path) -> None:
    steady = ["schedule=inverse-root", "schedule.warmup=5", "engine.log=5", "engine.checkpoint=10",
              "validation.every=40", "validation.score_every=40"]  # fmt: skip

    def trained(name: str, *parts: int) -> dict[str, torch.Tensor]:
        for steps in parts:
            torch.manual_seed(0)
            outcome = headway.fit(
                example["Counter"](), example["loss"], batch=example["rows"], valid=lambda: [example["rows"](7)],
                out=tmp_path / name, settings=[*steady, f"engine.steps={steps}"], quiet=True,
            )  # fmt: skip
        return load_file(outcome.folder / "model.safetensors")

    whole, parts = trained("whole", 40), trained("parts", 20, 40)
    assert whole.keys() == parts.keys() and "norm.running_mean" in whole and "norm.num_batches_tracked" in whole
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert int(whole["norm.num_batches_tracked"]) == 40


def test_a_batch_that_does_not_count_its_loss_is_refused(example: dict[str, Any], tmp_path: Path) -> None:
    class Uncounted(example["Rows"]):  # type: ignore[misc]
        def counted(self) -> dict[str, float]:
            return {}

    made = example["rows"](1)
    with pytest.raises(InputError, match="must count the term `loss`"):
        headway.fit(example["Counter"](), example["loss"], lambda step: made,
                    lambda: [Uncounted(made.marks_BT, made.more_B)], tmp_path / "x", quiet=True)  # fmt: skip

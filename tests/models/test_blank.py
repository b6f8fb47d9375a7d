"""Models before their weights come: nothing is drawn, tables are real, and every parameter has its place."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from headway.models import FAMILIES
from headway.models.blank import blank

CPU = torch.device("cpu")


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in ("ngram", "recurrent", "rung")])
def test_nothing_is_drawn_and_all_else_is_as_in_a_model(family: str) -> None:
    config, sizes = FAMILIES[family].config(), (40,) * len(FAMILIES[family].takes)
    if "layers" in {field.name for field in dataclasses.fields(config)}:
        config = dataclasses.replace(config, layers=2)  # the others are the same
    before = torch.get_rng_state()
    found = blank(family, config, sizes, CPU, torch.float64)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_default_dtype() == torch.float32 and not found.training
    usual = FAMILIES[family].model(config, *sizes)
    shapes = {name: weight.shape for name, weight in usual.named_parameters()}
    assert {name: weight.shape for name, weight in found.named_parameters()} == shapes
    assert all(weight.dtype == torch.float64 for weight in found.parameters() if weight.is_floating_point())
    tables = dict(usual.named_buffers())
    for name, table in found.named_buffers():
        assert torch.equal(table.to(tables[name].dtype), tables[name]), name

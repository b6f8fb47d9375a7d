"""The vectors of distances, against transformers' own buckets."""

from __future__ import annotations

import warnings

import pytest
import torch

from headway.nn.disentangled import DistanceVectors
from headway.nn.position import Scene

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position


@pytest.mark.parametrize(("span", "farthest"), [(256, 512), (6, 20), (7, 300), (40, None)])
def test_far_distances_share_vectors_as_in_transformers(span: int, farthest: int | None) -> None:
    length = 700
    x = torch.zeros(1, length, 4)
    buckets = build_relative_position(x, x, -1 if farthest is None else span, farthest or -1)[0]
    expected = (buckets + span).clamp(0, 2 * span - 1)
    found = DistanceVectors(4, span, farthest).rows(Scene(length, length, x.device))
    assert torch.equal(found, expected)

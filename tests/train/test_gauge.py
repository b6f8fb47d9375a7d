"""The share of the machine: operations counted against a count by hand, chance untouched."""

from __future__ import annotations

import pytest
import torch

from headway.batch import TextInputs, TokenBatch
from headway.models.transformer import Transformer, TransformerConfig
from headway.tasks.objective import CrossEntropy, RDrop
from headway.train.gauge import Gauge, measured_peak, operations_per_token, words

CPU = torch.device("cpu")
CONFIG = TransformerConfig(encoder_layers=2, decoder_layers=3, width=64, inner=128, heads=4, dropout=0.1)


def batch(rows: int = 8, length: int = 16) -> TokenBatch:
    ids = torch.randint(4, 500, (rows, length))
    return TokenBatch(ids, ids, inputs=TextInputs(ids))


def by_hand(length: int) -> float:
    """Six operations for each weight that a token meets, and the attention's own products."""
    width, inner = CONFIG.width, CONFIG.inner
    own, feed = 4 * width * width, 2 * width * inner
    weights = 2 * (own + feed) + 3 * (2 * own + feed) + 500 * width
    products = (2 + 3 + 3) * 2 * width * length
    return 6 * (weights + products)


def test_operations_are_those_of_a_count_by_hand() -> None:
    torch.manual_seed(0)
    model = Transformer(CONFIG, 500, 500)
    counted = operations_per_token(CrossEntropy().build(model), batch(), CPU)
    assert counted == pytest.approx(by_hand(16), rel=0.06)
    twice = operations_per_token(RDrop().build(model), batch(), CPU)
    assert twice == pytest.approx(2 * counted, rel=0.01)


@pytest.mark.gpu
def test_products_with_a_wider_result_are_counted_too() -> None:
    torch.manual_seed(0)
    objective = CrossEntropy().build(Transformer(CONFIG, 500, 500).to("cuda", torch.bfloat16))
    assert operations_per_token(objective, batch(), torch.device("cuda")) == pytest.approx(by_hand(16), rel=0.06)


def test_counting_changes_nothing() -> None:
    torch.manual_seed(0)
    model = Transformer(CONFIG, 500, 500)
    objective, some = CrossEntropy().build(model).eval(), batch()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    Gauge(objective, CPU, torch.float32).measure(some)
    assert torch.equal(torch.rand(3), expected)
    assert not objective.training and all(weight.grad is None for weight in model.parameters())


def test_a_machine_at_its_peak_is_at_one() -> None:
    gauge = Gauge(CrossEntropy().build(Transformer(CONFIG, 500, 500)), CPU, torch.float32)
    assert "of_peak" not in gauge.read(1000.0)
    gauge.measure(batch())
    found = gauge.read(gauge._peak / operations_per_token(gauge.objective, batch(), CPU))
    assert found["of_peak"] == pytest.approx(1.0, rel=0.01)
    assert words(found | {"memory": 2_300_000_000}) == "100 % utilisation, 2.3 GB"
    assert measured_peak(CPU, torch.float32, seconds=0.01) > 1e8

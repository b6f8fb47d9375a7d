"""A head that copies: its probabilities by the definition, in steps as at once, and beside other sources as alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from headway import load
from headway.batch import IGNORED, TextInputs, TokenBatch
from headway.errors import InputError
from headway.models.transformer import TINY, Transformer
from headway.nn.tap import record
from headway.tasks.objective import CrossEntropy, HeadCrossEntropy
from small_runs import of_pairs
from small_world import write_pairs

CONFIG = replace(TINY, encoder_layers=1, decoder_layers=2, width=16, inner=32, heads=2, dropout=0.0, copying=True)


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(1)
    return Transformer(CONFIG, 20, 20).double().eval()


def test_probabilities_are_those_of_the_definition(model: Transformer) -> None:
    source, target, lengths = torch.tensor([[4, 5, 4, 7], [8, 9, 0, 0]]), torch.tensor([[1, 4, 5], [1, 8, 3]]), [4, 2]
    state = model.start(TextInputs(source, torch.tensor(lengths)), 2, source.device)
    hidden, state = model.read(target, state)
    found = model.head(hidden, state).exp()
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 3, dtype=torch.float64))
    keys, head = state["memories"][-1].k_BHSK, model.head
    for row in range(2):
        for at in range(3):
            h = hidden[row, at]
            gate = torch.sigmoid(head.gate(h))[0]
            expected = gate * head.head(h[None, None])[0, 0].softmax(-1)
            scores = [head.query(h) @ keys[row, :, i].flatten() / 4 for i in range(lengths[row])]
            for i, share in enumerate(torch.stack(scores).softmax(0)):
                expected[source[row, i]] = expected[source[row, i]] + (1 - gate) * share
            torch.testing.assert_close(found[row, at], expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_steps_give_what_reading_at_once_gives(model: Transformer) -> None:
    source, target = torch.randint(4, 20, (3, 6)), torch.randint(4, 20, (3, 5))
    inputs = TextInputs(source, torch.tensor([6, 3, 4]))
    expected = model.logits(target, model.start(inputs, 3, source.device))[0]
    for room in (None, 9):
        state = model.start(inputs, 3, source.device, room)
        found = torch.cat([model.logits(target[:, at : at + 1], state)[0] for at in range(5)], 1)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_the_loss_is_that_of_the_probabilities_and_has_a_gradient_where_nothing_is_copied(model: Transformer) -> None:
    source, target = torch.randint(4, 9, (2, 5)), torch.randint(10, 20, (2, 4))
    batch = TokenBatch(target, torch.cat([target[:, 1:], torch.full((2, 1), IGNORED)], 1), inputs=TextInputs(source))
    loss = HeadCrossEntropy(smoothing=0.0).build(model)(batch)["loss"][0]
    log_p = model.logits(target, model.start(batch.inputs, 2, source.device))[0]
    assert float(loss.detach()) == pytest.approx(-float(log_p.detach()[:, :-1].gather(-1, target[:, 1:, None]).sum()))
    loss.backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())
    with pytest.raises(InputError, match="objective=head-cross-entropy"):
        CrossEntropy().build(model)(batch)


def test_what_is_copied_can_be_traced(model: Transformer) -> None:
    source, target = torch.randint(4, 20, (1, 5)), torch.randint(4, 20, (1, 3))
    with record(model) as recorder, torch.no_grad():
        model(source, target)
    copied = recorder.tensors["head.copied"]
    assert copied.shape == (1, 3, 5) and torch.allclose(copied.sum(-1).double(), torch.ones(1, 3, dtype=torch.float64))


def test_sources_side_by_side_are_searched_as_alone(tmp_path: Path) -> None:
    write_pairs(tmp_path, 40, 4, 4)
    settings = ("model.copying=true", "objective=head-cross-entropy", "engine.steps=12")
    translator = load(of_pairs("translate", tmp_path, tmp_path / "run", *settings), "cpu")
    texts = (tmp_path / "train.en").read_text().splitlines()[:9]
    together = translator.translate(texts, beam=4)
    assert together == [translator.translate(text, beam=4) for text in texts]
    assert together == translator.translate(texts, beam=4, batch=2)

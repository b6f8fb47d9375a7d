"""Objectives: R-Drop against its definition, and what it is without dropout."""

import dataclasses

import pytest
import torch
from readable_loss import readable_paired_cross_entropy

from headway.batch import IGNORED, TextInputs, TokenBatch
from headway.data.labelled import LabelBatch
from headway.models.heads import Classes, Headed
from headway.models.text_cnn import TextCnn, TextCnnConfig, Windows
from headway.models.transformer import Transformer, TransformerConfig
from headway.tasks.objective import CrossEntropy, Labels, LabelsRDrop, RDrop

CONFIG = TransformerConfig(encoder_layers=1, decoder_layers=1, width=16, inner=32, heads=2, dropout=0.0, max_length=32)


def made(dropout):
    torch.manual_seed(0)
    model = Transformer(dataclasses.replace(CONFIG, dropout=dropout), 30, 30).double()
    source, target, labels = (torch.randint(4, 30, (5, n)) for n in (7, 6, 6))
    labels[1, 3:] = IGNORED
    return model, TokenBatch(target, labels, inputs=TextInputs(source, torch.tensor([7, 2, 5, 7, 1])))


def test_r_drop_without_dropout_is_cross_entropy():
    model, batch = made(dropout=0.0)
    plain, twice = CrossEntropy(0.1).build(model).train()(batch), RDrop(0.1, 3.0).build(model).train()(batch)
    for name in ("loss", "nll"):
        torch.testing.assert_close(twice[name][0], plain[name][0])
        assert twice[name][1] == plain[name][1] == float(name == "loss")


@pytest.mark.parametrize("training", [True, False])
def test_r_drop_compares_two_passes_of_each_row_in_training_only(training):
    model, batch = made(dropout=0.3)
    objective = RDrop(0.1, 3.0).build(model).train(training)
    torch.manual_seed(1)
    loss, nll = (triple[0] for triple in objective(batch).values())
    torch.manual_seed(1)
    twice = TokenBatch.join([batch, batch])
    logits = model.head(objective.hidden(twice))
    expected = readable_paired_cross_entropy(logits, batch.labels_BT.flatten(), 0.1, IGNORED, 3.0)
    torch.testing.assert_close((loss, nll), expected)
    halves = logits.chunk(2)
    assert torch.allclose(*halves) != training


def labeller(dropout):
    torch.manual_seed(0)
    encoder = TextCnn(TextCnnConfig(8, Windows((2, 3), maps=4), dropout=dropout), 30)
    ids_BT = torch.randint(4, 30, (5, 7))
    inputs = TextInputs(ids_BT, torch.tensor([7, 2, 5, 7, 1]))
    return Headed(encoder, Classes(("a", "b", "c"))).double(), LabelBatch(inputs, torch.tensor([0, 2, 1, IGNORED, 1]))


def test_r_drop_of_labels_without_dropout_is_the_loss_of_labels():
    model, batch = labeller(dropout=0.0)
    plain, twice = Labels(0.1).build(model).train()(batch), LabelsRDrop(0.1, weight=3.0).build(model).train()(batch)
    for name in ("loss", "nll"):
        torch.testing.assert_close(twice[name][0], plain[name][0])
        assert twice[name][1] == plain[name][1] == float(name == "loss")


def test_r_drop_of_labels_weighs_the_distance_as_it_weighs_the_loss():
    model, batch = labeller(dropout=0.5)
    objective = LabelsRDrop(weight=3.0).build(model).train()

    def loss(weights):
        torch.manual_seed(1)
        return objective(dataclasses.replace(batch, weights_B=torch.tensor(weights).double()))["loss"][0]

    each = [loss([float(at == row) for at in range(5)]) for row in range(5)]
    torch.testing.assert_close(loss([1.0, 2.0, 3.0, 4.0, 5.0]), sum((at + 1) * one for at, one in enumerate(each)))
    assert each[3] == 0 and min(each[:3]) > 0


@pytest.mark.parametrize("training", [True, False])
def test_r_drop_of_labels_compares_two_passes_of_each_text_in_training_only(training):
    model, batch = labeller(dropout=0.5)
    objective = LabelsRDrop(0.1, weight=3.0).build(model).train(training)
    torch.manual_seed(1)
    loss, nll = (triple[0] for triple in objective(batch).values())
    torch.manual_seed(1)
    logits = model.head(model.encode(TextInputs.join([batch.inputs, batch.inputs])))
    expected = readable_paired_cross_entropy(logits, batch.labels_B, 0.1, IGNORED, 3.0)
    torch.testing.assert_close((loss, nll), expected)
    halves = logits.chunk(2)
    assert torch.allclose(*halves) != training

"""A conditional random field against all label sequences, written out, in float64."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.batch import IGNORED, TextInputs
from headway.data.tag_schemes import rewritten
from headway.data.tagged import TaggedBatch
from headway.errors import InputError
from headway.models.crf import Chain, valid_steps
from headway.models.heads import HEADS, Headed
from headway.models.protocols import Encoded, Encodes
from headway.models.token_heads import Crf

LABELS = 3


class Both(Encodes):
    """An encoder of another kind: a GRU in both directions."""

    context, dropout, width = None, 0.0, 8

    def __init__(self) -> None:
        super().__init__()
        self.vectors, self.cells = torch.nn.Embedding(20, 6), torch.nn.GRU(6, 4, batch_first=True, bidirectional=True)

    def encode(self, inputs: Any) -> Encoded:
        return Encoded(self.cells(self.vectors(inputs.ids_BT))[0], inputs.lengths_B)


def made() -> tuple[Headed, TaggedBatch]:
    """Rows of 5, 3, 1 and no words of several tokens each, with special tokens and padding."""
    torch.manual_seed(0)
    model = Headed(Both(), Crf(labels=tuple("abc"))).double()
    for weight in model.head.parameters():
        torch.nn.init.normal_(weight)
    labels_BT = torch.full((4, 9), IGNORED)
    labels_BT[0, [1, 2, 4, 5, 8]] = torch.tensor([0, 2, 1, 1, 0])
    labels_BT[1, [1, 4, 5]] = torch.tensor([2, 2, 0])
    labels_BT[2, 3] = 1
    return model, TaggedBatch(TextInputs(torch.randint(0, 20, (4, 9))).with_lengths(), labels_BT)


def sequences(model: Headed, logits_TL: Tensor, words: list[int]) -> dict[tuple[int, ...], Tensor]:
    """The exponent of every label sequence, added up term by term."""
    head: Any = model.head
    found = {}
    for labels in product(range(LABELS), repeat=len(words)):
        score = head.before_L[labels[0]] + head.behind_L[labels[-1]]
        for at, label in zip(words, labels, strict=True):
            score = score + logits_TL[at, label]
        for before, after in zip(labels, labels[1:], strict=False):
            score = score + head.between_LL[before, after]
        found[labels] = score
    return found


def test_the_likelihood_is_that_over_all_label_sequences_of_the_words() -> None:
    model, batch = made()
    found = model.head.losses(model.encode(batch.inputs), batch)["loss"][0]
    logits_BTL, expected = model(batch.inputs), torch.zeros((), dtype=torch.float64)
    for logits_TL, labels_T in zip(logits_BTL, batch.labels_BT, strict=True):
        if words := (labels_T != IGNORED).nonzero()[:, 0].tolist():
            scores = sequences(model, logits_TL, words)
            expected = (
                expected + torch.stack(list(scores.values())).logsumexp(0) - scores[tuple(labels_T[words].tolist())]
            )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weights = tuple(model.parameters())
    for ours, theirs in zip(torch.autograd.grad(found, weights), torch.autograd.grad(expected, weights), strict=True):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_the_best_sequence_and_its_probabilities_are_those_of_an_exhaustive_search() -> None:
    model, batch = made()
    starts_BT = batch.labels_BT != IGNORED
    label_BT, share_BT = model.head.tags(model.encode(batch.inputs), starts_BT)
    logits_BTL = model(batch.inputs)
    for row in range(3):
        words = starts_BT[row].nonzero()[:, 0].tolist()
        scores = sequences(model, logits_BTL[row], words)
        best = max(scores, key=lambda labels: scores[labels].item())
        assert tuple(label_BT[row, words].tolist()) == best
        shares = torch.stack(list(scores.values())).softmax(0)
        for at, (place, label) in enumerate(zip(words, best, strict=True)):
            having = torch.tensor([labels[at] == label for labels in scores])
            torch.testing.assert_close(share_BT[row, place], shares[having].sum(), rtol=1e-12, atol=1e-12)


def test_padding_and_other_rows_change_nothing() -> None:
    """A row alone, cut to its words, has the loss and the labels that it has in the batch."""
    torch.manual_seed(1)
    scores = torch.randn(LABELS), torch.randn(2, 7, LABELS), torch.randn(LABELS, LABELS), torch.randn(LABELS)
    a_L, e_BTL, A_LL, b_L = (score.double() for score in scores)
    there_BT = torch.arange(7) < torch.tensor([[7], [4]])
    labels_BT = torch.randint(0, LABELS, (2, 7))
    both, alone = Chain(a_L, e_BTL, A_LL, b_L, there_BT), Chain(a_L, e_BTL[1:, :4], A_LL, b_L, there_BT[1:, :4])
    torch.testing.assert_close(both.log_partition()[1:], alone.log_partition())
    torch.testing.assert_close(both.score(labels_BT)[1:], alone.score(labels_BT[1:, :4]))
    torch.testing.assert_close(both.marginals()[1:, :4], alone.marginals())
    assert torch.equal(both.best()[1:, :4], alone.best())


@pytest.mark.parametrize("words", [1, 2, 3, 4, 5, 8, 13])
def test_words_in_pairs_have_the_sums_and_the_gradients_of_words_in_order(words: int) -> None:
    torch.manual_seed(words)
    shapes = (LABELS,), (4, words, LABELS), (LABELS, LABELS), (LABELS,)
    scores = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    there_BT = torch.arange(words) < torch.tensor([words, (words + 1) // 2, 1, 0])[:, None]
    chain = Chain(*scores, there_BT)
    ours_B, theirs_B = chain.in_pairs(), chain.log_partition()
    torch.testing.assert_close(ours_B, theirs_B, rtol=1e-12, atol=1e-12)
    ours = torch.autograd.grad(ours_B.sum(), scores, allow_unused=True)
    for one, other in zip(ours, torch.autograd.grad(theirs_B.sum(), scores, allow_unused=True), strict=True):
        zero = torch.zeros(())
        torch.testing.assert_close(zero if one is None else one, zero if other is None else other)


def test_large_scores_do_not_overflow() -> None:
    e_BTL = torch.tensor([[[1e4, -1e4, 0.0]] * 6], requires_grad=True)
    zeros = torch.zeros(LABELS), torch.zeros(LABELS, LABELS)
    chain = Chain(zeros[0], e_BTL, zeros[1], zeros[0], torch.ones(1, 6, dtype=torch.bool))
    chain.log_partition().sum().backward()  # type: ignore[no-untyped-call]
    assert chain.log_partition().item() == pytest.approx(6e4) and e_BTL.grad is not None and e_BTL.grad.isfinite().all()


def test_both_heads_for_words_stand_on_any_encoder() -> None:
    batch = made()[1]
    for head in (head for head in HEADS.values() if head.task == "tagging"):
        model = Headed(Both(), head(labels=tuple("abc")))
        sum(loss for loss, _ in model.head.losses(model.encode(batch.inputs), batch).values()).backward()
        assert all(weight.grad.isfinite().all() for weight in model.parameters())
    with pytest.raises(InputError, match="no label smoothing: set objective.smoothing=0"):
        model.head.losses(model.encode(batch.inputs), batch, 0.1)


SCHEMES = {"bio": ("O", "B-X", "I-X", "B-Y", "I-Y"), "bioes": ("O", "B-X", "I-X", "E-X", "S-X", "S-Y")}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_valid_steps_allow_exactly_the_sequences_that_the_scheme_writes(scheme: Any) -> None:
    labels = SCHEMES[scheme]
    first_L, step_LL, last_L = valid_steps(labels)
    for row in (row for words in (1, 2, 3, 4) for row in product(range(len(labels)), repeat=words)):
        steps = all(step_LL[before, after] for before, after in zip(row, row[1:], strict=False))
        allowed = bool(first_L[row[0]] and steps and last_L[row[-1]])
        named = tuple(labels[label] for label in row)
        assert allowed == (rewritten(named, scheme) == named), named


@pytest.mark.parametrize("scheme", SCHEMES)
def test_with_valid_all_probability_is_that_of_valid_sequences(scheme: Any) -> None:
    torch.manual_seed(0)
    labels = SCHEMES[scheme]
    model = Headed(Both(), Crf(labels=labels, valid=True)).double()
    for weight in model.head.parameters():
        torch.nn.init.normal_(weight)
    inputs = TextInputs(torch.randint(0, 20, (1, 4))).with_lengths()
    rows = list(product(range(len(labels)), repeat=4))
    names = [tuple(labels[label] for label in row) for row in rows]
    written = [name == rewritten(name, scheme) for name in names]
    encoded = model.encode(inputs)
    chain, _ = model.head.chain(encoded, torch.ones(1, 4, dtype=torch.bool))
    e_NTL, there_NT = chain.e_BTL.expand(len(rows), -1, -1), chain.there_BT.expand(len(rows), -1)
    every = Chain(chain.a_L, e_NTL, chain.A_LL, chain.b_L, there_NT)
    share = (every.score(torch.tensor(rows)) - chain.log_partition()).exp()
    torch.testing.assert_close(share[torch.tensor(written)].sum(), torch.ones((), dtype=torch.float64))
    assert share[~torch.tensor(written)].sum() == 0.0
    best, _ = model.head.tags(encoded, torch.ones(1, 4, dtype=torch.bool))
    assert tuple(best[0].tolist()) == rows[int(share.argmax())]
    plain = Headed(Both(), Crf(labels=labels))
    assert plain.state_dict().keys() == model.state_dict().keys()  # nothing more is written to a model's folder

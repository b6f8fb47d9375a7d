"""What the worked pages say is computed, not told: the six steps, the variance of scores, order, roles, switches."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import headway
from headway.models import parts
from headway.models.gpt import GPT, GPTConfig
from headway.models.transformer import Transformer, TransformerConfig
from headway.nn.attention import SelfAttention
from headway.nn.position import Rotary, Sinusoidal
from headway.nn.view import SEE_ALL

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


def script(name: str) -> ModuleType:
    sys.path.insert(0, str(SCRIPTS))  # as where it is run
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def steps() -> ModuleType:
    return script("worked_steps")


@pytest.fixture(scope="module")
def order() -> ModuleType:
    return script("worked_order")


@pytest.fixture(scope="module")
def roles() -> ModuleType:
    return script("worked_roles")


def drawn(model: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    return model.double().eval()


@pytest.mark.parametrize("position", [parts.Learned(), parts.Rotary()], ids=["learned", "rotary"])
def test_the_six_steps_give_what_a_gpt_has_traced(steps, position):
    model = drawn(GPT(GPTConfig(2, 24, heads=3, position=position, max_length=16), 50))
    with headway.trace(model) as seen:
        model(torch.randint(4, 50, (1, 9)))
    trace = seen.row(0)
    for layer, head in np.ndindex(2, 3):
        site = f"decoder.{layer}.attention"
        found = steps.of_trace(trace, site, head)
        visible = trace[f"{site}.mask"]
        assert (visible == np.tri(9, dtype=bool)).all() and np.isneginf(found.masked_TS[~visible]).all()
        np.testing.assert_allclose(found.scaled_TS, trace[f"{site}.scores"][head], rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.weights_TS, trace[f"{site}.weights"][head], rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.mixed_TK, trace[f"{site}.mixed"][head], rtol=0, atol=1e-12)


def test_the_first_step_makes_the_queries_keys_and_values_that_were_traced(steps):
    model = drawn(GPT(GPTConfig(2, 24, heads=3, position=parts.Learned(), max_length=16), 50))
    with headway.trace(model) as seen:
        model(torch.randint(4, 50, (1, 9)))
    trace, block = seen.row(0), model.decoder.layers[1]
    x_TD = steps.normed(block.around_attention.before, trace["decoder.0.hidden"])
    for head in range(3):
        for name, made in zip(("queries", "keys", "values"), steps.projected(block.attention, x_TD, head), strict=True):
            np.testing.assert_allclose(made, trace[f"decoder.1.attention.{name}"][head], rtol=0, atol=1e-12)


def test_the_six_steps_hold_across_two_texts_with_padding(steps):
    model = drawn(Transformer(TransformerConfig(1, 1, 16, 32, heads=2, max_length=16), 40, 40))
    with headway.trace(model) as seen:
        model(torch.randint(4, 40, (2, 7)), torch.randint(4, 40, (2, 5)), torch.tensor([7, 4]))
    trace = seen.row(1)
    assert not trace["decoder.0.cross.mask"][:, 4:].any()
    for head in (0, 1):
        found = steps.of_trace(trace, "decoder.0.cross", head)
        np.testing.assert_allclose(found.mixed_TK, trace["decoder.0.cross.mixed"][head], rtol=0, atol=1e-12)


def test_scores_of_random_vectors_have_the_width_as_their_variance(steps):
    dice = np.random.default_rng(0)
    for width in (4, 64):
        found = steps.random_scores(width, dice)
        assert found["variance"] == pytest.approx(width, rel=0.05)
        assert found["scaled variance"] == pytest.approx(1, rel=0.05)
        assert found["entropy"] < found["scaled entropy"] < np.log(steps.KEYS)
    assert steps.entropy(np.array([1.0, 0.0])) == 0 and steps.entropy(np.full(8, 1 / 8)) == pytest.approx(np.log(8))


def test_attention_without_positions_reads_a_set_and_with_them_a_sequence(order):
    torch.manual_seed(0)
    part, x_1TD, shuffle = SelfAttention(16, 4).double(), torch.randn(1, 11, 16).double(), torch.randperm(11)
    place = Sinusoidal(16)
    assert order.shuffled(lambda x: part(x, SEE_ALL), x_1TD, shuffle) < 1e-14
    assert order.shuffled(lambda x: part(place.add(x), SEE_ALL), x_1TD, shuffle) > 1e-2


def test_the_page_tells_rounding_from_order(order):
    apart = {(row["model"], row["change"]): row["apart"] for row in order.order_rows()}
    before, last = "words before the last turned round", "last word and another change places"
    same = {key for key, far in apart.items() if far < 1e-14}
    assert same == {
        ("self-attention, no positions", "all words shuffled"), ("bag of words", before), ("bag of words", last),
        ("causal attention, 1 layer", before),
    }  # fmt: skip
    assert min(far for key, far in apart.items() if key not in same) > 1e-2


def test_similarity_by_distance_is_that_of_the_waves(order):
    """cos and sin of each wave give Σ cos(d·θ) over half the width, whatever the place."""
    theta = 10_000.0 ** (-np.arange(0, 32, 2) / 32)
    expected = [np.cos(d * theta).mean() for d in range(20)]
    table_PD = order.sinusoid(torch.arange(60), 32)
    np.testing.assert_allclose(order.added_similarity(table_PD, range(20)), expected, atol=1e-12)
    np.testing.assert_allclose(order.turned_similarity(Rotary(32), range(20)), expected, atol=0.03)  # a mean of 500


def test_a_sentence_knows_its_roles_and_can_be_turned_round(roles):
    data = roles.corpus(300)
    for row, one in enumerate(data.told):
        who, what, whom = (one.words[at] for at in one.roles)
        assert who != what != whom and what in {"sees", "see", "hears", "hear", "likes", "like"}
        assert [data.vocabulary[word] for word in data.answers_BR[row]] == [who, what, whom]
    assert len({one.words for one in data.told}) == 300


def test_the_plain_mean_cannot_tell_who_from_whom(roles):
    """Whatever its weights: the two sentences give one vector."""
    torch.manual_seed(0)
    model = roles.Reader(20, 16, heads=0).double().eval()
    text_BT = torch.tensor([[1, 5, 6, 7, 8, 9], [1, 5, 9, 7, 8, 6]])
    one, other = model(text_BT, torch.tensor([6, 6]))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_values_without_places_are_the_models_own_where_places_are_nothing(roles, monkeypatch):
    monkeypatch.setattr(roles, "TESTED", 200)
    data = roles.corpus(200)
    torch.manual_seed(0)
    model = roles.Reader(len(data.vocabulary), 16, heads=2, inner=8).eval()
    assert roles.placeless(model, data) == 0  # untrained
    with torch.no_grad():
        # Each answer is what the model itself would say: then all are right exactly where it is.
        model.position.table_PD.zero_()
        said_BR = model(data.text_BT, data.lengths_B).argmax(-1)
    own = roles.Corpus(data.told, data.vocabulary, data.text_BT, data.lengths_B, data.places_BR)
    monkeypatch.setattr(roles.Corpus, "answers_BR", said_BR)
    assert roles.placeless(model, own) == 1


def test_a_head_switches_only_if_both_sentences_go_their_own_way():
    looks = np.array([[[[0.6, 0.2], [0.1, 0.4], [0.6, 0.2]]], [[[0.1, 0.3], [0.5, 0.2], [0.3, 0.2]]]])
    assert script("worked_heads").switches(looks).tolist() == [[1, -1, 0]]

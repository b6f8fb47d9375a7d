"""The neural n-gram against Bengio's formula word by word, and against itself: stepped, padded, packed."""

import pytest
import torch
import torch.nn.functional as F
from rooms import joined

from headway.batch import TokenBatch
from headway.errors import InputError
from headway.models.neural_ngram import NeuralNGram, NeuralNGramConfig
from headway.nn.slots import BLANK
from headway.plain import from_plain, to_plain
from headway.tasks.objective import NextToken

FORMS = [
    NeuralNGramConfig(order=5, width=6, hidden=10),
    NeuralNGramConfig(order=2, width=6, hidden=10, direct=False),
    NeuralNGramConfig(order=3, width=8, hidden=8, tied=True),
    NeuralNGramConfig(order=4, width=8, hidden=8, tied=True, direct=False),
]
each_form = pytest.mark.parametrize("config", FORMS, ids=lambda c: f"{c.order}-{c.direct}-{c.tied}")
VOCABULARY = 37


def made(config, seed=0):
    torch.manual_seed(seed)
    model = NeuralNGram(config, VOCABULARY).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))  # biases too must differ from their first values
    return model, torch.randint(4, VOCABULARY, (3, 11))


def by_formula(model, history):
    """y = b + Wx + U tanh(d + Hx) of one history, the oldest word first, with the matrices taken apart."""
    config, weight = model.config, model.output.weight
    x = torch.cat([model.table.weight[word] * config.width**0.5 for word in history])
    u, rest, b = weight[:, : config.hidden], weight[:, config.hidden : -1], weight[:, -1]
    h, d = model.layer.map.weight, model.layer.map.bias
    y = b + u @ torch.tanh(d + h @ x)
    return y + rest @ x if config.direct else y


@each_form
def test_is_bengios_formula_word_by_word(config):
    model, ids = made(config)
    logits, _ = model(ids)
    for row, words in enumerate(ids.tolist()):
        padded = [BLANK] * (config.order - 2) + words
        for t in range(len(words)):
            expected = by_formula(model, padded[t : t + config.order - 1])
            torch.testing.assert_close(logits[row, t], expected, rtol=0, atol=1e-12)


@each_form
def test_no_word_has_probability_zero_and_all_sum_to_one(config):
    model, ids = made(config)
    p = model(ids)[0].softmax(-1)
    assert p.shape == (3, 11, VOCABULARY) and (p > 0).all()
    torch.testing.assert_close(p.sum(-1), torch.ones(3, 11, dtype=torch.float64))


@each_form
def test_a_text_in_pieces_is_the_text_at_once(config):
    model, ids = made(config)
    whole, _ = model(ids)
    state = model.start(None, 3, ids.device)
    found = [model(ids[:, at], state)[0] for at in (slice(0, 4), slice(4, 5), slice(5, 6), slice(6, 11))]
    torch.testing.assert_close(torch.cat(found, 1), whole, rtol=0, atol=1e-12)
    logp, state = model.scored(ids[:, :7])
    more, _ = model.scored(ids[:, 6:], state)
    expected = model.score(ids)
    torch.testing.assert_close(torch.cat([logp, more[:, 1:]], 1), expected, rtol=0, atol=1e-12)


def test_only_the_last_words_count():
    model, ids = made(FORMS[0])
    other = ids.clone()
    other[:, :7] = torch.randint(4, VOCABULARY, (3, 7))
    assert torch.equal(model(ids)[0][:, 10], model(other)[0][:, 10])
    other[:, 7] = (ids[:, 7] + 1) % VOCABULARY
    assert not torch.equal(model(ids)[0][:, 10], model(other)[0][:, 10])


@each_form
def test_rows_of_different_lengths_go_on_as_if_alone(config):
    model, ids = made(config)
    more = torch.randint(4, VOCABULARY, (3, 3))
    lengths = torch.tensor([1, 11, 5])
    _, state = model.read(ids, lengths_R=lengths)
    _, state = model.read(more[:, :2], state, lengths_R=torch.tensor([2, 0, 1]))
    found, _ = model(more[:, 2:], state)
    for row, (first, second) in enumerate(zip((1, 11, 5), (2, 0, 1), strict=True)):
        alone = torch.cat([ids[row, :first], more[row, :second], more[row, 2:]])[None]
        torch.testing.assert_close(found[row, 0], model(alone)[0][0, -1], rtol=0, atol=1e-12)


@each_form
def test_packed_documents_are_as_documents_alone(config):
    model, ids = made(config)
    documents = ids[0].split([2, 6, 3])
    segments = torch.cat([torch.full((len(d),), i) for i, d in enumerate(documents)])[None]
    packed, _ = model(ids[:1], segments_BT=segments)
    alone = torch.cat([model(d[None])[0] for d in documents], 1)
    torch.testing.assert_close(packed, alone, rtol=0, atol=1e-12)


def test_the_states_rows_are_kept_repeated_joined_and_forked():
    model, ids = made(FORMS[0])
    _, state = model.read(ids)
    _, other = model.read(ids.flip(0))
    twin, both = state.fork(), joined([state, other], 0)
    state.keep(torch.tensor([2, 0, 0]))
    state.widen(2)
    state.reorder(torch.tensor([1, 0, 2, 3, 4, 5]))
    step = torch.full((6, 1), 9)
    expected = model(torch.cat([ids, torch.full((3, 1), 9)], 1))[0][:, -1:]
    torch.testing.assert_close(model(step, state)[0], expected[[2, 2, 0, 0, 0, 0]], rtol=0, atol=1e-12)
    torch.testing.assert_close(model(step[:3], twin)[0], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(model(step, both)[0], torch.cat([expected, expected.flip(0)]), rtol=0, atol=1e-12)


@each_form
def test_the_objective_trains_every_weight_by_the_gradient_of_plain_cross_entropy(config):
    model, ids = made(config)
    batch = TokenBatch(ids[:, :-1], ids[:, 1:])
    loss, _ = NextToken().build(model)(batch)["loss"]
    expected = F.cross_entropy(model(ids[:, :-1])[0].flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")
    torch.testing.assert_close(loss, expected)
    found = torch.autograd.grad(loss, list(model.parameters()))
    plain = torch.autograd.grad(expected, list(model.parameters()))
    assert batch.counts["loss"] == 30 and all(grad.abs().max() > 0 for grad in found)
    torch.testing.assert_close(found, plain)


def test_tied_vectors_are_one_table_and_the_config_comes_back_from_json():
    model, _ = made(FORMS[2])
    assert sum(weight.shape == (VOCABULARY, 8) for weight in model.parameters()) == 1
    assert torch.equal(model.output.weight[:, :8], model.table.weight)
    assert from_plain(NeuralNGramConfig, to_plain(FORMS[2])) == FORMS[2]


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"order": 1}, "model.order"), ({"tied": True}, "model.hidden equal to model.width"), ({"hidden": 0}, "hidden")],
)
def test_sizes_that_fit_nothing_are_refused_in_one_line(settings, said):
    with pytest.raises(InputError, match=said):
        NeuralNGramConfig(**settings)

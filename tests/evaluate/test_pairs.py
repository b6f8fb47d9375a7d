"""Minimal pairs: margins by hand, sets that are exactly even for whoever does not see what matters, and rungs of the
ladder that have learned them."""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from minimal_pairs import Pair, Preference, read_pairs, score_pairs
from strawberry import KINDS, MEALS, SHARP, SWEET, WORK, corpus, minimal_pairs

from headway.errors import InputError
from headway.models.neural_ngram import NeuralNGram, NeuralNGramConfig
from headway.models.rung import RUNGS, Rung
from headway.text.tokenizer import END, PAD, TextOptions, Tokenizer

LINES = corpus(3000)
PAIRS = minimal_pairs(50)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def words():
    return Tokenizer.train(LINES, TextOptions(kind="word", min_count=1, exact=True))


def small(name):
    return replace(RUNGS[name], width=32, layers=1, max_length=32)


def fresh(name, size):
    torch.manual_seed(0)
    if name == "mlp":
        return NeuralNGram(NeuralNGramConfig(order=5, width=32, hidden=32), size)
    return Rung(small(name), size)


def trained(name, tokenizer, steps=250, rate=1e-2):
    """Sentence by sentence, each from its own beginning."""
    rows = [[END, *tokenizer.encode(line), END] for line in LINES]
    width = max(map(len, rows))
    ids_NT = torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])
    model = fresh(name, len(tokenizer))
    optimiser = torch.optim.Adam(model.parameters())
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 20) * (1 - step / steps)
        batch_BT = ids_NT[torch.randint(len(ids_NT), (64,))]
        logits_BTV, _ = model(batch_BT[:, :-1])
        loss = F.cross_entropy(logits_BTV.flatten(0, 1), batch_BT[:, 1:].flatten(), ignore_index=PAD)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


@torch.no_grad()
@pytest.mark.parametrize("kind", ["word", "bpe", "char"])
def test_a_margin_is_the_difference_of_the_texts_log_probabilities(kind):
    tokenizer = Tokenizer.train(LINES[:50], TextOptions(kind=kind, size=300, min_count=1, exact=True))
    model = Rung(replace(small("heads"), max_length=256, dropout=0.5), len(tokenizer)).double()
    pairs = PAIRS["near"][:2] + PAIRS["far"][:3]
    found = score_pairs(model, tokenizer, pairs)
    assert model.training, "the model's mode stays as it was"

    def logp(text):
        ids = torch.tensor([[END, *tokenizer.encode(text)]])
        all_TV = model(ids[:, :-1])[0][0].log_softmax(-1)
        return float(all_TV[range(ids.shape[1] - 1), ids[0, 1:]].sum())

    model.eval()
    expected = [logp(pair.context + pair.right) - logp(pair.context + pair.wrong) for pair in pairs]
    assert found.margins == pytest.approx(expected, abs=1e-6)
    assert found.nats == pytest.approx(sum(expected) / 5)
    assert found.share == sum(margin > 0 for margin in expected) / 5


def test_pairs_in_several_batches_are_the_same(words, monkeypatch):
    model = fresh("block", len(words)).double()
    whole = score_pairs(model, words, PAIRS["far"])
    monkeypatch.setattr("minimal_pairs.TOKENS_AT_ONCE", 100)
    assert score_pairs(model, words, PAIRS["far"]).margins == pytest.approx(whole.margins, abs=1e-10)


def test_a_tie_is_half_a_preference():
    assert Preference((1.0, 0.0, -3.0, 2.0)).share == 0.625
    assert Preference((1.0, 0.0, -3.0, 2.0)).nats == 0.0
    assert Preference((2.0, 1.0)).values() == {"pairs": 2, "share": 1.0, "nats": 1.5}


@pytest.mark.parametrize(
    ("name", "blind"),
    [("mlp", "far mirrored"), ("bow", "mirrored"), ("attention", "mirrored"), ("positions", ""), ("block", "")],
)
def test_who_does_not_see_what_matters_is_exactly_even(name, blind, words):
    """Whatever its weights: a pair and its mirror then have opposite margins."""
    model = fresh(name, len(words)).double()
    for kind, pairs in PAIRS.items():
        margins = torch.tensor(score_pairs(model, words, pairs).margins)
        even = torch.allclose(margins[::2], -margins[1::2], rtol=0, atol=1e-5)
        assert even == (kind in blind.split()), kind


@pytest.mark.parametrize(
    ("name", "knows"),
    [
        ("mlp", "near"),
        pytest.param("bow", "near far", marks=pytest.mark.long),
        pytest.param("block", "near far mirrored", marks=pytest.mark.long),
    ],
)
def test_a_trained_rung_knows_what_it_can_see_and_nothing_else(name, knows, words):
    model = trained(name, words)
    for kind, pairs in PAIRS.items():
        found = score_pairs(model, words, pairs)
        if kind in knows.split():
            assert found.share >= 0.95 and found.nats > 0.5, kind
        else:
            assert found.share == pytest.approx(0.5, abs=0.05) and found.nats == pytest.approx(0, abs=1e-4), kind


def test_the_sets_ask_what_they_say():
    for name, pairs in PAIRS.items():
        assert len(pairs) == 100
        for pair, mirror in zip(pairs[::2], pairs[1::2], strict=True):
            assert (pair.right, pair.wrong) == (mirror.wrong, mirror.right)
            verb = next(word for word in pair.context.split() if word in KINDS)
            other = next(word for word in mirror.context.split() if word in KINDS)
            assert pair.right.strip() in KINDS[verb] and mirror.right.strip() in KINDS[other]
            assert (sorted(pair.context.split()) == sorted(mirror.context.split())) == (name == "mirrored")
            last = pair.context.split()[-4:]
            assert (last == mirror.context.split()[-4:]) == (name != "near")


def test_the_corpus_teaches_the_rule_and_is_the_same_everywhere():
    assert corpus(3000) == LINES and corpus(5, seed=1) != LINES[:5]
    for line in LINES:
        verb = next(word for word in line.split() if word in MEALS + WORK)
        assert line.rpartition(" with ")[2] in KINDS[verb]
    both = [line for line in LINES if sum(word in KINDS for word in line.split()) == 2]
    assert 0.35 < len(both) / len(LINES) < 0.45
    assert {len(end.split()) for end in SWEET + SHARP} == {2}


def test_pairs_are_read_from_a_file(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"context": "a", "right": " b", "wrong": " c"}\n\n', encoding="utf-8")
    assert read_pairs(path) == [Pair("a", " b", " c")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no pairs"),
        ('{"context": "a", "right": "b"}', "line 1: expected an object"),
        ('{"context": "a", "right": "b", "wrong": 3}', "line 1: expected an object"),
        ('{"context": "a", "right": "b", "wrong": "c"}\nx', "line 2 is no JSON"),
    ],
)
def test_a_broken_file_is_one_line_that_says_where(tmp_path, text, said):
    path = tmp_path / "pairs.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_pairs(path)


def test_pairs_that_cannot_be_scored_are_refused(words, tmp_path):
    model = fresh("bow", len(words))
    with pytest.raises(InputError, match="no pairs"):
        score_pairs(model, words, [])
    with pytest.raises(InputError, match="41 tokens, the model reads at most 32"):
        score_pairs(model, words, [Pair("she " * 40, "tasted", "served")])
    with pytest.raises(InputError, match="pair 1 are the same tokens"):
        score_pairs(model, words, [Pair("she", " zzz", " yyy")])
    with pytest.raises(InputError, match="cannot read"):
        read_pairs(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="cannot make 0 pairs"):
        minimal_pairs(0)
    assert json.dumps(score_pairs(model, words, PAIRS["near"]).values())

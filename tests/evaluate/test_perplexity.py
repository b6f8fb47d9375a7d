"""Perplexity against plain full logits in float64, window by window by hand, and models whose answer is known."""

import json
import math

import numpy as np
import pytest
import torch

from headway.data.documents import Documents, cut_up
from headway.data.token_store import Amount, prepare_documents
from headway.evaluate import perplexity
from headway.evaluate.perplexity import score_store, token_logp
from headway.models import language
from headway.models.gpt import GPT, GPTConfig
from headway.text.tokenizer import END, UNKNOWN, TextOptions, Tokenizer
from small_world import TokenArray

TEXT = "Who's there?\n\nNay, answer me:  stand, and unfold yourself.\nLong live the king — é!\n" * 3
CONFIG = GPTConfig(2, 32, heads=2, dropout=0.3, attention_dropout=0.3, max_length=24)


@pytest.fixture(scope="module")
def letters():
    return Tokenizer.train([TEXT], TextOptions(kind="char"))


@pytest.fixture(scope="module")
def model(letters):
    torch.manual_seed(0)
    model = GPT(CONFIG, len(letters)).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return model


def encode_document(tokenizer, text):
    """Its ids as a store has them, without END."""
    return [i for ids in tokenizer.encode_batch([part.text for part in cut_up(iter([text]))]) for i in ids]


def score_text(model, tokenizer, text, window, stride=None):
    """One text, or its ids: every token of it, the first from an END alone, as at the start of a document."""
    ids = encode_document(tokenizer, text) if isinstance(text, str) else list(text)
    amount, inside = Amount(unknown=ids.count(tokenizer.unknown)), False
    for part in cut_up(iter([text if isinstance(text, str) else tokenizer.decode(text)])):
        inside = amount.add(part, inside)
    return score_store(model, TokenArray(np.asarray(ids), amount=amount), window, stride)


class Uniform:
    """log p = −log V, whatever was before."""

    def __init__(self, size):
        self.size = size

    def score(self, ids_BT, segments_BT=None):
        logp_BT = torch.full(ids_BT.shape, -math.log(self.size), dtype=torch.float64)
        logp_BT[:, 0] = 0
        return logp_BT


def full(model, ids, segments=None):
    """−log p of ids[1:], from all logits at once."""
    model.eval()
    ids_1T = torch.tensor([ids])
    segments_1T = None if segments is None else torch.tensor([segments])[:, :-1]
    logp_TV = model(ids_1T[:, :-1], segments_BT=segments_1T)[0][0].log_softmax(-1)
    return -logp_TV[range(len(ids) - 1), ids[1:]]


def by_hand(model, ids, window, stride):
    """Window after window of END + ids; each scores what the ones before have not."""
    row, done, total = [END, *ids], 1, 0.0
    start = 0
    while done < len(row):
        nll_T = full(model, row[start : start + window + 1])
        end = start + 1 + len(nll_T)
        total += float(nll_T[len(nll_T) - (end - done) :].sum())
        done, start = end, start + stride
    return total


@torch.no_grad()
@pytest.mark.parametrize(
    ("window", "stride"), [(w, s) for w in (1, 7, 24) for s in (1, 5, 7, 24, None) if s is None or s <= w]
)
def test_nll_is_that_of_plain_logits_window_by_window(model, letters, window, stride):
    text = TEXT[:101]
    found = score_text(model, letters, text, window, stride)
    assert found.nll == pytest.approx(by_hand(model, letters.encode(text), window, stride or window), rel=1e-12)
    assert (found.tokens, found.window, found.stride) == (101, window, stride or window)


@torch.no_grad()
def test_one_window_over_a_short_text_is_one_pass(model, letters):
    ids = letters.encode(TEXT[:24])
    found = score_text(model, letters, ids, 24)
    assert found.nll == pytest.approx(float(full(model, [END, *ids]).sum()), rel=1e-12)
    assert found == score_text(model, letters, TEXT[:24], 24)


@torch.no_grad()
@pytest.mark.parametrize("at_once", [1, 5, 100])
@pytest.mark.parametrize("streams", [1, 2, 4])
def test_a_text_read_through_foretells_each_token_from_all_before_it(model, letters, streams, at_once, monkeypatch):
    monkeypatch.setattr(perplexity, "TOKENS_AT_ONCE", at_once)
    ids = letters.encode(TEXT[: 23 if streams == 1 else 45])
    corpus = TokenArray(np.asarray(ids))
    length = -(-len(ids) // streams)
    rows = [ids[start : start + length] for start in range(0, len(ids), length)]
    # A stream that is cut off from the one before it begins with END.
    wanted = sum(float(full(model, [END, *row]).sum()) for row in rows)
    assert perplexity._read_through(model, corpus, streams, len(ids)) == pytest.approx(wanted, rel=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("at_once", [1, 100, 2**24])
def test_score_in_pieces_is_that_of_all_logits(model, letters, at_once, monkeypatch):
    monkeypatch.setattr(language, "LOGITS_AT_ONCE", at_once)
    ids_BT = torch.randint(4, len(letters), (3, 20))
    logp_BT = token_logp(model, ids_BT)
    assert logp_BT.shape == (3, 20) and logp_BT.dtype == torch.float64 and (logp_BT[:, 0] == 0).all()
    for row, ids in zip(logp_BT, ids_BT.tolist(), strict=True):
        torch.testing.assert_close(-row[1:], full(model, ids), rtol=1e-12, atol=1e-12)
    segments_BT = (torch.arange(20) >= 9).long().expand(3, -1)
    apart_BT = token_logp(model, ids_BT, segments_BT)
    for row, ids in zip(apart_BT, ids_BT.tolist(), strict=True):
        torch.testing.assert_close(-row[1:], full(model, ids, segments_BT[0].tolist()), rtol=1e-12, atol=1e-12)
    assert not torch.equal(apart_BT, logp_BT)


def test_the_mode_of_the_model_stays_and_dropout_does_not_count(model, letters):
    model.train()
    first, second = (score_text(model, letters, TEXT, 24) for _ in range(2))
    assert model.training and first == second
    model.eval()
    assert score_text(model, letters, TEXT, 24) == first and not model.training


@pytest.mark.parametrize("stride", [None, 3, 24])
def test_a_uniform_model_has_the_vocabulary_as_its_perplexity(letters, stride):
    size = len(letters)
    flat = GPT(CONFIG, size).double()
    with torch.no_grad():
        flat.output.weight.zero_()
    for model in (Uniform(size), flat):
        found = score_text(model, letters, TEXT, 24, stride)
        assert found.per_token == pytest.approx(math.log(size), rel=1e-14)
        assert found.perplexity == pytest.approx(size, rel=1e-13)
        assert found.bits_per_character == pytest.approx(math.log2(size), rel=1e-13), "a token a character"
        assert found.bits_per_byte == pytest.approx(math.log2(size) * len(TEXT) / len(TEXT.encode()), rel=1e-13)
        words = len(TEXT.split())
        assert found.word_perplexity == pytest.approx(size ** (len(TEXT) / words), rel=1e-12)


def test_the_figures_by_word_and_character_are_the_texts_own_whatever_its_pieces():
    found = []
    for kind in ("char", "bpe", "word"):
        tokenizer = Tokenizer.train([TEXT], TextOptions(kind=kind, size=300, min_count=1, exact=True))
        found.append(score_text(Uniform(9), tokenizer, TEXT, 24))
        assert found[-1].nll == pytest.approx(len(encode_document(tokenizer, TEXT)) * math.log(9))
    assert len({(each.words, each.characters, each.bytes) for each in found}) == 1
    assert len({each.tokens for each in found}) == 3


def corpus(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return Documents.at(path)


@torch.no_grad()
def test_a_store_is_scored_with_its_ends(tmp_path, model, letters):
    texts = ["Who's there?", "Nay, answer me", "king!"]
    store = prepare_documents(corpus(tmp_path / "a.jsonl", texts), letters, tmp_path)
    row = [i for text in texts for i in (*letters.encode(text), END)]
    for stride in (None, 6):
        found = score_store(model, store, 24, stride)
        assert found.nll == pytest.approx(by_hand(model, row, 24, stride or 24), rel=1e-12)
        assert (found.tokens, found.characters, found.words) == (len(row), sum(map(len, texts)), 6)


@torch.no_grad()
def test_with_segments_a_document_is_scored_as_if_it_were_alone(tmp_path, letters):
    """Of positions that only compare: packed documents do not start at place 0."""
    from headway.models.parts import Rotary

    torch.manual_seed(0)
    model = GPT(GPTConfig(2, 32, heads=2, position=Rotary(), max_length=64), len(letters)).double()
    texts = ["Who's there?", "Nay, answer me", "king!"]
    store = prepare_documents(corpus(tmp_path / "a.jsonl", texts), letters, tmp_path)
    alone = sum(float(full(model, [END, *letters.encode(text), END]).sum()) for text in texts)
    assert score_store(model, store, 64, segments=True).nll == pytest.approx(alone, rel=1e-10)
    assert score_store(model, store, 64).nll != pytest.approx(alone, rel=1e-6)


def test_unknown_ids_are_told(letters):
    found = score_text(Uniform(9), letters, "Who? Ω", 24)
    assert found.unknown == 1 and found.values()["unknown"] == 1 and UNKNOWN == 3
    assert set(found.values()) >= {"perplexity", "word perplexity", "bits per character", "bits per byte", "stride"}


def test_white_space_alone_has_no_words(letters):
    assert math.isnan(score_text(Uniform(9), letters, "\n\n", 24).word_perplexity)


def test_a_hopeless_model_is_no_overflow(letters):
    assert score_text(Uniform(1e300), letters, TEXT, 24).word_perplexity == math.inf

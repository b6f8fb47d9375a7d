"""N-grams against slow implementations that follow the definitions word by word, and against themselves."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest
import torch
from rooms import joined

from headway.errors import InputError
from headway.models.counts import count_grams
from headway.models.ngram import NGram, NGramConfig
from headway.models.smoothing import (
    FALLBACK,
    AddK,
    Given,
    MaximumLikelihood,
    ModifiedKneserNey,
    StupidBackoff,
    discounts,
)
from headway.plain import from_plain, to_plain

END, V, NEVER = 2, 14, (0, 1)
POSSIBLE = V - len(NEVER)


def texts(seed: int, count: int = 400, longest: int = 9) -> list[list[int]]:
    """Sentences in which each word leans on the one before it, so that all orders have something to say."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        length, row = rng.integers(1, longest + 1), [int(rng.integers(3, V - 2))]
        while len(row) < length:
            row.append(int(3 + (row[-1] * 2 + rng.geometric(0.5)) % (V - 5)))  # the last two words never come
        made.append(row)
    return made


def stream(rows: list[list[int]]) -> np.ndarray:
    return np.array([END, *(i for row in rows for i in [*row, END])])


def model(order: int, smoothing=ModifiedKneserNey(), seed: int = 0) -> NGram:  # noqa: B008
    return NGram.count(NGramConfig(order, smoothing, END, NEVER), V, stream(texts(seed)))


def raw_counts(rows: list[list[int]], order: int) -> list[Counter]:
    """Of each order 1 … n, by tuples; sentences opened by "*" and ended by END."""
    found = [Counter() for _ in range(order + 1)]
    for row in rows:
        padded = ["*", *row, END]
        for m in range(1, order + 1):
            for at in range(len(padded) - m + 1):
                gram = tuple(padded[at : at + m])
                if gram[-1] != "*":
                    found[m][gram] += 1
    return found


class SlowKneserNey:
    """Chen and Goodman's definition, a dictionary at a time."""

    def __init__(self, rows: list[list[int]], order: int) -> None:
        raw = raw_counts(rows, order)
        self.a = {order: raw[order]}
        for m in range(1, order):
            before = defaultdict(set)
            for gram in raw[m + 1]:
                before[gram[1:]].add(gram[0])
            self.a[m] = {g: c if g[0] == "*" else len(before[g]) for g, c in raw[m].items()}
        self.d = {m: self._discounts(list(self.a[m].values())) for m in self.a}

    @staticmethod
    def _discounts(values: list[int]) -> tuple[float, ...]:
        n = [sum(v == k for v in values) for k in range(5)]
        if not all(n[1:]):
            return FALLBACK
        y = n[1] / (n[1] + 2 * n[2])
        d = tuple(k - (k + 1) * y * n[k + 1] / n[k] for k in (1, 2, 3))
        return d if all(0 < x < k for k, x in enumerate(d, 1)) else FALLBACK

    def p(self, word: int, history: tuple) -> float:
        m = len(history) + 1
        lower = (1 / POSSIBLE if word not in NEVER else 0.0) if m == 1 else self.p(word, history[1:])
        behind = {g[-1]: a for g, a in self.a[m].items() if g[:-1] == history}
        total = sum(behind.values())
        if not total:
            return lower
        taken = {w: self.d[m][min(a, 3) - 1] if a else 0.0 for w, a in behind.items()}
        return (behind.get(word, 0) - taken.get(word, 0.0)) / total + sum(taken.values()) / total * lower


def slow_add_k(rows: list[list[int]], order: int, k: float):
    raw = raw_counts(rows, order)

    def p(word: int, history: tuple) -> float:
        behind = {g[-1]: c for g, c in raw[len(history) + 1].items() if g[:-1] == history}
        return (behind.get(word, 0) + k) / (sum(behind.values()) + k * POSSIBLE) if word not in NEVER else 0.0

    return p


def slow_backoff(rows: list[list[int]], order: int, alpha: float):
    raw = raw_counts(rows, order)

    def score(word: int, history: tuple) -> float:
        behind = {g[-1]: c for g, c in raw[len(history) + 1].items() if g[:-1] == history}
        if word in behind:
            return behind[word] / sum(behind.values())
        if not history:
            return 0.0
        return (alpha if behind else 1.0) * score(word, history[1:])

    return score


def histories(order: int, seed: int) -> list[tuple]:
    """Seen, unseen, short ones at a beginning."""
    rng = np.random.default_rng(seed)
    found = []
    for row in [*texts(seed, 6), *texts(seed + 7, 6)]:
        at = int(rng.integers(0, len(row) + 1))
        found.append(tuple(["*", *row[:at]][-(order - 1) :]) if order > 1 else ())
    return found


SLOW = [
    (ModifiedKneserNey(), lambda rows, order: SlowKneserNey(rows, order).p),
    (AddK(0.3), lambda rows, order: slow_add_k(rows, order, 0.3)),
    (StupidBackoff(0.4), lambda rows, order: slow_backoff(rows, order, 0.4)),
    (MaximumLikelihood(), lambda rows, order: slow_backoff(rows, order, 0.0)),
]


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize(("smoothing", "slow"), SLOW, ids=lambda part: getattr(part, "name", ""))
def test_every_smoothing_is_its_definition(order: int, smoothing, slow) -> None:
    p = slow(texts(0), order)
    if isinstance(smoothing, ModifiedKneserNey) and order > 2:
        assert SlowKneserNey(texts(0), order).d[order] != FALLBACK  # the text is large enough to say
    mine = model(order, smoothing)
    for history in histories(order, 0):
        read = [END if word == "*" else word for word in history]
        # A history that is full and does not open a text has another word before it, which must not matter.
        ids = torch.tensor([[3, *read] if history and history[0] != "*" else read or [END]])
        found = mine(ids)[0][0, -1].exp()
        wanted = torch.tensor([p(word, history) for word in range(V)], dtype=torch.float64)
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("smoothing", [ModifiedKneserNey(), AddK(), MaximumLikelihood()], ids=lambda part: part.name)
def test_words_behind_any_history_sum_to_one(smoothing) -> None:
    mine = model(4, smoothing)
    some = torch.randint(2, V, (1000, 5), generator=torch.Generator().manual_seed(0))
    sums = mine(some)[0][:, -1].exp().sum(-1)
    assert (sums - 1).abs().max() < 1e-6


def test_a_toy_corpus_by_hand() -> None:
    """ "a b", "a b", "a c": Kneser-Ney of order 2 with the discounts of small texts (0.5, 1, 1.5) on paper.

    Bigrams: *a 3, ab 2, ac 1, b. 2, c. 1. Order 1 counts the different words before: a 1 (*), b 1, c 1, end 2 (b, c):
    5 in all, of which 3 · 0.5 + 1 · 1 = 2.5 are taken off and shared among the V = 5 words (and UNKNOWN is one).
    """
    a, b, c = 4, 5, 6
    ids = np.array([END, a, b, END, a, b, END, a, c, END])
    mine = NGram.count(NGramConfig(2, boundary=END, never=NEVER), 7, ids)
    share = Fraction(5, 2) / 5 / 5
    one = {a: Fraction(1, 10) + share, b: Fraction(1, 10) + share, c: Fraction(1, 10) + share}
    one |= {END: Fraction(1, 5) + share, 3: share}
    assert sum(one.values()) == 1
    # Behind a: b twice (1 off), c once (0.5 off), of 3; 1.5/3 is left for order 1.
    behind_a = {word: Fraction(1, 2) * p for word, p in one.items()}
    behind_a[b] += Fraction(2 - 1, 3)
    behind_a[c] += Fraction(1, 3) * Fraction(1, 2)
    assert sum(behind_a.values()) == 1
    found = mine(torch.tensor([[a]]))[0][0, 0].exp()
    for word, p in behind_a.items():
        assert float(found[word]) == pytest.approx(float(p), rel=1e-6)
    assert found[:2].tolist() == [0, 0]
    # The end of "a c": c was seen once, so 1 − 0.5 of 1, and 0.5 of order 1.
    logp = mine.score(torch.tensor([[END, a, c, END]]))
    assert float(logp[0, 3].exp()) == pytest.approx(float(Fraction(1, 2) + Fraction(1, 2) * one[END]), rel=1e-6)


def test_discounts_are_chen_and_goodmans_or_those_of_small_texts() -> None:
    a = np.repeat([1, 2, 3, 4, 9], [40, 18, 9, 5, 30])
    y = 40 / (40 + 36)
    assert discounts(a) == pytest.approx((1 - 2 * y * 18 / 40, 2 - 3 * y * 9 / 18, 3 - 4 * y * 5 / 9))
    assert discounts(np.array([1, 1, 2, 3])) == FALLBACK  # no n-gram four times
    assert discounts(np.repeat([1, 2, 3, 4], [1, 1, 50, 50])) == FALLBACK  # a discount below zero


def test_counts_are_those_of_a_loop_and_never_cross_a_boundary() -> None:
    rows = texts(3)
    raw = raw_counts(rows, 4)
    found = count_grams(stream(rows), V, 4, END)
    words = [(i,) for i in range(V)]
    assert {w: c for w, c in zip(words, found[0].counts_N, strict=True) if c} == raw[1]
    below = [("*",) if i == END else (i,) for i in range(V)]
    for order, grams in enumerate(found[1:], 2):
        spelled = [(*below[h], int(w)) for h, w in zip(grams.contexts_N, grams.words_N, strict=True)]
        assert dict(zip(spelled, grams.counts_N.tolist(), strict=True)) == raw[order]
        assert [gram[0] == "*" for gram in spelled] == grams.opens_N.tolist()
        below = spelled


@pytest.mark.parametrize("order", [1, 2, 4])
def test_scoring_looks_up_what_the_whole_vocabulary_has(order: int) -> None:
    mine = model(order)
    ids = torch.from_numpy(stream(texts(5, 8)))[None]
    logits, _ = mine(ids[:, :-1])
    wanted = logits.gather(-1, ids[:, 1:, None])[..., 0]
    logp, _ = mine.scored(ids)
    assert logp[0, 0] == 0
    torch.testing.assert_close(logp[:, 1:], wanted, rtol=0, atol=1e-12)
    assert torch.equal(mine.score(ids), logp)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_step_by_step_is_all_at_once(order: int) -> None:
    mine = model(order)
    ids = torch.from_numpy(stream(texts(6, 9)))[:40].view(2, 20)
    whole, state_whole = mine(ids)
    state, logits = mine.start(None, 2, ids.device), []
    for at in range(20):
        hidden, state = mine.read(ids[:, at : at + 1], state)
        logits.append(mine.head(hidden))
    assert torch.equal(torch.cat(logits, 1), whole)
    assert torch.equal(state.parts()[0], state_whole.parts()[0])
    # A text told in two pieces, the last token of the first being the first of the second.
    first, state = mine.scored(ids[:, :9])
    second, _ = mine.scored(ids[:, 8:], state)
    assert torch.equal(torch.cat([first, second[:, 1:]], 1), mine.score(ids))


def test_padded_rows_end_behind_their_own_last_token() -> None:
    mine = model(4)
    ids = torch.from_numpy(stream(texts(8, 9)))[:36].view(3, 12)
    lengths = torch.tensor([12, 5, 0])
    _, state = mine.read(ids, lengths_R=lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = mine.start(None, 1, ids.device)
        if length:
            _, alone = mine.read(ids[row : row + 1, :length], alone)
        assert torch.equal(state.parts()[0][row : row + 1], alone.parts()[0])


def test_states_are_reordered_repeated_joined_and_forked() -> None:
    mine = model(3)
    _, state = mine.read(torch.tensor([[END, 4, 5], [END, 6, 7]]))
    kept = state.parts()[0].clone()
    copy, twin = state.fork(), state.fork()
    state.keep(torch.tensor([1, 1, 0]))
    assert torch.equal(state.parts()[0], kept[[1, 1, 0]]) and torch.equal(copy.parts()[0], kept)
    copy.widen(2)
    assert torch.equal(copy.parts()[0], kept[[0, 0, 1, 1]])
    assert torch.equal(joined([twin, state], 0).parts()[0], kept[[0, 1, 1, 1, 0]])
    state.reorder(torch.tensor([2]))
    assert torch.equal(state.parts()[0], kept[[0]])


def test_packed_texts_do_not_look_into_each_other() -> None:
    mine = model(4)
    a, b = torch.tensor([[4, 6, 9, 5]]), torch.tensor([[7, 3, 8]])
    packed, segments = torch.cat([a, b], 1), torch.tensor([[1, 1, 1, 1, 2, 2, 2]])
    torch.testing.assert_close(mine.read(packed, segments_RT=segments)[0][:, 4:], mine.read(b)[0])
    behind_end = mine(torch.tensor([[5, 4, END]]))[0][0, -1]
    assert torch.equal(behind_end, mine(torch.tensor([[END]]))[0][0, -1])


def test_tables_are_moved_but_never_rounded() -> None:
    mine, ids = model(3), torch.from_numpy(stream(texts(5, 8)))[None]
    before = mine.score(ids)
    assert torch.equal(mine.to(torch.bfloat16).score(ids), before) and torch.equal(mine.half().score(ids), before)


def test_what_was_never_counted_has_its_share_and_ids_of_no_text_have_none() -> None:
    found = model(3)(torch.tensor([[END, 5]]))[0][0, -1]
    assert torch.isfinite(found[V - 2 :]).all() and (found[:2] == -math.inf).all()


@pytest.mark.parametrize(
    ("ids", "order", "said"),
    [([END], 2, "nothing to count"), ([END, 5, END], 4, "set model.order=3")],
)
def test_texts_that_cannot_be_counted(ids: list[int], order: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        NGram.count(NGramConfig(order), V, np.array(ids))


def test_settings_that_cannot_be() -> None:
    for make, said in ((lambda: AddK(0), "above 0"), (lambda: StupidBackoff(2.0), "at most 1")):
        with pytest.raises(InputError, match=said):
            make()
    with pytest.raises(InputError, match="read from a file"):
        model(2, Given())
    with pytest.raises(ValueError, match="sizes"):
        NGram(NGramConfig(3, sizes=(4,)), V)


def test_a_config_goes_to_json_and_back() -> None:
    config = model(3, AddK(0.5)).config
    assert from_plain(NGramConfig, to_plain(config)) == config and len(config.sizes) == 2

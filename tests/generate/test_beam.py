"""Beam search against exhaustive search, against greedy decoding by hand, and against itself in other company."""

import itertools
import math
import os
from dataclasses import replace

import pytest
import torch

from headway.batch import TextRow
from headway.errors import InputError
from headway.fast import attention as attention_kernels
from headway.fast import sampling as search_kernels
from headway.fast.jit import triton
from headway.generate import top_k as top_k_module
from headway.generate.engine import Engine
from headway.generate.offline import search_all
from headway.generate.request import Request
from headway.generate.search import Search
from headway.generate.stepper import GraphStepper, PlainStepper
from headway.generate.top_k import top_k
from headway.models.transformer import Transformer, TransformerConfig
from headway.text.tokenizer import END, START, Symbols
from uncaptured import Uncaptured

CPU = torch.device("cpu")
CONFIG = TransformerConfig(encoder_layers=1, decoder_layers=2, width=16, inner=24, heads=2, dropout=0.0, max_length=64)


def model_of(vocabulary, seed, sharp=3.0):
    torch.manual_seed(seed)
    model = Transformer(CONFIG, vocabulary, vocabulary).double().eval()
    with torch.no_grad():
        model.head.weight.mul_(sharp)
    return model


def run(model, sources, search, limit=CONFIG.max_length, **how):
    return search_all(model, sources, search, limit=limit, device=CPU, **how)


def asked(source, search, **more):
    longest = search.longest(len(source), CONFIG.max_length)
    return Request([START], search, longest, inputs=TextRow(source), **more)


def engine_of(model, slots=0, length=0, stepper=None):
    return Engine(model, context=CONFIG.max_length, device=CPU, slots=slots, length=length, stepper=stepper)


def hypotheses(engine):
    """What one step has found, by key."""
    return {found.key: found.hypotheses for found in engine.step()}


def exhaustive(model, source, longest, alpha, min_length=0):
    """Every output up to `longest` tokens with its score, best first, by teacher forcing."""
    vocabulary = model.vocabularies[1]
    found = []
    for n in range(min_length, longest + 1):
        for body in itertools.product([v for v in range(vocabulary) if v != END], repeat=n):
            ids = torch.tensor([[START, *body]])
            with torch.no_grad():
                logp = model(torch.tensor([source]), ids).log_softmax(-1)[0]
            tokens = [logp[t, y].item() for t, y in enumerate([*body, END])]
            found.append((sum(tokens) / (n + 1) ** alpha, list(body), tokens))
    return sorted(found, key=lambda item: -item[0])


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("min_length", [0, 2])
def test_a_wide_beam_is_exhaustive_search(alpha, min_length):
    model = model_of(5, seed=1)
    source, longest = [4, 3, 4, END], 3
    expected = exhaustive(model, source, longest, alpha, min_length)[:6]
    search = Search(
        beam=64,
        length_penalty=alpha,
        best=6,
        finish="bound",
        min_length=min_length,
        max_ratio=0,
        max_extra=longest,
    )
    found = run(model, [source], search)[0]
    assert [h.ids for h in found] == [ids for _, ids, _ in expected]
    for hypothesis, (score, _, tokens) in zip(found, expected, strict=True):
        assert math.isclose(hypothesis.score, score, rel_tol=1e-6)
        assert hypothesis.token_scores == pytest.approx(tokens, abs=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_what_is_never_written_is_left_out_of_every_hypothesis(alpha):
    """The others keep their probabilities: the answer is the best of all hypotheses that do without."""
    model, never, longest = model_of(5, seed=1), (0, 3), 3
    expected = [row for row in exhaustive(model, [4, 3, 4, END], longest, alpha) if not set(never) & set(row[1])][:4]
    search = Search(beam=64, length_penalty=alpha, best=4, finish="bound", max_ratio=0, max_extra=longest)
    (found,) = run(model, [[4, 3, 4, END]], search, symbols=Symbols(never=never))
    assert [h.ids for h in found] == [ids for _, ids, _ in expected]
    assert [h.score for h in found] == pytest.approx([score for score, _, _ in expected], rel=1e-6)


def test_a_target_starts_and_ends_with_the_models_own_symbols():
    model, start, end = model_of(30, seed=2), 9, 17
    ((found,),) = run(model, [[5, 7, end]], Search(beam=1), symbols=Symbols(start, end))
    ids = [start]
    while len(ids) - 1 < Search().longest(3, 64) and ids[-1] != end:
        with torch.no_grad():
            ids.append(int(model(torch.tensor([[5, 7, end]]), torch.tensor([ids]))[0, -1].argmax()))
    assert found.ids == [i for i in ids[1:] if i != end]


def test_beam_of_one_is_greedy():
    model = model_of(30, seed=2)
    sources = [[5, 7, 9, END], [8, END], [11, 12, 13, 14, 15, END]]
    for source, [found] in zip(sources, run(model, sources, Search(beam=1)), strict=True):
        ids = [START]
        while len(ids) - 1 < Search().longest(len(source), 64):
            with torch.no_grad():
                ids.append(int(model(torch.tensor([source]), torch.tensor([ids]))[0, -1].argmax()))
            if ids[-1] == END:
                break
        assert found.ids == [i for i in ids[1:] if i != END]


@pytest.mark.parametrize("finish", ["full", "bound"])
def test_a_greedy_search_ends_with_its_first_end(finish):
    """A longer text would score better here, but it is not what a greedy search finds."""
    model, sources = model_of(30, seed=2), [[5, 7, 9, END]]
    ((endless,),) = run(model, sources, Search(beam=1))
    end = endless.ids[2]
    search = Search(beam=1, length_penalty=3.0, finish=finish)
    ((found,),) = run(model, sources, search, symbols=Symbols(START, end))
    assert found.ids == endless.ids[: endless.ids.index(end)]


def many(count, vocabulary=30):
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 9, (count,), generator=generator).tolist()
    return [[*torch.randint(4, vocabulary, (n,), generator=generator).tolist(), END] for n in lengths]


def same(a, b):
    return a.ids == b.ids and math.isclose(a.score, b.score, rel_tol=1e-6)


@pytest.mark.parametrize("finish", ["full", "bound"])
def test_a_sentence_gives_the_same_alone_and_in_any_batch(finish):
    model, sources = model_of(30, seed=3), many(17)
    search = Search(beam=4, best=3, finish=finish)
    alone = [run(model, [source], search)[0] for source in sources]
    for batch in (5, 100):
        for a, b in zip(alone, run(model, sources, search, batch=batch), strict=True):
            assert len(a) == len(b) == 3 and all(same(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("ahead", [False, True])
def test_sources_admitted_later_step_beside_the_earlier_ones(ahead):
    model, sources = model_of(30, seed=5), many(12)
    search = Search(beam=3, max_ratio=0, max_extra=12)
    alone = [run(model, [source], search)[0][0] for source in sources]
    engine = engine_of(model, slots=8, length=16, stepper=Uncaptured(model) if ahead else None)
    waiting, found, shared, places = list(enumerate(sources)), {}, 0, set()
    longest_first = sorted(waiting, key=lambda keyed: len(keyed[1]))
    while longest_first or len(engine):
        if longest_first and len(engine) < 8:
            shared += bool(len(engine))
            key, source = longest_first.pop()
            engine.admit([(key, asked(source, search))])
            state = engine.pools[0].rows.state
            both = [
                {slot.kv_2CRHK.data_ptr(), slot.spare.data_ptr()} for slot in state["caches"] if slot.spare is not None
            ]
            places |= {frozenset(pair) for pair in both}
        found |= hypotheses(engine)
    assert shared >= 5 and len(places) == CONFIG.decoder_layers  # a cache and its spare change places, and no more
    assert all(same(found[i][0], alone[i]) for i in range(12))


def test_room_of_sources_that_left_serves_those_that_come():
    model, sources = model_of(30, seed=5), many(12)
    search = Search(beam=3, max_ratio=0, max_extra=6)
    alone = [run(model, [source], search)[0][0] for source in sources]
    engine = engine_of(model, slots=2, length=9)
    waiting, found, longest_run = sorted(enumerate(sources), key=lambda keyed: len(keyed[1])), {}, 0
    while waiting or len(engine):
        if waiting and len(engine) < 2:
            key, source = waiting.pop()
            engine.admit([(key, asked(source, search))])
        assert len(engine.pools) == 1
        pool = engine.pools[0]
        found |= hypotheses(engine)
        longest_run = max(longest_run, pool.history.steps)
    assert longest_run > 9  # more steps in one go than the caches have positions
    assert all(same(found[i][0], alone[i]) for i in range(12))


def test_an_empty_engine_has_nothing_to_do_and_an_evicted_search_reports_nothing():
    model, search = model_of(30, seed=5), Search(beam=2, max_ratio=0, max_extra=6)
    engine = engine_of(model)
    assert engine.step() == []
    engine.admit([(0, asked([5, END], search)), (1, asked([6, END], search))])
    engine.step()
    assert engine.evict([(0, 0)]) == [] and len(engine) == 1
    found = {}
    while len(engine):
        found |= hypotheses(engine)
    assert found.keys() == {1} and same(found[1][0], run(model, [[6, END]], search)[0][0])


@pytest.mark.parametrize("evicted", [0, 1])
def test_a_search_that_is_done_waits_for_the_next_steps_and_may_be_evicted_before(evicted):
    model, short, long = model_of(30, seed=5), *(Search(beam=2, max_ratio=0, max_extra=most) for most in (1, 9))
    engine = engine_of(model, stepper=Uncaptured(model))
    engine.admit([(0, replace(asked([5, END], long), max_new=1)), (1, asked([6, END], long))])
    (pool,) = engine.pools
    found = {}
    while not pool.done:
        found |= hypotheses(engine)
    assert not found and pool.table_U["open"].tolist() == [False, True] and engine.evict([(evicted, 0)]) == []
    while len(engine):
        found |= hypotheses(engine)
    alone = run(model, [[6, END]], long) if evicted == 0 else run(model, [[5, END]], short)
    assert found.keys() == {1 - evicted} and same(found[1 - evicted][0], alone[0][0])


def test_finished_rows_leave_the_batch():
    model, sources = model_of(30, seed=6), many(12)
    engine = engine_of(model)
    engine.admit([(i, asked(source, Search(beam=2))) for i, source in enumerate(sources)])
    sizes = []
    while len(engine):
        engine.step()
        sizes.append(len(engine.pools[0].entries))
    assert sizes[0] == 12 and sizes[-1] < 12 and sizes == sorted(sizes, reverse=True)


def test_the_longest_output_is_ended_by_force_and_the_shortest_is_kept():
    model, sources = model_of(30, seed=7), many(6)
    for hypotheses in run(model, sources, Search(beam=3, min_length=4, max_ratio=0, max_extra=5)):
        assert 4 <= len(hypotheses[0].ids) <= 5 and len(hypotheses[0].token_scores) == len(hypotheses[0].ids) + 1


def test_the_shortest_output_wins_over_the_longest_but_not_over_the_model():
    model = model_of(30, seed=7)
    [[found]] = run(model, [[5, END]], Search(beam=2, min_length=9, max_ratio=0, max_extra=4))
    assert len(found.ids) == 9
    with pytest.raises(InputError, match="min_length is 65, this model writes at most 64"):
        run(model, [[5, END]], Search(min_length=65))
    assert Search(max_ratio=1e308).longest(50, 64) == 64


def test_a_model_that_has_diverged_gives_no_hypothesis():
    model = model_of(30, seed=7)
    with torch.no_grad():
        model.head.weight.fill_(math.nan)
    assert run(model, [[5, END], [6, 7, END]], Search(beam=2)) == [[], []]


@pytest.mark.parametrize("width", [7, 64, 1000, 1001, 10_000])
def test_top_k_equals_torch_topk(width):
    torch.manual_seed(0)
    scores = torch.randn(6, width)
    scores[1] = -math.inf
    scores[1, 3] = 0.0
    values, indices = top_k(scores, 5)
    assert torch.equal(values, scores.topk(5).values)
    assert torch.equal(scores.gather(1, indices), values)
    assert all(len(set(row)) == 5 for row in indices.tolist())


class AheadStepper(PlainStepper):
    """Plain steps that are launched before the last ones are read."""

    def ahead(self, pool):
        return True


def all_same(many_a, many_b):
    return all(
        len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
        for a, b in zip(many_a, many_b, strict=True)
    )


SEARCHES = [
    Search(beam=1, max_ratio=3, max_extra=9),
    Search(beam=3, best=3, max_ratio=3, max_extra=9),
    Search(beam=4, best=2, finish="bound", min_length=3, max_ratio=0, max_extra=17),
    Search(beam=2, min_length=56, max_ratio=0, max_extra=100),  # up to the last positions, and steps beyond them
]


@pytest.mark.parametrize("search", SEARCHES)
def test_steps_in_fixed_room_give_what_plain_steps_give(search):
    model, sources = model_of(30, seed=8), many(21)
    plain, stepper = run(model, sources, search), Uncaptured(model)
    for batch in (21, 6):
        assert all_same(plain, run(model, sources, search, stepper=stepper, batch=batch))
    sizes = {key[0] for pools in stepper.idle.values() for pool in pools for key in pool.captured}
    assert sizes <= {1, 2, 4, 8, 16, 32} and len(sizes) > 2


def test_one_run_steps_in_one_pool_though_its_sources_get_shorter():
    """Longest first, and each batch is done before the next: pools by the width of their sources were many, and those
    that had been captured were thrown away for others."""
    model, search = model_of(30, seed=8), Search(beam=2)
    sources = [[4 + i % 20 for i in range(length)] for length in (60, 50, 30, 20, 3, 2)]
    plain, stepper = run(model, sources, search), Uncaptured(model)
    assert all_same(plain, run(model, sources, search, stepper=stepper, batch=2))
    ((pool,),) = stepper.idle.values()
    assert {key[2] for key in pool.captured} == {64, 32, 16}  # a step reads no more than its sources have


@pytest.mark.parametrize("search", SEARCHES)
def test_records_may_be_read_late_without_changing_the_answer(search):
    model, sources = model_of(30, seed=8), many(21)
    plain = run(model, sources, search)
    for batch in (21, 6):
        assert all_same(plain, run(model, sources, search, stepper=AheadStepper(model), batch=batch))


def test_steps_are_launched_before_the_last_ones_are_read():
    model, sources = model_of(30, seed=6), many(12)
    stepper, rounds = AheadStepper(model), []
    engine = engine_of(model, stepper=stepper)
    for _ in range(2):
        engine.admit([(i, asked(source, Search(beam=2))) for i, source in enumerate(sources)])
        pool = engine.pools[-1]
        before = pool.steps
        assert engine.step() == [] and (pool.steps, pool.history.steps) == (before + 2, before + 1)
        found = {}
        while len(engine):
            found |= hypotheses(engine)
            assert pool.steps == pool.history.steps + 1
        rounds.append([found[i] for i in range(12)])
    assert all_same(*rounds) and all_same(rounds[0], run(model, sources, Search(beam=2)))


@pytest.mark.gpu
def test_captured_steps_give_what_plain_steps_give():
    device = torch.device("cuda")
    model, sources = model_of(30, seed=9).to(device), many(50)
    search = Search(beam=4, best=2)
    how = {"limit": CONFIG.max_length, "device": device}
    plain = search_all(model, sources, search, stepper=PlainStepper(model), **how)
    stepper = GraphStepper(model)
    for _ in range(2):
        found = search_all(model, sources, search, stepper=stepper, **how)
        assert all(same(x, y) for a, b in zip(plain, found, strict=True) for x, y in zip(a, b, strict=True))


INTERPRETED = triton is not None and os.environ.get("TRITON_INTERPRET") == "1"
DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), *(["cpu"] if INTERPRETED else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("search", [Search(beam=1), Search(beam=3, best=2, min_length=2)])
def test_a_search_with_the_kernels_gives_what_the_readable_path_gives(search, device, monkeypatch):
    model, sources = model_of(150, seed=10), many(3, 150)
    search = replace(search, max_ratio=0, max_extra=5)
    plain = run(model, sources, search)
    model = model.float().to(device)
    if device == "cpu":
        for module in (top_k_module, attention_kernels):
            monkeypatch.setattr(module, "available", lambda tensor: True)
    taken = []
    for module, name in ((search_kernels, "continuations"), (attention_kernels, "attend_prefix")):
        kernel = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *them, k=kernel, n=name: taken.append(n) or k(*them))
    stepper = (Uncaptured if device == "cpu" else GraphStepper)(model)
    found = search_all(model, sources, search, limit=CONFIG.max_length, device=torch.device(device), stepper=stepper)
    assert set(taken) == {"continuations", "attend_prefix"}
    for a, b in zip(plain, found, strict=True):
        assert [h.ids for h in a] == [h.ids for h in b]
        assert [h.score for h in a] == pytest.approx([h.score for h in b], abs=1e-4)

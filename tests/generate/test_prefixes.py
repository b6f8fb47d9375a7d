"""Prompts that begin alike are read once, long ones some tokens at a time: with the same texts as without."""

import numpy as np
import pytest
import torch

from headway.generate import prefixes
from headway.generate.engine import Engine
from headway.generate.prefixes import LEAST_SHARED, Prefixes
from headway.generate.prompts import PromptMemoryError
from headway.generate.request import Request
from headway.generate.sampling import Sampling
from headway.models import parts
from headway.models.gpt import GPT, GPTConfig
from headway.models.recurrent import Recurrent, RecurrentConfig

CPU, VOCABULARY, CONTEXT = torch.device("cpu"), 30, 120
POSITIONS = {"learned": parts.Learned(), "rotary": parts.Rotary(), "alibi": parts.LinearBias()}


def gpt(position="learned"):
    torch.manual_seed(3)
    model = GPT(GPTConfig(2, 16, heads=2, max_length=CONTEXT, tied=False, position=POSITIONS[position]), VOCABULARY)
    with torch.no_grad():
        model.output.weight.mul_(12)
    return model.double().eval()


def recurrent():
    torch.manual_seed(3)
    model = Recurrent(RecurrentConfig(layers=2, width=12), VOCABULARY)
    with torch.no_grad():
        model.output.weight.mul_(12)
    return model.double().eval()


def words(count, seed):
    return np.random.default_rng(seed).integers(4, VOCABULARY, count).tolist()


def asked(*texts, new=8, samples=1):
    return [
        Request(text, Sampling(1.0), max_new=new, stops=frozenset(), seed=at, samples=samples)
        for at, text in enumerate(texts)
    ]


def engine_of(model, **how):
    return Engine(model, context=CONTEXT, device=CPU, slots=8, length=CONTEXT, **how)


def written(engine, requests, first=0):
    """The ids of each request's samples, admitted together."""
    engine.admit([(first + at, request) for at, request in enumerate(requests)])
    found = {}
    while len(engine):
        for token in engine.step():
            if token.written is not None:
                found[token.key, token.sample] = token.written.ids
    return [found[first + at, sample] for at, one in enumerate(requests) for sample in range(one.samples)]


@pytest.mark.parametrize("chunk", [0, 1, 7])
@pytest.mark.parametrize("make", [*(lambda p=p: gpt(p) for p in POSITIONS), recurrent], ids=[*POSITIONS, "recurrent"])
def test_prompts_that_begin_alike_give_what_they_give_alone(make, chunk):
    model, system = make(), words(50, 0)
    rounds = [
        asked([*system, *words(5, 1)]),
        asked([*system, *words(9, 2)], [*system, *words(30, 3)], words(20, 4), [*words(40, 5), *words(50, 6)]),
        asked([*system, *words(9, 2), *words(20, 7)], system, [*words(40, 5), *words(3, 8)], [5], samples=2),
    ]
    together = engine_of(model, prefixes=Prefixes(1 << 24), chunk=chunk)
    for number, requests in enumerate(rounds):
        alone = [ids for one in requests for ids in written(engine_of(model), [one])]
        assert written(together, requests, 10 * number) == alone
    assert (together.prefixes.shared > 150) == isinstance(model, GPT)


def test_only_what_differs_is_read(monkeypatch):
    model, system, seen = gpt(), words(60, 0), []
    read = type(model).read
    monkeypatch.setattr(
        type(model), "read", lambda self, ids, *a, **k: seen.append(tuple(ids.shape)) or read(self, ids, *a, **k)
    )
    engine = engine_of(model, prefixes=Prefixes(1 << 24))
    engine.admit(list(enumerate(asked(*([*system, *words(6, seed)] for seed in range(1, 5))))))
    assert seen == [(1, 65), (3, 5)]
    assert (engine.prefixes.asked, engine.prefixes.shared) == (4 * 65, 3 * 60)


def test_prompts_as_long_as_the_context_share_no_more_than_fits():
    """A short rest beside a long one: padding of the short one must not lie behind the last position."""
    model, system = gpt("learned"), words(100, 0)
    engine = engine_of(model, prefixes=Prefixes(1 << 24))
    written(engine, asked([*system, 5]))
    requests = asked([*system, *words(19, 1)], [*system[:40], *words(70, 2)], new=1)
    alone = [ids for one in requests for ids in written(engine_of(model), [one])]
    assert written(engine, requests, 10) == alone


def test_rows_are_written_on_while_a_long_prompt_is_read():
    model = gpt()
    engine = engine_of(model, chunk=10)
    first, second = asked(words(5, 1), words(100, 2), new=20)
    engine.admit([(0, first)])
    assert [token.key for token in engine.step()] == [0]
    engine.admit([(1, second)])
    keys = [sorted(token.key for token in engine.step()) for _ in range(11)]
    assert keys == [[0]] * 9 + [[0, 1]] * 2
    assert len(engine) == 2


def shapes(monkeypatch, model):
    """Of what the model reads from here on."""
    seen, read = [], type(model).read

    def watched(self, ids, *given, **how):
        seen.append(tuple(ids.shape))
        return read(self, ids, *given, **how)

    monkeypatch.setattr(type(model), "read", watched)
    return seen


def test_a_long_prompt_is_read_in_whole_parts_where_no_row_waits(monkeypatch):
    model = gpt()
    seen = shapes(monkeypatch, model)
    engine = engine_of(model, chunk=10)
    engine.admit(list(enumerate(asked(words(100, 2)))))
    engine.step()
    assert seen[:10] == [(1, 10)] * 9 + [(1, 9)]


def test_a_prompt_that_nobody_waits_for_is_not_read_to_its_end(monkeypatch):
    model = gpt()
    engine = engine_of(model, chunk=10)
    first, second = asked(words(5, 1), words(100, 2), samples=2)
    engine.admit([(0, first)])
    engine.step()
    engine.admit([(1, second)])
    engine.step()
    seen = shapes(monkeypatch, model)
    engine.evict([(1, 0)])
    assert len(engine) == 4
    engine.evict([(1, 1)])
    assert len(engine) == 2
    engine.step()
    assert (1, 10) not in seen


def test_without_memory_for_its_rows_a_prompt_leaves_none(monkeypatch):
    model = gpt()
    engine = engine_of(model, chunk=200)
    first, second = asked(words(5, 1), words(50, 2))
    engine.admit([(0, first)])
    engine.step()
    engine.admit([(1, second)])
    with monkeypatch.context() as patch:
        patch.setattr("headway.generate.rows.Rows.insert", lambda *a: (_ for _ in ()).throw(torch.OutOfMemoryError()))
        with pytest.raises(PromptMemoryError):
            engine.step()
    assert len(engine) == 1 and {token.key for token in engine.step()} == {0}


def test_the_longest_of_what_several_share_is_read_first(monkeypatch):
    model, system = gpt(), words(80, 0)
    seen = shapes(monkeypatch, model)
    engine = engine_of(model, prefixes=Prefixes(1 << 24))
    engine.admit(list(enumerate(asked(system[:33], [*system, *words(5, 1)], [*system, *words(5, 2)]))))
    assert engine.prefixes.shared == 32 + 80 and seen[0] == (1, 84)


def test_what_is_too_large_is_not_kept_and_drops_nothing():
    model, text = gpt(), words(40, 0)
    engine = engine_of(model, prefixes=Prefixes(1 << 24))
    written(engine, asked(text, new=1))
    engine.prefixes.most = engine.prefixes.size
    written(engine, asked([*text, *words(40, 1)], new=1))
    assert engine.prefixes.known(text[:-1]) == 39


def test_a_request_that_leaves_while_it_is_read_is_not_written():
    model = gpt()
    engine = engine_of(model, chunk=10)
    first, second = asked(words(5, 1), words(100, 2), new=20)
    alone = written(engine_of(model), [first])
    engine.admit([(0, first)])
    tokens = engine.step()
    engine.admit([(1, second)])
    tokens += engine.step()
    assert engine.evict([(1, 0)]) == []
    while len(engine):
        tokens += engine.step()
    assert {token.key for token in tokens} == {0}
    assert [token.written.ids for token in tokens if token.written] == alone


def test_without_memory_for_a_prompt_the_others_are_written_on(monkeypatch):
    model = gpt()
    engine = engine_of(model, chunk=10)
    first, second = asked(words(5, 1), words(100, 2))
    alone = written(engine_of(model), [first])
    engine.admit([(0, first)])
    tokens = engine.step()
    engine.admit([(1, second)])
    start = type(model).start
    with monkeypatch.context() as patch:
        patch.setattr(type(model), "start", lambda *a, **k: (_ for _ in ()).throw(torch.OutOfMemoryError()))
        with pytest.raises(PromptMemoryError) as error:
            engine.step()
    assert error.value.keys == [1] and type(model).start is start
    while len(engine):
        tokens += engine.step()
    assert [token.written.ids for token in tokens if token.written] == alone


def test_what_was_used_last_stays_and_what_is_covered_goes():
    model = gpt()
    texts = [words(40, seed) for seed in range(4)]
    engine = engine_of(model, prefixes=Prefixes(1 << 24))
    written(engine, asked(texts[0], new=1))
    one = engine.prefixes.size
    assert len(engine.prefixes.entries) == 1 and one > 0
    written(engine, asked([*texts[0], *words(20, 9)], new=1))
    assert [len(entry.ids) for entry in engine.prefixes.entries.values()] == [59]
    engine = engine_of(model, prefixes=Prefixes(2 * one))
    for text in (texts[0], texts[1], texts[0], texts[2]):
        written(engine, asked(text, new=1))
    assert [bool(engine.prefixes.known(text)) for text in texts] == [True, False, True, False]
    assert engine.prefixes.size == 2 * one
    engine.prefixes.clear()
    assert not engine.prefixes.entries and not engine.prefixes.known(texts[0])


def test_short_beginnings_are_not_looked_for():
    model, system = gpt(), words(LEAST_SHARED - 1, 0)
    engine = engine_of(model, prefixes=Prefixes(1 << 24))
    written(engine, asked([*system, *words(30, 1)], new=1))
    written(engine, asked([*system, *words(30, 2)], new=1))
    assert engine.prefixes.shared == 0
    assert prefixes.alike(np.array([1, 2, 3]), np.array([1, 2])) == 2

"""Captured steps against plain ones. On a CPU a graph is replayed by taking its step again over the same room."""

import os
from dataclasses import replace

import pytest
import torch
from test_samples import CONTEXT, CPU, SETTINGS, V, addresses, equal, many, mixed, model_of, run
from torch import nn

from headway.fast import attention as nn_kernels
from headway.fast import product as product_kernels
from headway.fast import step as step_kernels
from headway.fast.jit import triton
from headway.generate import samples as samples_module
from headway.generate.engine import Engine
from headway.generate.offline import generate_all
from headway.generate.request import Request
from headway.generate.sample_pool import SamplePool
from headway.generate.samples import predict
from headway.generate.sampling import Sampling
from headway.generate.stepper import GraphStepper, PlainStepper, stepper_for
from headway.models import parts
from headway.models.protocols import Embedded, Steps
from headway.nn.state import State
from headway.text.tokenizer import END
from uncaptured import Uncaptured

INTERPRETED = triton is not None and os.environ.get("TRITON_INTERPRET") == "1"
DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), *(["cpu"] if INTERPRETED else [])]


def pools(stepper):
    return [pool for some in stepper.idle.values() for pool in some]


def all_equal(found, expected):
    assert all(equal(a, b) for a, b in zip(found, expected, strict=True))
    return True


@pytest.mark.parametrize("sampling", SETTINGS, ids=range(len(SETTINGS)))
@pytest.mark.parametrize("batch", [1, 3, 20])
def test_captured_steps_write_what_plain_steps_write(sampling, batch):
    model = model_of(1)
    prompts = [Request(ids, sampling, max_new=3 + 5 * (i % 4), seed=i, top=i % 3) for i, ids in enumerate(many(11))]
    stepper = Uncaptured(model)
    plain = run(model, prompts)
    found = run(model, prompts, batch=batch, stepper=stepper)
    assert all_equal(found, plain) and all(pool.captured for pool in pools(stepper))
    for a, b in zip(plain, found, strict=True):
        assert [[i for i, _ in top] for w in a for top in w.top] == [[i for i, _ in top] for w in b for top in w.top]
    before = {pool: addresses(pool) for pool in pools(stepper)}
    graphs = {pool: set(pool.captured) for pool in pools(stepper)}
    assert all_equal(run(model, prompts, batch=batch, stepper=stepper), plain)
    assert pools(stepper) == list(before) and all(addresses(pool) == places for pool, places in before.items())
    assert all(set(pool.captured) == keys for pool, keys in graphs.items())


def test_rows_that_differ_in_everything_join_leave_and_stop_inside_the_steps():
    model, prompts = model_of(3), mixed(24)
    plain, stepper = run(model, prompts), Uncaptured(model)
    for batch in (4, 9, 100):
        assert all_equal(run(model, prompts, batch=batch, stepper=stepper), plain)
    # Some stopped in the midst of steps that were already taken.
    assert {len(w.ids) % SamplePool.at_once for samples in plain for w in samples if w.ended == "stop"} > {
        1,
        2,
        3,
    }


def test_rows_join_a_running_engine_whose_steps_are_ahead():
    model, prompts = model_of(5), mixed(20)
    alone = [run(model, [prompt])[0] for prompt in prompts]
    engine = Engine(model, context=CONTEXT, device=CPU, slots=64, length=CONTEXT, stepper=Uncaptured(model))
    waiting, found, sizes, places = list(enumerate(prompts)), {}, [], set()
    while waiting or len(engine):
        if waiting:
            engine.admit([waiting.pop(0)])
            places.add(tuple(addresses(engine.pools[0])))
        for token in engine.step():
            if token.written:
                found[token.key, token.sample] = token.written
        sizes.append(len(engine))
    assert max(sizes) > 5 and engine.step() == [] and len(places) == 1
    for key, samples in enumerate(alone):
        assert equal(samples, [found[key, sample] for sample in range(len(samples))])


def test_engines_that_take_turns_have_a_pool_each_and_hand_it_on():
    model = model_of(9)
    prompts = [Request([4, 5 + i, 6], Sampling(), max_new=30, seed=i, stops=frozenset()) for i in range(3)]
    plain, stepper, found = run(model, prompts), Uncaptured(model), {}
    engines = [Engine(model, context=CONTEXT, device=CPU, stepper=stepper) for _ in prompts]
    for key, engine in enumerate(engines):
        engine.admit([(key, prompts[key])])
    while any(map(len, engines)):
        for engine in engines:
            found |= {token.key: [token.written] for token in engine.step() if token.written}
    assert all_equal([found[key] for key in range(3)], plain)
    for engine in engines:
        engine.close()
    known = pools(stepper)
    assert len(known) == 3 and all_equal(run(model, prompts[:1], stepper=stepper), plain[:1])
    assert {*pools(stepper)} == {*known}


def test_every_step_tells_one_token_of_a_row_though_many_are_taken():
    model = model_of(7)
    prompts = [Request(ids, max_new=21, stops=frozenset(), seed=i) for i, ids in enumerate(many(3))]
    stepper = Uncaptured(model)
    engine = Engine(model, context=CONTEXT, device=CPU, stepper=stepper)
    engine.admit(list(enumerate(prompts)))
    steps = []
    while len(engine):
        steps.append(engine.step())
    assert [len(step) for step in steps] == [3] * 21
    found = [[token.written] for token in sorted(steps[-1], key=lambda token: token.key)]
    assert all_equal(found, run(model, prompts))


def test_a_row_is_evicted_while_its_next_tokens_are_already_written():
    model = model_of(6)
    prompts = [Request(ids, max_new=14, stops=frozenset(), seed=i) for i, ids in enumerate(many(4))]
    engine = Engine(model, context=CONTEXT, device=CPU, stepper=Uncaptured(model))
    engine.admit(list(enumerate(prompts)))
    engine.step(), engine.step()
    (gone,) = engine.evict([(2, 0)])
    assert len(gone.ids) == 2 and gone.ended == "stop"
    found = {token.key: token.written for _ in range(12) for token in engine.step() if token.written}
    assert found.keys() == {0, 1, 3}
    plain = run(model, prompts)
    assert all(equal([found[key]], plain[key]) for key in found)


def test_rows_that_outgrow_the_context_go_on_in_their_window():
    model = model_of(11)
    long = [3 + (7 * i) % 25 for i in range(CONTEXT + 13)]
    prompts = [
        Request(ids, SETTINGS[i % 5], max_new=12, window=i != 5, seed=i, samples=1 + i % 2, stops=frozenset())
        for i, ids in enumerate([long, long[:CONTEXT], long[: CONTEXT - 5], long[:4], long[:1], long[: CONTEXT - 3]])
    ]
    plain = run(model, prompts)
    for batch in (2, 20):
        assert all_equal(run(model, prompts, batch=batch, stepper=Uncaptured(model)), plain)
    assert plain[-1][0].ended == "context" and len(plain[2][0].ids) == 12


@pytest.mark.parametrize("position", [parts.Rotary(), parts.LinearBias(), parts.RelativeBias(), parts.Sinusoidal()])
def test_every_position_is_captured_alike(position):
    model = model_of(2, position=position, shared_heads=1)
    prompts = [Request(ids, Sampling(), max_new=10, seed=i) for i, ids in enumerate(many(5))]
    assert all_equal(run(model, prompts, stepper=Uncaptured(model)), run(model, prompts))


def test_a_prompt_of_one_token_and_logits_that_are_no_numbers():
    model = model_of(4)
    prompts = [Request([5], max_new=9), Request([7], Sampling(0), max_new=20)]
    assert all_equal(run(model, prompts, stepper=Uncaptured(model)), run(model, prompts))
    with torch.no_grad():
        model.output.weight.fill_(torch.nan)
    for sampling in SETTINGS:
        [[written]] = run(model, [Request([5, 6], sampling)], stepper=Uncaptured(model))
        assert written.ids == [] and written.ended == "nothing"


def test_idle_pools_are_few_and_the_oldest_leave():
    model = model_of(5)
    stepper = Uncaptured(model)
    for rows in (1, 2, 3, 5, 9, 17, 33):
        for temperature in (0.5, 0.6, 0.7):
            prompts = [Request([4, 5, 6], Sampling(temperature), max_new=4, seed=seed) for seed in range(rows)]
            assert all_equal(run(model, prompts, batch=64, stepper=stepper), run(model, prompts, batch=64))
    assert len(pools(stepper)) == GraphStepper.most
    assert all(len(pool.captured) % 3 == 0 for pool in pools(stepper))


class Bigram(Steps):
    """The least language model: a table, and a state that has nothing to keep at any address."""

    def __init__(self):
        super().__init__(None, V)
        torch.manual_seed(0)
        self.table = nn.Parameter(3 * torch.randn(V, V, dtype=torch.float64))

    def start(self, inputs, rows, device, room=None):
        return State({})

    def embed(self, ids_RT, state, segments_RT=None, lengths_R=None):
        return Embedded(self.table[ids_RT])

    def hidden(self, embedded, state):
        return embedded.x_RTD, state

    def head(self, hidden_RTD, state=None):
        return hidden_RTD


@pytest.mark.parametrize("capturable", [False, True])
def test_a_state_that_holds_nothing_and_a_model_that_declines_to_be_captured(capturable):
    model, prompts = Bigram(), mixed(7)
    model.capturable = capturable
    stepper = Uncaptured(model)
    assert all_equal(run(model, prompts, stepper=stepper), run(model, prompts)) and bool(pools(stepper)) == capturable


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # torch's own, where its compiler is loaded
def test_a_compiled_way_to_the_logits_gives_the_same_texts():
    """Through torch.compile's tracing, with the operations left as they are: what it cannot trace would fail."""
    model = model_of(8)
    prompts = [Request(ids, SETTINGS[i], max_new=12, seed=i) for i, ids in enumerate(many(4))]
    traced = torch.compile(predict, dynamic=False, backend="eager", fullgraph=True)
    stepper = Uncaptured(model, traced)
    assert all_equal(run(model, prompts, stepper=stepper), run(model, prompts))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("traced", [False, True])
def test_steps_through_the_kernels_write_what_plain_steps_write(traced, device, monkeypatch):
    """All around the blocks, products, attention and choices by the kernels; in a traced step those that may be."""
    model = model_of(3).float()
    prompts = [Request(ids, SETTINGS[i % 3], max_new=6, seed=i, top=i % 2) for i, ids in enumerate(many(5))]
    plain = run(model, prompts)
    if device == "cpu":
        for module in (samples_module, nn_kernels, product_kernels, step_kernels):
            monkeypatch.setattr(module, "available", lambda tensor: tensor.dtype == torch.float32)
        if not traced:
            monkeypatch.setattr(step_kernels, "advance", step_kernels.launch_advance)
    way = torch.compile(predict, dynamic=False, backend="aot_eager", fullgraph=True) if traced else predict
    stepper = (Uncaptured if device == "cpu" else GraphStepper)(model.to(device), way)
    for batch in (1, 5):
        how = {"context": CONTEXT, "device": torch.device(device), "batch": batch, "stepper": stepper}
        found = generate_all(model, prompts, **how)
        assert [[w.ids for w in samples] for samples in found] == [[w.ids for w in samples] for samples in plain]
        for a, b in zip(found, plain, strict=True):
            assert a[0].logps == pytest.approx(b[0].logps, abs=1e-3)


def test_who_takes_which_stepper():
    model = model_of(1)
    assert isinstance(stepper_for(model, CPU), PlainStepper)
    assert isinstance(stepper_for(model, torch.device("cuda")), GraphStepper)
    assert isinstance(stepper_for(model, torch.device("cuda"), "plain"), PlainStepper)
    assert stepper_for(model, torch.device("cuda"), "compile").predict is not predict


@pytest.mark.gpu
@pytest.mark.parametrize("speed", ["graphs", "compile"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_captured_graph_writes_what_plain_steps_write(speed, dtype):
    device, model = torch.device("cuda"), model_of(3).to(dtype).cuda()
    prompts = [replace(prompt, top=2) for prompt in mixed(24)]
    prompts += [Request(ids, Sampling(0), max_new=20, stops=frozenset({END})) for ids in many(4)]
    how = {"context": CONTEXT, "device": device}
    plain = generate_all(model, prompts, **how, stepper=PlainStepper(model))
    stepper = stepper_for(model, device, speed)
    for batch in (1, 9, 64):
        found = generate_all(model, prompts, **how, batch=batch, stepper=stepper)
        same = [[w.ids for w in a] == [w.ids for w in b] for a, b in zip(plain, found, strict=True)]
        # In float32 two ways to add may choose another token where two are as likely; in float64 they do not.
        assert all(same) if dtype == torch.float64 else sum(same) >= 0.9 * len(same)
    assert any(pool.captured for pool in pools(stepper))


@pytest.mark.gpu
@pytest.mark.parametrize("sampling", SETTINGS, ids=range(len(SETTINGS)))
def test_every_chain_can_be_captured(sampling):
    device, model = torch.device("cuda"), model_of(4).cuda()
    prompts = [Request(ids, sampling, max_new=12, seed=i, top=2) for i, ids in enumerate(many(5))]
    how = {"context": CONTEXT, "device": device}
    plain = generate_all(model, prompts, **how, stepper=PlainStepper(model))
    found = generate_all(model, prompts, **how, stepper=GraphStepper(model))
    assert [[w.ids for w in a] for a in plain] == [[w.ids for w in b] for b in found]

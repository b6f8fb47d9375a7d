"""Streams against decoding by hand without a cache, and against themselves in other company."""

import math
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headway.errors import InputError
from headway.generate import chain, noise
from headway.generate.engine import Engine
from headway.generate.offline import generate_all
from headway.generate.request import Request
from headway.generate.sampling import Bias, Sampling
from headway.models import parts
from headway.models.gpt import GPT, GPTConfig
from headway.text.tokenizer import END

CPU = torch.device("cpu")
V, CONTEXT = 30, 40
CONFIG = GPTConfig(2, 16, heads=2, max_length=CONTEXT)
SETTINGS = [
    Sampling(0),
    Sampling(),
    Sampling(0.8, top_k=12, top_p=0.9, repetition=1.2),
    Sampling(1.4, min_p=0.02, typical=0.95, presence=0.4, frequency=0.2, no_repeat=3),
    Sampling(0, repetition=1.5, bias=(Bias((7,), 1.0), Bias((5, 6), -math.inf))),
]
each_setting = pytest.mark.parametrize("sampling", SETTINGS, ids=range(len(SETTINGS)))


def model_of(seed=0, sharp=40.0, **config):
    """Untied, so that its head can be made sharp enough for its choices to differ."""
    torch.manual_seed(seed)
    model = GPT(replace(CONFIG, tied=False, **config), V).double().eval()
    with torch.no_grad():
        model.output.weight.mul_(sharp)
    return model


def run(model, prompts, **how):
    return generate_all(model, prompts, context=CONTEXT, device=CPU, **how)


def many(count, most=20):
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, most, (count,), generator=generator).tolist()
    return [torch.randint(3, V, (n,), generator=generator).tolist() for n in lengths]


def mixed(count):
    """Prompts that differ in everything that a row may have of its own."""
    return [
        Request(ids, SETTINGS[i % 5], max_new=3 + 5 * (i % 4), stops=frozenset({END, i % 7}), samples=1 + i % 3, seed=i)
        for i, ids in enumerate(many(count))
    ]


def by_hand(model, prompt, sample=0):
    """The whole text is read anew for each token. Returns what a `Written` holds."""
    ids, start = list(prompt.given), len(prompt.given)
    stream = noise.streams(torch.tensor([prompt.seed]), torch.tensor([sample]))
    logps, top = [], []
    while True:
        with torch.no_grad():
            logits = model(torch.tensor([ids[-CONTEXT:]]))[0][:, -1]
        past = chain.Past(torch.tensor([ids]), torch.tensor([len(ids)]), torch.tensor([start]))
        uniform = noise.uniforms(stream, torch.tensor([len(ids) - start]))
        token = int(noise.draw(chain.apply(prompt.choose.chain(), logits, past), uniform))
        logp = logits.log_softmax(-1)[0]
        logps.append(float(logp[token]))
        top.append([(int(i), float(logp[i])) for i in logp.argsort(descending=True)[: prompt.top]])
        if token in prompt.stops:
            return ids[start:], logps, top, "stop"
        ids.append(token)
        if len(ids) - start == prompt.max_new:
            return ids[start:], logps, top, "length"
        if len(ids) > CONTEXT and not prompt.window:
            return ids[start:], logps, top, "context"


def addresses(pool):
    """Where everything lies that a pool holds."""
    state = pool.rows.state
    caches = [slot.kv_2CRHK for slot in state if hasattr(slot, "kv_2CRHK")]
    tensors = [*pool.rows.tensors().values(), *state.parts(), *caches]
    return [tensor.data_ptr() for tensor in tensors if tensor is not None]


def same(written, expected):
    ids, logps, top, ended = expected
    assert (written.ids, written.ended) == (ids, ended)
    assert written.logps == pytest.approx(logps, abs=1e-6)
    assert [[i for i, _ in some] for some in written.top] == [[i for i, _ in some] for some in top]
    return True


def equal(a, b):
    assert [w.ids for w in a] == [w.ids for w in b] and [w.ended for w in a] == [w.ended for w in b]
    assert all(x.logps == pytest.approx(y.logps, abs=1e-9) for x, y in zip(a, b, strict=True))
    return True


@each_setting
def test_cached_equals_uncached(sampling):
    model = model_of(1)
    prompts = [Request(ids, sampling, max_new=15, seed=i, top=3) for i, ids in enumerate(many(8))]
    found = run(model, prompts)
    assert all(same(written, by_hand(model, p)) for p, [written] in zip(prompts, found, strict=True))
    assert len({tuple(written.ids) for [written] in found}) == 8


@pytest.mark.parametrize("position", [parts.Rotary(), parts.LinearBias(), parts.RelativeBias(), parts.Sinusoidal()])
def test_every_position_steps_alike(position):
    model = model_of(2, position=position, shared_heads=1)
    prompts = [Request(ids, Sampling(), max_new=10, seed=i) for i, ids in enumerate(many(5))]
    found = run(model, prompts)
    assert all(same(written, by_hand(model, p)) for p, [written] in zip(prompts, found, strict=True))


@pytest.mark.parametrize("batch", [1, 4, 9, 100])
def test_a_row_gives_the_same_whatever_else_is_in_the_batch(batch):
    model, prompts = model_of(3), mixed(24)
    alone = [run(model, [prompt])[0] for prompt in prompts]
    assert all(equal(a, b) for a, b in zip(alone, run(model, prompts, batch=batch), strict=True))
    backwards = run(model, prompts[::-1], batch=batch)[::-1]
    assert all(equal(a, b) for a, b in zip(alone, backwards, strict=True))
    assert {written.ended for samples in alone for written in samples} == {"stop", "length"}


def test_samples_of_a_prompt_share_its_reading_and_are_each_as_alone():
    model = model_of(4)
    prompts = [
        Request(ids, Sampling(), max_new=8, samples=n, seed=5) for ids, n in zip(many(3), (4, 1, 3), strict=True)
    ]
    read = []
    model.embed.register_forward_hook(lambda module, inputs, output: read.append(tuple(inputs[0].shape)))
    found = run(model, prompts)
    longest = max(len(prompt.given) for prompt in prompts)
    assert read[:2] == [(3, longest - 1), (8, 1)]
    for prompt, samples in zip(prompts, found, strict=True):
        assert all(same(w, by_hand(model, prompt, sample)) for sample, w in enumerate(samples))
    assert len({tuple(written.ids) for written in found[0]}) == 4


def test_rows_join_a_running_engine_and_leave_it():
    model, prompts = model_of(5), mixed(20)
    alone = [run(model, [prompt])[0] for prompt in prompts]
    engine = Engine(model, context=CONTEXT, device=CPU, slots=40, length=CONTEXT)
    waiting, found, sizes, places = list(enumerate(prompts)), {}, [], set()
    while waiting or len(engine):
        if waiting:
            engine.admit([waiting.pop(0)])
        for token in engine.step():
            if token.written:
                found[token.key, token.sample] = token.written
        sizes.append(len(engine))
        places.add(tuple(addresses(engine.pools[0])))
    assert max(sizes) > 5 and len(engine) == 0 and engine.step() == []
    assert len(places) == 1  # no tensor was moved or made anew when a row joined or left
    for key, samples in enumerate(alone):
        assert equal(samples, [found[key, sample] for sample in range(len(samples))])


def test_what_does_not_fit_the_running_pool_gets_one_of_its_own():
    model = model_of(5)
    first, second = Request([4, 5], max_new=6, stops=frozenset()), Request([4, 5, 6], max_new=6, stops=frozenset())
    engine = Engine(model, context=CONTEXT, device=CPU)
    engine.admit([(0, first)])
    engine.step()
    engine.admit([(1, second)])
    assert len(engine.pools) == 2
    found = {token.key: token.written for _ in range(6) for token in engine.step() if token.written}
    assert same(found[0], by_hand(model, first)) and same(found[1], by_hand(model, second))
    assert engine.step() == [] and not engine.pools


def test_a_row_is_evicted_at_will_and_the_others_do_not_notice():
    model = model_of(6)
    prompts = [Request(ids, max_new=12, stops=frozenset(), seed=i) for i, ids in enumerate(many(4))]
    engine = Engine(model, context=CONTEXT, device=CPU)
    engine.admit(list(enumerate(prompts)))
    engine.step(), engine.step()
    (gone,) = engine.evict([(2, 0)])
    assert len(gone.ids) == 2 and gone.ended == "stop" and engine.evict([(2, 0)]) == []
    found = {token.key: token.written for _ in range(10) for token in engine.step() if token.written}
    assert found.keys() == {0, 1, 3}
    assert all(same(found[key], by_hand(model, prompts[key])) for key in found)


def test_tokens_of_the_steps_join_to_what_was_written():
    model, prompts = model_of(7), mixed(6)
    seen = {}

    def watch(token):
        seen.setdefault((token.key, token.sample), []).append(token.id)
        return False

    for key, samples in enumerate(run(model, prompts, ends=watch)):
        for sample, written in enumerate(samples):
            assert [i for i in seen[key, sample] if i is not None] == written.ids
            assert (seen[key, sample][-1] is None) == (written.ended == "stop")
            assert len(written.logps) == len(written.top) == len(seen[key, sample])


def test_alternatives_are_the_likeliest_tokens_best_first():
    model = model_of(8)
    prompts = [Request(ids, Sampling(0), max_new=6, top=top) for ids, top in zip(many(3), (V, 4, 0), strict=True)]
    [[whole], [some], [none]] = run(model, prompts)
    for token, logp, top in zip(whole.ids, whole.logps, whole.top, strict=False):
        values = [value for _, value in top]
        assert sorted(i for i, _ in top) == list(range(V)) and values == sorted(values, reverse=True)
        assert sum(map(math.exp, values)) == pytest.approx(1) and top[0] == (token, logp)  # greedy
    assert all(len(top) == 4 for top in some.top) and all(top == () for top in none.top)


def test_log_probabilities_are_the_models_own_before_the_chain():
    model, ids = model_of(8), many(1)[0]
    [[plain]] = run(model, [Request(ids, Sampling(0), max_new=1)])
    [[heated]] = run(model, [Request(ids, Sampling(3.0, top_k=1), max_new=1)])
    assert heated.ids == plain.ids and heated.logps == pytest.approx(plain.logps)


def test_samples_differ_in_their_mean_log_probability():
    model, prompts = model_of(9), [Request(ids, max_new=8, samples=6) for ids in many(3)]
    for some in run(model, prompts):
        means = [sum(written.logps) / len(written.logps) for written in some]
        assert [written.mean for written in some] == pytest.approx(means)
        assert max(means) > min(means)


def test_a_row_ends_at_the_end_of_the_context():
    model = model_of(10)
    full = Request([3 + i % 20 for i in range(CONTEXT)], max_new=9, stops=frozenset())
    nearly = replace(full, given=full.given[3:])
    [[one], [four]] = run(model, [full, nearly])
    assert (len(one.ids), one.ended, len(four.ids), four.ended) == (1, "context", 4, "context")
    assert same(one, by_hand(model, full)) and same(four, by_hand(model, nearly))


@each_setting
def test_a_window_slides_over_what_is_longer_than_the_context(sampling):
    model = model_of(11)
    long = [3 + (7 * i) % 25 for i in range(CONTEXT + 13)]
    prompts = [
        Request(ids, sampling, max_new=12, window=True, seed=i, samples=1 + i % 2, stops=frozenset())
        for i, ids in enumerate([long, long[:CONTEXT], long[: CONTEXT - 5], long[:4], long[: CONTEXT + 1]])
    ]
    for batch in (2, 20):
        for prompt, samples in zip(prompts, run(model, prompts, batch=batch), strict=True):
            assert all(same(w, by_hand(model, prompt, sample)) for sample, w in enumerate(samples))


def test_choices_are_written_whole_and_in_proportion():
    """p(choice) is the product of its tokens' shares among the branches."""
    model = model_of(12, sharp=4.0)
    choices = ((5, END), (5, 6, END), (9, 9, 9, END))
    prompt = Request([4, 8], Sampling(choices=choices), samples=3000, max_new=9)
    [found] = run(model, [prompt])
    assert {(*written.ids, END) for written in found} == set(choices)
    assert {written.ended for written in found} == {"stop"}

    def branch(ids, token, others):
        with torch.no_grad():
            logits = model(torch.tensor([[4, 8, *ids]]))[0][0, -1]
        return float(logits[[token, *others]].softmax(-1)[0])

    five = branch([], 5, [9])
    ends = branch([5], END, [6])
    shares = {(5,): five * ends, (5, 6): five * (1 - ends), (9, 9, 9): 1 - five}
    for ids, share in shares.items():
        count = sum(tuple(written.ids) == ids for written in found)
        assert abs(count - 3000 * share) < 4 * math.sqrt(3000 * share * (1 - share)) + 1


def test_where_no_token_is_left_a_row_ends_with_nothing():
    model = model_of(13)
    nothing = Sampling(bias=tuple(Bias((i,), -math.inf) for i in range(V)))
    fine = Request([4, 5], max_new=4)
    [[dead], [alive]] = run(model, [Request([4, 5], nothing), fine])
    assert (dead.ids, dead.logps, dead.ended, dead.mean) == ([], [], "nothing", -math.inf)
    assert same(alive, by_hand(model, fine))
    with torch.no_grad():
        model.output.weight.fill_(math.nan)
    assert run(model, [fine])[0][0].ended == "nothing"


def test_sampled_frequencies_follow_the_model():
    model = model_of(14, sharp=10.0)
    [found] = run(model, [Request([4, 5, 6], max_new=1, stops=frozenset(), samples=6000)], batch=1)
    with torch.no_grad():
        p = model(torch.tensor([[4, 5, 6]]))[0][0, -1].softmax(-1)
    observed = torch.bincount(torch.tensor([written.ids[0] for written in found]), minlength=V).double()
    statistic = ((observed - 6000 * p) ** 2 / (6000 * p)).sum()
    assert (6000 * p).min() > 5 and torch.special.gammaincc(torch.tensor((V - 1) / 2).double(), statistic / 2) > 1e-3


def test_no_prompts_and_progress():
    model, told = model_of(15), []
    assert run(model, []) == []
    run(model, mixed(5), batch=2, progress=told.append)
    assert told == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"given": []}, "prompt 2 is empty: give at least one id"),
        ({"given": [5, V]}, f"prompt 2 names the id {V}, this model's vocabulary has {V} entries"),
        ({"stops": frozenset({-1})}, "prompt 2 names the id -1"),
        ({"choose": Sampling(choices=((99,),))}, "prompt 2 names the id 99"),
        (
            {"given": [5] * 41},
            "prompt 2 has 41 tokens, this model reads at most 40: shorten it, or ask for window=True",
        ),
        ({"max_new": 0}, "max_new must be 1 or more, not 0"),
        ({"samples": 0}, "samples must be 1 or more, not 0"),
        ({"seed": -1}, "seed must be 0 or more, not -1"),
    ],
)
def test_bad_input_is_one_line(wrong, line):
    good = Request([4, 5], max_new=2)
    with pytest.raises(InputError, match=line):
        run(model_of(15), [good, replace(good, **wrong)])


class Asking(TorchDispatchMode):
    """Notes every operation for whose result the host would have to wait for a device."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if any(name in str(function) for name in ("_local_scalar_dense", "nonzero", "masked_select", "unique")):
            self.asked.append(str(function))
        return function(*args, **(kwargs or {}))


def test_a_step_asks_the_device_nothing_until_its_record_is_read():
    engine = Engine(model_of(3), context=CONTEXT, device=CPU)
    choice = Request([4, 5, 6], Sampling(choices=((7, 8, END), (9, END))))
    engine.admit(list(enumerate([*(replace(prompt, top=3, max_new=9) for prompt in mixed(10)), choice])))
    (pool,) = engine.pools
    with torch.inference_mode(), Asking() as asking:
        engine._launch(pool)
    (pending,) = pool.pending
    assert asking.asked == [] and [len(step) for step in pending.read()] == [len(engine)]


@pytest.mark.gpu
def test_a_gpu_gives_what_the_cpu_gives_in_float64():
    model, prompts = model_of(3), mixed(24)
    plain = run(model, prompts)
    device = torch.device("cuda")
    found = generate_all(model.to(device), prompts, context=CONTEXT, device=device, batch=9)
    for a, b in zip(plain, found, strict=True):
        assert [w.ids for w in a] == [w.ids for w in b]


@pytest.mark.gpu
@pytest.mark.parametrize("top", [0, 3])
def test_a_step_on_a_gpu_does_not_wait_for_the_device(top):
    device, model = torch.device("cuda"), model_of(3).float().cuda()
    engine = Engine(model, context=CONTEXT, device=device)
    engine.admit([(key, replace(prompt, top=top, max_new=30)) for key, prompt in enumerate(mixed(10))])
    engine.step()  # tables of sequences are made and graphs captured at the first
    engine._settle()
    (pool,) = engine.pools
    under_way = len(pool.pending)
    assert pool.due(1)
    with torch.inference_mode():
        torch.cuda.set_sync_debug_mode("error")
        try:
            engine._launch(pool)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert len(pool.pending) == under_way + 1

"""One engine for language models and sequence-to-sequence models: searches and samples of both, and constraints."""

import itertools
import json
import math
from dataclasses import replace

import pytest
import test_beam
import test_captured
import test_samples
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from foreign_world import from_hf
from headway.batch import TextRow
from headway.errors import InputError
from headway.generate import chain, noise
from headway.generate.engine import Engine
from headway.generate.offline import generate_all
from headway.generate.request import Found, Request
from headway.generate.sampling import Sampling
from headway.generate.search import Search
from headway.generate.stepper import GraphStepper, PlainStepper
from headway.hub.families import foreign_of
from headway.models import parts
from headway.models.gpt import GPT, GPTConfig
from headway.models.recurrent import Recurrent, RecurrentConfig
from headway.text.tokenizer import END, START

CPU = torch.device("cpu")
STEPPERS = [PlainStepper, test_captured.Uncaptured]
each_stepper = pytest.mark.parametrize("stepper", STEPPERS)


def run(model, requests, context=40, stepper=None, **how):
    made = stepper(model) if stepper else None
    return generate_all(model, requests, context=context, device=CPU, stepper=made, **how)


def language_models():
    torch.manual_seed(3)
    gpt = GPT(GPTConfig(2, 16, heads=2, max_length=16, tied=False, position=parts.Rotary()), 6)
    recurrent = Recurrent(RecurrentConfig(layers=2, width=12), 6)
    for model in (gpt, recurrent):
        with torch.no_grad():
            model.output.weight.mul_(12)
    return [model.double().eval() for model in (gpt, recurrent)]


def exhaustive(model, given, longest, alpha, stops):
    """Every continuation of up to `longest` tokens with its score, best first, by teacher forcing; what is `longest` is
    ended with the first stop."""
    found = []
    for length in range(longest + 1):
        for ids in itertools.product([i for i in range(6) if i not in stops], repeat=length):
            for end in stops if length < longest else stops[:1]:
                with torch.no_grad():
                    logp_TV = model(torch.tensor([[*given, *ids, end]]))[0][0].log_softmax(-1)
                written = [*ids, end]
                logps = [float(logp_TV[len(given) - 1 + at, i]) for at, i in enumerate(written)]
                found.append((sum(logps) / len(logps) ** alpha, list(ids), logps))
    return sorted(found, reverse=True)


@each_stepper
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("stops", [(2,), (2, 4)])
@pytest.mark.parametrize("kind", [0, 1])
def test_a_wide_beam_of_a_language_model_finds_what_exhaustive_search_finds(kind, stops, alpha, stepper):
    model, given = language_models()[kind], [3, 5, 1]
    search = Search(beam=150, best=5, length_penalty=alpha, finish="bound")
    (found,) = run(model, [Request(given, search, 3, frozenset(stops))], context=16, stepper=stepper)
    expected = exhaustive(model, given, 3, alpha, stops)[:5]
    assert [h.ids for h in found.hypotheses] == [ids for _, ids, _ in expected]
    assert [h.score for h in found.hypotheses] == pytest.approx([score for score, _, _ in expected], rel=1e-6)
    for hypothesis, (_, _, logps) in zip(found.hypotheses, expected, strict=True):
        assert hypothesis.token_scores == pytest.approx(logps, abs=1e-5)


def gpt2(seed=0, vocabulary=19):
    torch.manual_seed(seed)
    theirs = GPT2LMHeadModel(
        GPT2Config(vocab_size=vocabulary, n_positions=64, n_embd=16, n_layer=2, n_head=2, initializer_range=1.0,
                   attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, tie_word_embeddings=True)
    ).double().eval()  # fmt: skip
    return theirs, ours_of(theirs)


def ours_of(theirs):
    facts = json.loads(theirs.config.to_json_string(use_diff=False)) | {"architectures": ["GPT2LMHeadModel"]}
    foreign = foreign_of(facts, "config.json")
    (config, _), sizes = foreign.model_in(facts), foreign.vocabularies(facts)
    mine = GPT(config, *sizes)
    shapes = {name: tuple(weight.shape) for name, weight in mine.named_parameters()}
    mine.load_state_dict(from_hf(foreign.table(shapes, config, sizes), theirs.state_dict(), shapes), strict=False)
    return mine.double().eval()


@each_stepper
@pytest.mark.parametrize("alpha", [pytest.param(0.0, marks=pytest.mark.long), 1.0])
def test_a_beam_of_gpt2_is_that_of_transformers(stepper, alpha):
    """Their beams end as ours do where all of them reach an end before the longest output."""
    theirs, mine = gpt2()
    end, beam, new = 2, 4, 40
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(3, 19, (1 + n % 6,), generator=generator).tolist() for n in range(12)]
    search = Search(beam=beam, best=beam, length_penalty=alpha)
    found = run(mine, [Request(ids, search, new, frozenset({end})) for ids in prompts], 64, stepper, batch=5)
    compared = 0
    for ids, mine_found in zip(prompts, found, strict=True):
        expected = theirs.generate(
            torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), num_beams=beam,
            num_return_sequences=beam, max_new_tokens=new, do_sample=False, length_penalty=alpha, early_stopping=True,
            eos_token_id=end, pad_token_id=0, output_scores=True, return_dict_in_generate=True,
        )  # fmt: skip
        texts = [row[len(ids) :].tolist() for row in expected.sequences]
        if all(end in text for text in texts):
            assert [h.ids for h in mine_found.hypotheses] == [text[: text.index(end)] for text in texts]
            scores = expected.sequences_scores.tolist()
            assert [h.score for h in mine_found.hypotheses] == pytest.approx(scores, rel=1e-5)
            compared += 1
    assert compared >= 3


def sampled_by_hand(model, source, sampling, seed, sample, longest):
    """The whole target is read anew for each token."""
    ids, stream = [START], noise.streams(torch.tensor([seed]), torch.tensor([sample]))
    while len(ids) - 1 < longest:
        with torch.no_grad():
            logits = model(torch.tensor([source]), torch.tensor([ids]))[:, -1]
        past = chain.Past(torch.tensor([ids]), torch.tensor([len(ids)]), torch.tensor([1]))
        uniform = noise.uniforms(stream, torch.tensor([len(ids) - 1]))
        token = int(noise.draw(chain.apply(sampling.chain(), logits, past), uniform))
        if token == END:
            return ids[1:], "stop"
        ids.append(token)
    return ids[1:], "length"


@each_stepper
def test_samples_of_a_translator_are_seeded_and_independent_of_their_company(stepper):
    model, sources = test_beam.model_of(30, seed=5), test_beam.many(9)
    settings = [Sampling(), Sampling(0.7, top_k=9), Sampling(0)]
    requests = [
        Request([START], settings[i % 3], 6 + i, samples=1 + i % 2, seed=i, inputs=TextRow(source))
        for i, source in enumerate(sources)
    ]
    for batch in (1, 4, 40):
        found = run(model, requests, 64, stepper, batch=batch)
        for request, source, some in zip(requests, sources, found, strict=True):
            for sample, written in enumerate(some):
                expected = sampled_by_hand(model, source, request.choose, request.seed, sample, request.max_new)
                assert (written.ids, written.ended) == expected
    again = [replace(request, seed=request.seed + 1) for request in requests]
    other = run(model, again, 64, stepper)
    assert [w.ids for some in other for w in some] != [w.ids for some in found for w in some]


@each_stepper
def test_searches_and_samples_of_one_model_step_side_by_side(stepper):
    model, sources = test_beam.model_of(30, seed=5), test_beam.many(8)
    search = Search(beam=3, max_ratio=0, max_extra=12)
    requests = [
        replace(test_beam.asked(source, search)) if i % 2 else
        Request([START], Sampling(), 12, seed=i, inputs=TextRow(source))
        for i, source in enumerate(sources)
    ]  # fmt: skip
    alone = [run(model, [request], 64)[0] for request in requests]
    engine = Engine(model, context=64, device=CPU, slots=8, length=14, stepper=stepper(model))
    waiting, found = sorted(enumerate(requests), key=lambda keyed: len(sources[keyed[0]])), {}
    while waiting or len(engine):
        if waiting:
            engine.admit([waiting.pop()])
        for output in engine.step():
            if isinstance(output, Found):
                found[output.key] = output
            elif output.written is not None:
                found[output.key] = [output.written]
    for i, expected in enumerate(alone):
        if i % 2:
            assert test_beam.same(found[i].hypotheses[0], expected.hypotheses[0])
        else:
            assert test_samples.equal(found[i], expected)


class Alternating:
    """Even and odd ids in turns; after four it may end, after six it must."""

    def start(self):
        return 0, 0

    def allowed(self, state):
        parity, count = state
        if count == 6:
            return [END]
        return [i for i in range(3, 19) if i % 2 == parity] + ([END] if count >= 4 else [])

    def advance(self, state, token):
        assert token in self.allowed(state)
        return 1 - state[0], state[1] + 1


@each_stepper
def test_a_constraint_holds_for_samples_and_for_searches(stepper):
    _, mine = gpt2()
    rule = Alternating()
    samples = [Request([5, 7], Sampling(), 20, seed=i, constrain=rule) for i in range(6)]
    free = [Request([5, 7], Sampling(), 9, seed=i, stops=frozenset()) for i in range(3)]
    search = Search(beam=3, best=3)
    searches = [Request(ids, search, 20, constrain=rule) for ids in ([5, 7], [9])]
    found = run(mine, [*samples, *free, *searches], 64, stepper)
    texts = [written.ids for some in found[:6] for written in some]
    texts += [hypothesis.ids for one in found[9:] for hypothesis in one.hypotheses]
    assert len({tuple(ids) for ids in texts}) > 4 and len(texts) == 12
    for ids in texts:
        assert 4 <= len(ids) <= 6 and all(i % 2 == at % 2 for at, i in enumerate(ids))
    alone = run(mine, free, 64)
    assert all(test_samples.equal(a, b) for a, b in zip(found[6:9], alone, strict=True))


@each_stepper
def test_a_constraint_holds_in_a_sliding_window_too(stepper):
    _, mine = gpt2()
    wishes = {"max_new": 20, "window": True, "constrain": Alternating()}
    requests = [Request([5, 7] * size, Sampling(), seed=size, **wishes) for size in (2, 3, 6)]
    for [written] in run(mine, requests, 6, stepper):
        assert 4 <= len(written.ids) <= 6 and all(i % 2 == at % 2 for at, i in enumerate(written.ids))


def test_the_best_of_all_allowed_texts_is_what_a_wide_beam_finds():
    model, given = language_models()[0], [3, 5]

    class OnlyOdd:
        def start(self):
            return None

        def allowed(self, state):
            return [1, 3, 5, 2]

        def advance(self, state, token):
            return None

    search = Search(beam=60, best=4, finish="bound")
    (found,) = run(model, [Request(given, search, 3, frozenset({2}), constrain=OnlyOdd())], 16)
    every = [row for row in exhaustive(model, given, 3, 1.0, (2,)) if all(i % 2 for i in row[1])]
    assert [h.ids for h in found.hypotheses] == [ids for _, ids, _ in every[:4]]
    assert [h.score for h in found.hypotheses] == pytest.approx([score for score, _, _ in every[:4]], rel=1e-6)


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"samples": 2}, "prompt 1 is a search: samples, top and window are for sampling"),
        ({"stops": frozenset()}, "prompt 1 is a search: it needs a stop"),
        ({"given": [4] * 40}, "prompt 1 is a search: it needs a stop, and a text shorter than 40 tokens"),
        ({"never": (77,)}, "prompt 1 names the id 77"),
    ],
)
def test_a_search_that_cannot_be_is_one_line(wrong, line):
    _, mine = gpt2()
    with pytest.raises(InputError, match=line):
        run(mine, [replace(Request([4], Search()), **wrong)])


def test_prompts_of_similar_length_are_read_together_and_little_is_padded():
    torch.manual_seed(0)
    model, read = GPT(GPTConfig(1, 8, heads=1, max_length=600), 20).eval(), []
    model.embed.register_forward_hook(lambda module, inputs, output: read.append(tuple(inputs[0].shape)))
    lengths = [1, 2, 500, 30, 450, 31, 280, 290, 33, 480]
    run(model, [Request([5] * n, Sampling(0), 1) for n in lengths], 600)
    prompts = [shape for shape in read if shape[1] > 1]
    assert sum(rows * length for rows, length in prompts) <= 1.25 * sum(n - 1 for n in lengths) + 512
    assert len(prompts) > 1 and math.prod(prompts[0]) > 0


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk")
@pytest.mark.parametrize("kind", [0, 1])
def test_captured_searches_of_a_language_model_find_what_plain_ones_find(kind):
    device = torch.device("cuda")
    model = language_models()[kind].to(device)
    search = Search(beam=4, best=3)
    requests = [Request([3, 5, 1][: 1 + i % 3], search, 4 + i, frozenset({2})) for i in range(9)]
    how = {"context": 16, "device": device}
    plain = generate_all(model, requests, stepper=PlainStepper(model), **how)
    stepper = GraphStepper(model)
    for batch in (2, 9):
        found = generate_all(model, requests, stepper=stepper, batch=batch, **how)
        for a, b in zip(plain, found, strict=True):
            assert all(test_beam.same(x, y) for x, y in zip(a.hypotheses, b.hypotheses, strict=True))


@pytest.mark.gpu
def test_captured_samples_of_a_translator_are_the_plain_ones_and_rows_join_in_between():
    device = torch.device("cuda")
    model, sources = test_beam.model_of(30, seed=5).to(device), test_beam.many(20)
    requests = [
        Request([START], Sampling(0.9), 6 + i, seed=i, inputs=TextRow(source)) for i, source in enumerate(sources)
    ]
    how = {"context": 64, "device": device}
    plain = generate_all(model, requests, stepper=PlainStepper(model), **how)
    stepper = GraphStepper(model)
    for batch in (3, 20):
        found = generate_all(model, requests, stepper=stepper, batch=batch, **how)
        assert all(test_samples.equal(a, b) for a, b in zip(found, plain, strict=True))


@pytest.mark.gpu
def test_shared_keys_and_rotary_positions_are_captured_alike():
    device = torch.device("cuda")
    model = test_samples.model_of(2, position=parts.Rotary(), shared_heads=1).to(device)
    requests = [replace(request, top=2) for request in test_samples.mixed(24)]
    how = {"context": test_samples.CONTEXT, "device": device}
    plain = generate_all(model, requests, stepper=PlainStepper(model), **how)
    stepper = GraphStepper(model)
    for batch in (1, 9, 64):
        found = generate_all(model, requests, stepper=stepper, batch=batch, **how)
        assert [[w.ids for w in a] for a in plain] == [[w.ids for w in b] for b in found]

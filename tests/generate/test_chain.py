"""Every link of the sampling chain against Hugging Face's processors or a loop, row by row; settings; noise; draws."""

import math
from collections import Counter

import pytest
import torch

from headway.errors import InputError
from headway.generate import chain, noise
from headway.generate.chain import Past
from headway.generate.sampling import Bias, Sampling

V = 23


def scene(seed=0, rows=40, room=30, vocabulary=V):
    """Random logits and pasts of different lengths, of few tokens, so that n-grams do come again; behind a row's
    length stands rubbish that no link may look at."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, vocabulary, generator=generator, dtype=torch.float64)
    ids = torch.randint(0, 10, (rows, room), generator=generator)
    lengths = torch.randint(1, room + 1, (rows,), generator=generator)
    prompts = (torch.rand(rows, generator=generator) * lengths).long().clamp(min=1)
    return logits, Past(ids, lengths, prompts)


def theirs(processor, logits, past):
    """A Hugging Face processor takes rows of one length: so one row at a time."""
    found = [processor(past.ids_RL[r : r + 1, :n], logits[r : r + 1].clone()) for r, n in enumerate(past.lengths_R)]
    return torch.cat(found)


BIASES = (((3,), -math.inf), ((5,), 2.5), ((4, 5), -1.5), ((7, 8, 9), 4.0), ((1, 9), 0.5), ((2, 2, 2, 2, 2), 1.0))
PAIRS = [
    (chain.Temperature(0.7), "TemperatureLogitsWarper", (0.7,)),
    (chain.TopK(5), "TopKLogitsWarper", (5,)),
    (chain.TopK(500), "TopKLogitsWarper", (500,)),
    (chain.TopP(0.9), "TopPLogitsWarper", (0.9,)),
    (chain.TopP(0.05), "TopPLogitsWarper", (0.05,)),
    (chain.MinP(0.1), "MinPLogitsWarper", (0.1,)),
    (chain.MinP(1.0), "MinPLogitsWarper", (1.0,)),
    (chain.Typical(0.8), "TypicalLogitsWarper", (0.8,)),
    (chain.Typical(0.1), "TypicalLogitsWarper", (0.1,)),
    (chain.Repetition(1.3), "RepetitionPenaltyLogitsProcessor", (1.3,)),
    (chain.Repetition(0.8), "RepetitionPenaltyLogitsProcessor", (0.8,)),
    (chain.NoRepeat(1), "NoRepeatNGramLogitsProcessor", (1,)),
    (chain.NoRepeat(2), "NoRepeatNGramLogitsProcessor", (2,)),
    (chain.NoRepeat(3), "NoRepeatNGramLogitsProcessor", (3,)),
    (chain.LogitBias(BIASES), "SequenceBiasLogitsProcessor", ({ids: float(b) for ids, b in BIASES},)),
    (chain.LogitBias(BIASES[:2]), "SequenceBiasLogitsProcessor", (dict(BIASES[:2]),)),
]


@pytest.mark.parametrize(("link", "name", "values"), PAIRS, ids=lambda value: repr(value)[:40])
@pytest.mark.parametrize("seed", range(3))
def test_a_link_equals_hugging_faces_processor(link, name, values, seed):
    processes = pytest.importorskip("transformers.generation.logits_process")
    logits, past = scene(seed, rows=60)
    before = logits.clone()
    expected = theirs(getattr(processes, name)(*values), logits, past)
    found = link(logits, past)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert torch.equal(logits, before)  # pure
    if values != (500,):
        assert not torch.equal(found, logits)


def test_a_whole_chain_equals_hugging_faces_in_the_same_order():
    processes = pytest.importorskip("transformers.generation.logits_process")
    logits, past = scene(4, rows=60)
    settings = Sampling(
        0.8, top_k=12, top_p=0.9, min_p=0.02, typical=0.9, repetition=1.2, no_repeat=2, bias=(Bias((4,), 3.0),)
    )
    expected = logits
    for processor in (
        processes.SequenceBiasLogitsProcessor({(4,): 3.0}),
        processes.RepetitionPenaltyLogitsProcessor(1.2),
        processes.NoRepeatNGramLogitsProcessor(2),
        processes.TemperatureLogitsWarper(0.8),
        processes.TopKLogitsWarper(12),
        processes.TopPLogitsWarper(0.9),
        processes.MinPLogitsWarper(0.02),
        processes.TypicalLogitsWarper(0.9),
    ):
        expected = theirs(processor, expected, past)
    torch.testing.assert_close(chain.apply(settings.chain(), logits, past), expected, rtol=0, atol=1e-12)


def test_presence_and_frequency_count_new_tokens_only():
    logits, past = scene(5)
    presence, frequency = logits.clone(), logits.clone()
    for row, (ids, n, p) in enumerate(zip(past.ids_RL.tolist(), past.lengths_R, past.prompts_R, strict=True)):
        for token, times in Counter(ids[p:n]).items():
            presence[row, token] -= 0.7
            frequency[row, token] -= 0.3 * times
    torch.testing.assert_close(chain.Presence(0.7)(logits, past), presence)
    torch.testing.assert_close(chain.Frequency(0.3)(logits, past), frequency)
    assert not torch.equal(presence, logits)


CHOICES = ((5, 6, 2), (5, 6, 7, 2), (5, 2), (8, 8, 8, 8, 2))


def test_choices_are_the_branches_of_a_trie():
    processes = pytest.importorskip("transformers.generation.logits_process")
    paths = [ids[:n] for ids in CHOICES for n in range(len(ids))]
    past = Past(
        torch.tensor([[9, *path, *[5] * (6 - len(path))] for path in paths]),
        torch.tensor([1 + len(path) for path in paths]),
        torch.ones(len(paths), dtype=torch.long),
    )
    logits = torch.randn(len(paths), V)

    def branches(batch, ids):
        written = tuple(ids[1:].tolist())
        return [c[len(written)] for c in CHOICES if c[: len(written)] == written and len(c) > len(written)]

    expected = theirs(processes.PrefixConstrainedLogitsProcessor(branches, 1), logits, past)
    assert torch.equal(chain.Choice(CHOICES)(logits, past), expected)


def test_behind_a_whole_choice_and_off_every_path_nothing_is_left():
    past = Past(torch.tensor([[9, 5, 2, 0, 0], [9, 4, 0, 0, 0]]), torch.tensor([3, 2]), torch.tensor([1, 1]))
    found = chain.Choice(CHOICES)(torch.randn(2, V), past)
    assert (found == -math.inf).all()
    assert noise.draw(found, torch.tensor([0.3, 0.7])).tolist() == [-1, -1]


def test_greedy_keeps_the_first_of_the_largest():
    logits = torch.tensor([[1.0, 3.0, 3.0], [2.0, -math.inf, 1.0]])
    _, past = scene(rows=2)
    assert chain.Greedy()(logits, past).isfinite().nonzero()[:, 1].tolist() == [1, 0]


def test_settings_that_are_off_make_no_link():
    assert Sampling().chain() == []
    everything = Sampling(
        0.5, 3, 0.9, 0.1, 0.9, 1.1, 0.1, 0.2, 3, bias=(Bias((1,), 1.0),), choices=((1, 2),)
    ).chain()  # fmt: skip
    names = [type(link).__name__ for link in everything]
    assert names == [
        "LogitBias", "Repetition", "Presence", "Frequency", "NoRepeat", "Choice",
        "Temperature", "TopK", "TopP", "MinP", "Typical",
    ]  # fmt: skip
    assert Sampling(0, top_k=3, typical=0.5).chain() == [chain.Greedy()]
    assert hash(Sampling(bias=[Bias([1, 2], 1.0)], choices=[[3, 4]])) == hash(
        Sampling(bias=(Bias((1, 2), 1.0),), choices=((3, 4),))
    )


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ({"temperature": -0.5}, r"temperature must be 0 \(greedy\) or more, not -0.5"),
        ({"temperature": math.nan}, "temperature must be"),
        ({"top_k": -1}, "top_k must be 1 or more, or 0 for off, not -1"),
        ({"top_p": 0.0}, r"top_p must be above 0 and at most 1 \(off\), not 0.0: for greedy write temperature=0"),
        ({"top_p": 1.5}, "top_p must be above 0"),
        ({"min_p": 2.0}, "min_p must lie between 0"),
        ({"typical": 0.0}, "for greedy write temperature=0"),
        ({"repetition": 0.0}, "repetition must be above 0, not 0.0: 1 is off"),
        ({"presence": math.inf}, "presence must be a finite number"),
        ({"frequency": math.nan}, "frequency must be a finite number"),
        ({"no_repeat": -2}, "no_repeat must be 1 or more"),
        ({"bias": (Bias((), 1.0),)}, "a bias needs at least one id"),
        ({"bias": (Bias((1,), math.inf),)}, "a bias must be a number below infinity"),
        ({"choices": ((1,), ())}, "a choice needs at least one id"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_in_one_line(setting, line):
    with pytest.raises(InputError, match=line):
        Sampling(**setting)


def splitmix64(state, count):
    """The published generator (Steele et al. 2014), in Python's own integers."""
    mask = (1 << 64) - 1
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield z ^ (z >> 31)


@pytest.mark.parametrize("start", [0, 1234567, (1 << 63) + 12345, (1 << 64) - 1])
def test_bits_are_splitmix64(start):
    signed = start - (1 << 64) if start >> 63 else start
    found = noise.bits(torch.full((20,), signed), torch.arange(20))
    assert [i % (1 << 64) for i in found.tolist()] == list(splitmix64(start, 20))


def chi_square(observed, expected):
    """The p-value of counts under what was expected: the upper tail of χ² with one degree less than cells."""
    statistic = ((observed - expected) ** 2 / expected).sum()
    half = torch.tensor((len(observed) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, statistic / 2))


def grid(seeds, samples, steps):
    """Uniforms of every (seed, sample, step), each counted from 0."""
    seed, sample, step = (
        axis.flatten()
        for axis in torch.meshgrid(torch.arange(seeds), torch.arange(samples), torch.arange(steps), indexing="ij")
    )
    return noise.uniforms(noise.streams(seed, sample), step)


@pytest.mark.parametrize("shape", [(20_000, 1, 1), (1, 20_000, 1), (1, 1, 20_000), (30, 30, 30)])
def test_noise_is_even_and_neighbours_are_independent(shape):
    uniforms = grid(*shape)
    assert uniforms.min() >= 0 and uniforms.max() < 1 and len(uniforms.unique()) == len(uniforms)
    cells = torch.bincount((uniforms * 50).long(), minlength=50).double()
    assert chi_square(cells, torch.full_like(cells, len(uniforms) / 50)) > 1e-3
    pairs = (uniforms[:-1] * 8).long() * 8 + (uniforms[1:] * 8).long()
    cells = torch.bincount(pairs, minlength=64).double()
    assert chi_square(cells, torch.full_like(cells, len(pairs) / 64)) > 1e-3


def test_noise_is_a_rows_own_whatever_the_batch():
    seeds, samples, steps = torch.tensor([7, 7, 8, 7]), torch.tensor([0, 1, 0, 0]), torch.tensor([3, 3, 3, 4])
    together = noise.uniforms(noise.streams(seeds, samples), steps)
    alone = [noise.uniforms(noise.streams(seeds[r, None], samples[r, None]), steps[r, None]) for r in range(4)]
    assert torch.equal(together, torch.cat(alone)) and len(together.unique()) == 4


def test_draws_follow_the_stated_distribution():
    logits = 1.5 * torch.randn(12, generator=torch.Generator().manual_seed(1))
    settings = Sampling(1.3, top_k=9, top_p=0.97)
    _, past = scene(rows=1)
    narrowed = chain.apply(settings.chain(), logits[None], past)
    tokens = noise.draw(narrowed.expand(40_000, -1), grid(200, 200, 1))
    kept = narrowed[0].isfinite()
    observed = torch.bincount(tokens, minlength=12).double()
    assert 4 < kept.sum() < 12 and observed[~kept].sum() == 0
    assert chi_square(observed[kept], 40_000 * narrowed[0].double().softmax(-1)[kept]) > 1e-3


def test_an_impossible_token_is_never_drawn_and_a_sure_one_always():
    logits = torch.full((3, 5), -math.inf)
    logits[:, 3] = 0.0
    assert noise.draw(logits, torch.tensor([0.0, 0.5, 1 - 2.0**-53], dtype=torch.float64)).tolist() == [3, 3, 3]
    flat = torch.tensor([-math.inf, 0.0, 0.0, -math.inf]).expand(2, -1)
    assert noise.draw(flat, torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)).tolist() == [1, 2]
    assert noise.draw(torch.tensor([[0.0, math.nan]]), torch.tensor([0.5])).tolist() == [-1]

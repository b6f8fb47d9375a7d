"""Skip-gram's fast step against autograd and the paper's sum; its windows and noise; what it learns; resuming."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from headway.data.word_windows import Tiles, WordWindows, count_words
from headway.errors import InputError
from headway.generate.words import open_words
from headway.models.skip_gram import SkipGram, SkipGramConfig, kept_share, noise
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.negative_sampling import NegativeSamplingObjective, RowStep
from headway.text.tokenizer import END, UNKNOWN
from headway.text.vectors import WordVectors, write_vectors
from headway.train.health import Diverged
from headway.train.optimiser import Masters, Sgd
from headway.train.pace import Pace
from headway.train.run import Run
from small_runs import train_quietly
from small_world import TokenArray, surroundings

V = 30


def text(length: int = 400, seed: int = 0) -> TokenArray:
    """Words as frequent as 1/rank, some unknown ones, and a few ends of documents."""
    chance = np.random.default_rng(seed)
    share = 1 / np.arange(1, V - 3)
    ids = chance.choice(np.arange(4, V), length, p=share / share.sum())
    ids[chance.random(length) < 0.05] = UNKNOWN
    ids[50::97] = END
    return TokenArray(ids)


def windows(corpus: TokenArray, threshold: float = 0.0, **how: int) -> WordWindows:
    counts = torch.from_numpy(count_words([corpus], V))
    kept, drawn_from = kept_share(counts, threshold), noise(counts, 0.75)
    settings = {"tokens": corpus.tokens, "window": 3, "seed": 1, "tile": 8, "noise": 5} | how
    return WordWindows([corpus], kept_V=kept, noise_V=drawn_from, **settings)


def skip_gram(width: int = 7) -> SkipGram:
    torch.manual_seed(0)
    model = SkipGram(SkipGramConfig(width=width, window=3, negatives=4), V).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.5)
    return model


def tile_loss(model: SkipGram, tiles: Tiles) -> torch.Tensor:
    return NegativeSamplingObjective(model)(tiles)["loss"][0]


def learn(model: SkipGram, tiles: Tiles, rate: float, most_V: torch.Tensor) -> None:
    """One step; the rate of a word is `rate`, or `most_V` where that is less."""
    model.pairs_V.copy_(1 / most_V)
    step = RowStep(NegativeSamplingObjective(model), Masters(model.named_parameters(), Sgd()))
    step.learn(tiles, rate)


def pairs(tiles: Tiles) -> list[tuple[int, int, int]]:
    """(tile, word, word near it) for every pair, one by one."""
    return [(p, int(tiles.words_PT[p, t]), int(tiles.around_PC[p, c])) for p, t, c in tiles.near_PTC.nonzero().tolist()]


@pytest.mark.parametrize("row", [37, 400])
def test_every_pair_is_in_the_window_of_its_own_document_and_none_is_left_out(row: int) -> None:
    """Against two loops over the text, with a window of one, whose reach leaves nothing to chance."""
    corpus = text()
    made = windows(corpus, row=row, window=1)
    wanted = []
    for start in made.start_of.tolist():
        kept: list[int] = []
        for i in [*corpus.ids[start : start + row].tolist(), END]:
            if i == END:
                wanted += [p for a, b in zip(kept, kept[1:], strict=False) for p in ((a, b), (b, a))]
                kept = []
            elif i != UNKNOWN:
                kept.append(i)
    steps = -(-len(made.start_of) // made.rows)
    rows = made.rows * steps
    found = [(a, b) for step in range(steps) for _, a, b in pairs(made.batch(step))]
    if rows == len(made.start_of):
        assert sorted(found) == sorted(wanted)
    else:  # the last step begins another pass
        assert set(found) == set(wanted) and len(found) >= len(wanted)


def test_reaches_are_drawn_evenly_from_one_to_the_window() -> None:
    """At distance d a pair is near in (W − d + 1)/W of the cases."""
    corpus = TokenArray(np.full(40_000, 7))
    tiles = windows(corpus, row=40_000, tile=32).batch(0)
    far = torch.arange(tiles.near_PTC.shape[2]) - 3 - torch.arange(32)[:, None]
    inside = tiles.near_PTC[1:-1].double().mean(0)
    for distance, share in ((1, 1.0), (2, 2 / 3), (3, 1 / 3)):
        assert float(inside[far.abs() == distance].mean()) == pytest.approx(share, abs=0.01)
    assert not tiles.near_PTC[:, far.abs() > 3].any() and not tiles.near_PTC[:, far == 0].any()


def test_noise_is_drawn_from_frequency_to_the_three_quarters() -> None:
    """Pearson's chi-square over the words, within its 99.9 % bound (normal approximation)."""
    corpus = text(5000)
    made = windows(corpus, tokens=4000, row=500, noise=64)
    drawn = np.bincount(torch.cat([made.batch(step).noise_PM.flatten() for step in range(20)]).numpy(), minlength=V)
    counts = np.bincount(corpus.ids, minlength=V).astype(float)
    counts[:4] = 0
    wanted = counts**0.75 / (counts**0.75).sum() * drawn.sum()
    assert drawn.sum() > 50_000 and drawn[:4].sum() == 0
    alive = wanted > 0
    free = alive.sum() - 1
    assert ((drawn - wanted)[alive] ** 2 / wanted[alive]).sum() < free + 3.3 * np.sqrt(2 * free)


def test_frequent_words_are_passed_over_as_often_as_was_said() -> None:
    corpus = text(20_000)
    made = windows(corpus, threshold=0.01, tokens=20_000, row=1000)
    kept = np.bincount(made.batch(0).words_PT.flatten().numpy(), minlength=V)[4:]
    there = np.bincount(corpus.ids, minlength=V)[4:]
    expected = there * made.kept_V[4:]
    assert made.kept_V[4] < 0.5 and (np.abs(kept - expected) < 4 * np.sqrt(expected) + 1).all()


@torch.no_grad()
def test_the_loss_of_a_step_is_the_papers_summed_over_its_pairs() -> None:
    """Every pair with all M words of noise of its tile, each K/M times: what K draws give in the mean."""
    model, tiles = skip_gram(), windows(text()).batch(0)
    wanted = 0.0
    for tile, word, near in pairs(tiles):
        one = torch.tensor([word])
        drawn = tiles.noise_PM[tile][None]
        near_alone = model(one, torch.tensor([near]), drawn[:, :0])
        wanted -= float(near_alone + (model(one, torch.tensor([near]), drawn) - near_alone) * (4 / drawn.shape[1]))
    assert float(tile_loss(model, tiles)) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("length", [400, 9])
def test_a_step_is_one_down_the_gradient_that_autograd_finds(length: int) -> None:
    model, tiles = skip_gram(), windows(text(length)).batch(0)
    most_V = torch.full((V,), 1e9, dtype=torch.float64)
    most_V[5] = 0.003
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    tile_loss(model, tiles).backward()
    learn(model, tiles, 0.01, most_V)
    rate_V1 = torch.full((V, 1), 0.01, dtype=torch.float64)
    rate_V1[5] = 0.003
    for name, weight in model.named_parameters():
        assert weight.grad is not None and weight.grad.abs().max() > 0
        torch.testing.assert_close(weight.detach(), before[name] - rate_V1 * weight.grad, atol=1e-6, rtol=1e-6)


@pytest.mark.gpu
def test_a_gpu_takes_the_same_step() -> None:
    models, tiles = [skip_gram(), skip_gram().cuda()], windows(text()).batch(0)
    for model in models:
        device = model.around_VD.device
        there = tiles.map(lambda tensor, device=device: tensor.to(device))  # type: ignore[misc]
        learn(model, there, 0.01, torch.ones(V, dtype=torch.float64, device=device))
    for here, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(here, other.cpu())


def test_a_text_without_a_known_word_changes_nothing() -> None:
    corpus = text()
    made = windows(corpus)
    made.corpora = [TokenArray(np.full(400, UNKNOWN))]
    model, tiles = skip_gram(), made.batch(0)
    before = model.table.weight.detach().clone()
    learn(model, tiles, 0.1, torch.ones(V, dtype=torch.float64))
    assert tiles.pairs == 0 and torch.equal(model.table.weight, before)


def test_a_step_depends_on_its_number_alone_and_a_pass_takes_all() -> None:
    corpus = text(2000)
    first, second = windows(corpus, tokens=200, row=50), windows(corpus, tokens=200, row=50)
    again = [second.batch(step) for step in reversed(range(12))][::-1]
    for step in range(12):
        made = first.batch(step)
        assert torch.equal(made.words_PT, again[step].words_PT) and torch.equal(made.noise_PM, again[step].noise_PM)
        assert torch.equal(made.near_PTC, again[step].near_PTC)
    words = torch.cat([first.batch(step).words_PT.flatten() for step in range(10)]).numpy()
    assert np.array_equal(np.bincount(words, minlength=V)[4:], np.bincount(corpus.ids, minlength=V)[4:])


# From a text to a model folder.

CLASSES = {"who": ["anna", "bert", "carl", "dora"], "does": ["eats", "sees", "likes", "buys"],
           "what": ["bread", "fish", "soup", "cake"], "when": ["today", "often", "now", "later"]}  # fmt: skip


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Path]:
    with surroundings(tmp_path / "cache"):
        yield tmp_path


def sentences(folder: Path, count: int = 3000) -> Path:
    """A grammar of four classes: words of one class stand between the same others, never beside each other."""
    chance = np.random.default_rng(5)
    rows = [" ".join(chance.choice(words) for words in CLASSES.values()) + " ." for _ in range(count)]
    path = folder / "text.txt"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def small_run(folder: Path, *settings: str) -> Run:
    data = json.dumps([str(folder / "text.txt")])
    return change(
        RECIPES["skip-gram"].make(),
        [f"data.train={data}", "model.width=16", "model.window=2", "model.threshold=0", "engine.steps=60",
         "engine.batch=2000", "engine.checkpoint=20", "engine.log=20", "validation.every=30", "engine.device=cpu",
         "schedule.peak=0.05", *settings],
    )  # fmt: skip


def train(folder: Path, name: str, *settings: str, resume: bool = False) -> Path:
    out = folder / name
    train_quietly(small_run(folder, *settings), out, resume)
    return out


def test_a_run_that_is_given_time_ends_with_its_rate_down(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which each step takes 10 ms."""
    look = Pace.look
    monkeypatch.setattr(Pace, "look", lambda pace, step, _: look(pace, step, 0.01 * step))
    sentences(apart)
    out = train(apart, "timed", "engine.steps=1000000", "engine.seconds=1", "engine.log=5")
    rates = [row["rate"] for row in map(json.loads, (out / "log.jsonl").open(encoding="utf-8")) if "rate" in row]
    assert rates[-1] < 0.1 * max(rates)


def test_words_of_one_class_come_out_as_neighbours(apart: Path) -> None:
    sentences(apart)
    run = train(apart, "run", "engine.steps=150")
    table = open_words(run)
    for words in CLASSES.values():
        for word in words:
            assert {near.word for near in table.nearest([word], 3)} == {*words} - {word}
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    judged = [event["loss"] for event in events if event["event"] == "validation"]
    assert judged[-1] < judged[0] and events[-1]["validation loss"] == pytest.approx(judged[-1], abs=1e-3)


def test_a_run_that_goes_on_is_the_run_that_was_never_stopped(apart: Path) -> None:
    sentences(apart)
    whole = train(apart, "whole", "schedule=inverse-root", "schedule.warmup=5")
    train(apart, "half", "schedule=inverse-root", "schedule.warmup=5", "engine.steps=35")
    half = train(apart, "half", "schedule=inverse-root", "schedule.warmup=5", resume=True)
    weights = [(run / "model" / "model.safetensors").read_bytes() for run in (whole, half)]
    assert weights[0] == weights[1]
    steps = [json.loads(line)["step"] for line in (half / "log.jsonl").read_text().splitlines()]
    assert steps.count(20) == 1 and steps[-1] == 60
    with pytest.raises(InputError, match="at step 60 already"):
        train(apart, "half", "schedule=inverse-root", "schedule.warmup=5", "engine.steps=10", resume=True)
    assert json.loads((half / "run.json").read_text())["engine"]["steps"] == 60


def test_it_can_start_from_vectors(apart: Path) -> None:
    sentences(apart)
    vectors = WordVectors(["anna", "nobody"], np.full((2, 16), 0.25, np.float32))
    write_vectors(apart / "v.txt", vectors)
    run = train(apart, "run", "engine.steps=1", "schedule.peak=0.0000001", f"init={apart / 'v.txt'}")
    found = open_words(run).vectors
    np.testing.assert_allclose(found.table_ND[found.row("anna")], 0.25, atol=1e-4)
    assert np.abs(found.table_ND[found.row("bert")]).max() < 0.1


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("engine.dtype=bfloat16", "float32"),
        ("data.text.kind=char", "kind=word"),
        ("data.order=random", "data.order"),
    ],
)
def test_what_cannot_apply_is_refused(apart: Path, setting: str, said: str) -> None:
    sentences(apart, 100)
    with pytest.raises(InputError, match=said):
        train(apart, "run", *(["data.text.marks=false"] if "char" in setting else []), setting)


def test_a_rate_that_is_far_too_high_ends_the_run_with_advice(apart: Path) -> None:
    """Frequent words have a bound of their own: only a text of rare ones can be torn apart."""
    words = [f"w{i}" for i in range(500)] * 6
    np.random.default_rng(1).shuffle(words)
    (apart / "text.txt").write_text(" ".join(words), encoding="utf-8")
    with pytest.raises(Diverged, match="schedule.peak"):
        train(apart, "run", "schedule.peak=1e30", "engine.batch=64", "engine.steps=300", "engine.log=10")
    assert not (apart / "run" / "model").exists()

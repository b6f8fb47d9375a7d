"""Batches: every pair once an epoch, within the budget, the same from the same seed, at any step."""

import itertools
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from headway.batch import IGNORED
from headway.data import batches
from headway.data.batches import MixedBatches, buckets, pair_batches, permutation, rung
from headway.data.store import prepare
from headway.text.tokenizer import END, START, TextOptions, Tokenizer


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    dice = np.random.Generator(np.random.PCG64(0))
    words = ["a", "b", "c", "d", "e", "f", "g"]
    sides = {side: [" ".join(dice.choice(words, dice.integers(1, 40))) for _ in range(700)] for side in ("x", "y")}
    for side, lines in sides.items():
        (folder / side).write_text("\n".join(lines) + "\n")
    tokenizer = Tokenizer.train(sides["x"], TextOptions(kind="word", size=20, min_count=1))
    store = prepare([folder / "x", folder / "y"], tokenizer, tokenizer, folder / "store", max_length=100)
    return store, tokenizer, sides


def test_an_epoch_has_every_pair_once_and_batches_keep_the_budget(pairs):
    store, tokenizer, sides = pairs
    batches = pair_batches(store, budget=512, seed=1)
    seen = []
    for batch in batches.epoch(0):
        rows, width = batch.inputs.ids_BT.shape[0], max(batch.inputs.ids_BT.shape[1], batch.ids_BT.shape[1])
        assert rows * width <= 512
        assert batch.tokens == int((batch.labels_BT != IGNORED).sum())
        seen += batch.examples
        for row, example in enumerate(batch.examples):
            n = len(batch.inputs.ids_BT[row]) if batch.inputs.lengths_B is None else int(batch.inputs.lengths_B[row])
            assert batch.inputs.ids_BT[row, n - 1] == END
            assert tokenizer.decode(batch.inputs.ids_BT[row, :n].tolist()) == sides["x"][example]
            labels = batch.labels_BT[row][batch.labels_BT[row] != IGNORED]
            assert tokenizer.decode(labels.tolist()) == sides["y"][example] and labels[-1] == END
            assert batch.ids_BT[row, 0] == START
            assert torch.equal(batch.ids_BT[row, 1 : len(labels)], labels[:-1])
    assert sorted(seen) == list(range(700))


def test_any_step_can_be_had_without_the_ones_before(pairs):
    batches = pair_batches(pairs[0], budget=512, seed=1)
    stream = map(batches.batch, itertools.count())
    wanted = batches.per_epoch + 3
    for _ in range(wanted):
        next(stream)
    assert next(stream).examples == pair_batches(pairs[0], budget=512, seed=1).batch(wanted).examples


def test_seed_and_epoch_decide_the_order(pairs):
    def order(seed, epoch):
        return [batch.examples for batch in pair_batches(pairs[0], 512, seed).epoch(epoch)]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(2, 0) and order(1, 0) != order(1, 1)


def test_the_shuffle_is_pinned_for_every_machine():
    assert permutation(8, 1, 2).tolist() == [7, 1, 3, 0, 4, 2, 6, 5]


def test_no_two_shuffles_of_an_epoch_share_a_stream(pairs, monkeypatch):
    asked = []

    def recorded(count, *seed):
        asked.append(np.random.SeedSequence(seed).generate_state(2).tolist())
        return permutation(count, *seed)

    monkeypatch.setattr(batches, "permutation", recorded)
    found = pair_batches(pairs[0], budget=512, seed=1)
    found.plan(0)
    assert len(asked) == len(found.buckets) + 1 == len(set(map(tuple, asked)))


@pytest.mark.parametrize("longest", [6, 39, 100])
def test_no_row_is_padded_beyond_the_positions_of_a_model(longest):
    lengths = np.arange(1, longest + 1, dtype=np.int32)
    found = buckets(((lengths, 0),), 64, longest)
    assert rung(longest) > longest and max(bucket.lengths[0] for bucket in found) == longest
    assert all(lengths[bucket.examples].max() <= bucket.lengths[0] for bucket in found)
    assert sorted(np.concatenate([bucket.examples for bucket in found]).tolist()) == list(range(longest))


def lengths_of(count, longest, seed=0):
    """Lengths of `count` pairs whose sides are about as long as each other."""
    dice = np.random.Generator(np.random.PCG64(seed))
    source = dice.integers(1, longest, count, dtype=np.int32)
    target = np.maximum(1, source + dice.integers(-5, 6, count, dtype=np.int32))
    return SimpleNamespace(source=SimpleNamespace(lengths=source), target=SimpleNamespace(lengths=target))


def plain_plan(pairs, budget, seed, epoch):
    """What `plan` gives, pair by pair: (source length, target length, examples) of each batch."""
    groups = {}
    for example, (s, t) in enumerate(zip(pairs.source.lengths.tolist(), pairs.target.lengths.tolist(), strict=True)):
        s, t = rung(s + 1), rung(t + 1)
        groups.setdefault((max(s, t), t, s), []).append(example)
    cuts, waiting, number = [], {}, 0
    for shape in sorted(groups):
        waiting[shape] = groups.pop(shape)
        examples = sorted(example for group in waiting.values() for example in group)
        s, t = max(s for _, _, s in waiting), max(t for _, t, _ in waiting)
        rows = max(1, budget // max(s, t))
        rows = rows // 8 * 8 or rows
        if len(examples) < rows and groups:
            continue
        number, waiting = number + 1, {}
        order = [examples[i] for i in permutation(len(examples), seed, epoch, number)]
        cuts += [(s, t, order[at : at + rows]) for at in range(0, len(order), rows)]
    return [cuts[i] for i in permutation(len(cuts), seed, epoch, 0)]


@pytest.mark.parametrize("piece", [7, 256, 1 << 16])
@pytest.mark.parametrize(
    ("count", "budget", "longest"), [(1, 64, 5), (3, 4096, 9), (700, 512, 40), (2999, 100, 250), (5000, 4096, 90)]
)
def test_the_plan_is_that_of_a_plain_computation(monkeypatch, count, budget, longest, piece):
    monkeypatch.setattr(batches, "CHUNK", piece)
    pairs = lengths_of(count, longest)
    for epoch in (0, 3):
        plan = pair_batches(pairs, budget, seed=5).plan(epoch)
        found = [(*bucket.lengths, examples.tolist()) for bucket, examples in plan]
        assert found == plain_plan(pairs, budget, 5, epoch)


def test_planning_a_large_corpus_takes_few_bytes_a_pair():
    """Five million pairs are to be planned within a few dozen megabytes; an array of int64 alone takes 8 a pair."""
    count = 300_000
    pairs = lengths_of(count, 80)
    tracemalloc.start()
    found = pair_batches(pairs, budget=4096, seed=1)
    for epoch in range(2):
        found.plan(epoch)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 12 * count and peak < 20 * count


def test_shapes_are_few(pairs):
    shapes = {(b.inputs.ids_BT.shape[1], b.ids_BT.shape[1]) for b in pair_batches(pairs[0], 512, 1).epoch()}
    assert len(shapes) <= 36 and all(rung(n) == n for shape in shapes for n in shape)
    assert [rung(n) for n in (1, 4, 5, 32, 33, 64, 65, 129)] == [4, 4, 8, 32, 40, 64, 80, 160]


def test_split_deals_all_rows_and_padding_rows_count_nowhere(pairs):
    batch = next(pair_batches(pairs[0], 512, 1).epoch())
    pieces = batch.split(3)
    assert sum(piece.tokens for piece in pieces) == batch.tokens
    assert torch.equal(torch.cat([piece.labels_BT for piece in pieces]), batch.labels_BT)
    padded = batch.pad(len(batch) + 5)
    assert padded.tokens == batch.tokens == int((padded.labels_BT != IGNORED).sum())
    assert padded.inputs.lengths_B is not None and padded.inputs.lengths_B.min() >= 1


@pytest.mark.parametrize(("budget", "longest"), [(400, None), (400, 61), (50, None), (7, None)])
def test_mixed_batches_have_as_many_rows_each_and_every_example_once(budget, longest):
    lengths = np.random.default_rng(3).integers(1, 61, 500).astype(np.int32)

    def collate(examples, padded):
        return SimpleNamespace(examples=examples, padded=padded)

    def epoch(number, seed=1):
        return list(MixedBatches(((lengths, 0),), collate, budget, seed, longest=longest).epoch(number))

    found = epoch(0)
    rows = {len(batch.examples) for batch in found[:-1]}
    assert len(rows) == 1 and max(rows) == max(1, budget // (longest or rung(60)) // 8 * 8 or budget // (longest or 64))
    assert sorted(example for batch in found for example in batch.examples) == list(range(500))
    for batch in found:
        most = lengths[batch.examples].max()
        assert most <= batch.padded[0] <= (longest or 64)
    orders = [[*map(list, (batch.examples for batch in some))] for some in (found, epoch(0), epoch(1), epoch(0, 2))]
    assert orders[0] == orders[1] != orders[2] != orders[3] != orders[0]
    batches = MixedBatches(((lengths, 0),), collate, budget, 1, longest=longest)
    assert list(batches.batch(batches.per_epoch + 1).examples) == list(epoch(1)[1].examples)

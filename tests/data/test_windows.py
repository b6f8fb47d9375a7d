"""Windows: a function of the seed and the step, every token once where that is promised, shares as asked for."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from headway.data.windows import IGNORED, WindowBatches, evaluation_windows
from headway.errors import InputError
from headway.text.tokenizer import END
from small_world import TokenArray


def corpus(tokens, seed=0, base=10):
    """Ids that all differ, but for the ENDs among them."""
    ids = np.arange(base, base + tokens)
    ids[np.random.Generator(np.random.PCG64(seed)).random(tokens) < 0.05] = END
    return TokenArray(ids)


@pytest.mark.parametrize("mode", ["random", "epoch"])
def test_a_batch_is_a_function_of_seed_and_step(mode):
    def batches(seed):
        return WindowBatches(corpus(1000), 4, 16, seed, mode)

    stream = map(batches(1).batch, itertools.count())
    first = [next(stream) for _ in range(40)]
    for step in (39, 0, 17):
        alone = batches(1).batch(step)
        assert torch.equal(alone.ids_BT, first[step].ids_BT) and alone.examples == first[step].examples
    assert [batch.examples for batch in first] != [batches(2).batch(step).examples for step in range(40)]
    assert len({batch.examples for batch in first}) == 40


@pytest.mark.parametrize("mode", ["random", "epoch"])
def test_labels_are_the_ids_one_further_on(mode):
    tokens = corpus(1000)
    batch = WindowBatches(tokens, 5, 16, 1, mode).batch(3)
    for row, start in enumerate(batch.examples):
        assert batch.ids_BT[row].tolist() == tokens.ids[start : start + 16].tolist()
        assert batch.labels_BT[row].tolist() == tokens.ids[start + 1 : start + 17].tolist()
    assert batch.tokens == 80 and batch.counts == {"loss": 80, "nll": 80} and batch.segments_BT is None
    assert batch.ids_BT.dtype == batch.labels_BT.dtype == torch.int64


def test_the_draws_are_pinned_for_every_machine():
    assert WindowBatches(corpus(1000), 4, 16, 1).batch(0).examples == (184, 971, 643, 696)
    assert WindowBatches(corpus(1000), 4, 16, 1, "epoch").batch(0).examples == (784, 864, 880, 832)


def test_random_windows_start_everywhere_alike():
    batches = WindowBatches(corpus(20), 64, 16, 1)
    counts = np.bincount([start for step in range(200) for start in batches.batch(step).examples])
    assert len(counts) == 4, "from the first window to the last that fits"
    assert np.abs(counts / counts.sum() - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / counts.sum())


@pytest.mark.parametrize(("tokens", "rows"), [(1000, 4), (1000, 7), (1000, 100), (17, 3), (31, 2), (33, 2), (48, 1)])
def test_an_epoch_gives_every_window_once_side_by_side_from_a_new_place(tokens, rows):
    batches = WindowBatches(corpus(tokens), rows, 16, 1, "epoch")
    cuts = batches.cuts[0]
    steps = -(-5 * cuts // rows)
    starts = [start for step in range(steps) for start in batches.batch(step).examples]
    phases = set()
    for epoch in range(5):
        found = sorted(starts[epoch * cuts : (epoch + 1) * cuts])
        assert np.diff(found).tolist() == [16] * (cuts - 1) and found[0] >= 0 and found[-1] + 17 <= tokens
        assert found[0] < 16 and tokens - (found[-1] + 17) < 2 * 16
        phases.add(found[0])
    assert len(phases) > 1 or tokens == 17
    assert batches.per_epoch == -(-cuts // rows)


def test_threads_at_an_epochs_end_get_what_one_gets():
    batches = WindowBatches(corpus(400), 5, 16, 1, "epoch")
    alone = [batches.batch(step).examples for step in range(60)]
    with ThreadPoolExecutor(8) as pool:
        assert [
            batch.examples for batch in pool.map(WindowBatches(corpus(400), 5, 16, 1, "epoch").batch, range(60))
        ] == alone


def test_segments_tell_documents_apart_and_an_end_begins_the_next():
    tokens = TokenArray(np.array([11, 12, END, 13, END, 14, 15, 16]))
    batch = WindowBatches(tokens, 1, 7, 1, segments=True).batch(0)
    assert batch.ids_BT.tolist() == [[11, 12, END, 13, END, 14, 15]]
    assert batch.segments_BT.tolist() == [[0, 0, 1, 1, 2, 2, 2]]
    assert batch.labels_BT.tolist() == [[12, END, 13, END, 14, 15, 16]]


@pytest.mark.parametrize("mode", ["random", "epoch"])
@pytest.mark.parametrize("weights", [(0.7, 0.2, 0.1), (3, 0, 1), None])
def test_a_mixture_has_the_shares_that_were_asked_for(mode, weights):
    corpora = [corpus(3000), corpus(500, base=10_000), corpus(1500, base=20_000)]
    batches = WindowBatches(corpora, 32, 8, 1, mode, weights)
    counts = np.zeros(3)
    for step in range(300):
        batch = batches.batch(step)
        for row, example in enumerate(batch.examples):
            number, start = batches.where(example)
            assert batch.ids_BT[row].tolist() == corpora[number].ids[start : start + 8].tolist()
            counts[number] += 1
    share = np.array(weights or (3000, 500, 1500), float)
    share /= share.sum()
    assert np.abs(counts / counts.sum() - share).max() < 4 * np.sqrt(0.25 / counts.sum())
    assert (counts[share == 0] == 0).all()


def test_a_corpus_of_a_mixture_never_gives_a_window_twice_in_an_epoch():
    batches = WindowBatches([corpus(1000), corpus(1000, base=5000)], 4, 16, 1, "epoch", (0.5, 0.5))
    cuts = batches.cuts[0]
    examples = [example for step in range(cuts) for example in batches.batch(step).examples]
    for epoch in range(4):
        found = examples[epoch * cuts : (epoch + 1) * cuts]
        assert len(set(found)) == len(found)


def test_more_rows_leave_the_first_as_they_are():
    few, many = (WindowBatches(corpus(1000), rows, 16, 1).batch(5) for rows in (3, 9))
    assert many.examples[:3] == few.examples


def test_rows_split_and_map_keep_what_belongs_together():
    batch = WindowBatches(corpus(1000), 7, 16, 1, segments=True).batch(0)
    pieces = batch.split(3)
    assert sum(piece.tokens for piece in pieces) == batch.tokens and len(batch.split(20)) == 7
    for name in ("ids_BT", "labels_BT", "segments_BT"):
        assert torch.equal(torch.cat([getattr(piece, name) for piece in pieces]), getattr(batch, name))
    assert sum((piece.examples for piece in pieces), ()) == batch.examples
    moved = batch.map(lambda tensor: tensor + 1)
    assert torch.equal(moved.ids_BT, batch.ids_BT + 1) and torch.equal(moved.segments_BT, batch.segments_BT + 1)
    assert batch.rows(2, 4).examples == batch.examples[2:4] and batch.rows(2, 4).tokens == 32


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 31, 32, 33, 100])
@pytest.mark.parametrize("stride", [1, 5, 8, 15, 16, None])
@pytest.mark.parametrize("rows", [1, 3, 50])
def test_evaluation_asks_for_every_token_once_with_what_stands_before_it(tokens, stride, rows):
    ids = corpus(tokens).ids
    with_end = [END, *ids.tolist()]
    place = 0
    for batch in evaluation_windows(TokenArray(ids), 16, stride, rows):
        assert batch.tokens == int((batch.labels_BT != IGNORED).sum()) and len(batch.ids_BT) <= rows
        for row, start in enumerate(batch.examples):
            asked = (batch.labels_BT[row] != IGNORED).nonzero()[:, 0].tolist()
            assert asked == list(range(asked[0], asked[-1] + 1)), "the new ones, at the end"
            for t in asked:
                place += 1
                assert start + t + 1 == place and batch.labels_BT[row, t] == with_end[place]
                assert batch.ids_BT[row, : t + 1].tolist() == with_end[start : start + t + 1]
                assert t + 1 >= min(place, 16 - (stride or 16) + 1)
    assert place == tokens


def test_windows_side_by_side_are_those_of_nanogpt():
    """Its validation text in windows of 256, the last one shorter."""
    found = list(evaluation_windows(TokenArray(np.full(111_540, 5)), 256, rows=64))
    assert sum(len(batch.ids_BT) for batch in found) == -(-111_540 // 256)
    assert sum(batch.tokens for batch in found) == 111_540


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match="a corpus of 16 tokens is smaller than one window of 17: give more text"):
        WindowBatches([corpus(17), corpus(16)], 4, 16, 1)
    for stride in (0, 17):
        with pytest.raises(InputError, match=f"the stride is {stride}"):
            list(evaluation_windows(corpus(100), 16, stride))
    for weights in ((1,), (1, -1), (0, 0), (1, float("nan")), (1, float("inf"))):
        with pytest.raises(InputError, match="expected one for each of 2 corpora"):
            WindowBatches([corpus(50), corpus(50)], 4, 16, 1, weights=weights)

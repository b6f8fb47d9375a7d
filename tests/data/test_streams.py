"""Contiguous streams: each row goes on where it ended, whatever step is asked for first."""

import numpy as np
import pytest
import torch

from headway.data.streams import StreamBatches
from headway.errors import InputError
from small_world import TokenArray


def corpus(tokens=1000):
    return TokenArray(np.arange(10, 10 + tokens))


@pytest.mark.parametrize("jitter", [0.0, 0.25])
def test_rows_go_on_where_they_ended_until_the_epoch_ends(jitter):
    batches = StreamBatches(corpus(), 4, 8, seed=1, jitter=jitter)
    for epoch in range(3):
        epochs = [batches.batch(epoch * batches.per_epoch + step) for step in range(batches.per_epoch)]
        assert [bool(batch.fresh) for batch in epochs] == [True] + [False] * (batches.per_epoch - 1)
        rows = torch.cat([batch.ids_BT for batch in epochs], 1)
        labels = torch.cat([batch.labels_BT for batch in epochs], 1)
        assert rows.shape == (4, batches.per_epoch * 8)
        # The ring of 1,000 different ids: each is followed by the next, the last by the first.
        assert torch.equal((rows - 10 + 1) % 1000, labels - 10)
        assert torch.equal(rows[:, 1:], labels[:, :-1])
        assert len(rows.unique()) == rows.numel(), "no token twice in an epoch"


@pytest.mark.parametrize("jitter", [0.0, 0.25])
def test_a_batch_is_a_function_of_seed_and_step(jitter):
    first = [StreamBatches(corpus(), 4, 8, 1, jitter).batch(step) for step in range(70)]
    again = StreamBatches(corpus(), 4, 8, 1, jitter)
    for step in (69, 3, 31, 0):
        assert torch.equal(again.batch(step).ids_BT, first[step].ids_BT)
        assert again.batch(step).examples == first[step].examples
    assert first[0].examples != StreamBatches(corpus(), 4, 8, 2, jitter).batch(0).examples


def test_an_epoch_cuts_the_text_at_other_places_than_the_last():
    batches = StreamBatches(corpus(), 4, 8, 1)
    starts = [batches.batch(epoch * batches.per_epoch).examples[0] for epoch in range(20)]
    assert len(set(starts)) > 15


def test_the_draws_are_pinned_for_every_machine():
    batches = StreamBatches(corpus(), 4, 16, 1, 0.25)
    assert batches.batch(0).examples == (409, 658, 907, 156)
    assert [batches.batch(step).ids_BT.shape[1] for step in range(6)] == [18, 12, 14, 24, 12, 14]


def test_lengths_vary_in_few_steps_and_a_short_window_counts_for_less():
    batches = StreamBatches(corpus(20_000), 2, 40, 1, 0.25)
    lengths = [batches.batch(step).ids_BT.shape[1] for step in range(2 * batches.per_epoch)]
    assert len(set(lengths)) <= 9 and min(lengths) >= 20 and max(lengths) <= 60
    assert abs(np.mean(lengths) - 40) < 0.5
    for step in range(10):
        batch = batches.batch(step)
        assert batch.tokens == batch.ids_BT.numel()
        assert batch.counts["loss"] == pytest.approx(80)


def test_rows_keep_their_number_when_a_batch_is_split():
    batch = StreamBatches(corpus(), 5, 8, 1).batch(0)
    pieces = batch.split(2)
    assert [piece.first_row for piece in pieces] == [0, len(pieces[0].ids_BT)]
    assert torch.equal(torch.cat([piece.labels_BT for piece in pieces]), batch.labels_BT)
    assert sum(piece.tokens for piece in pieces) == batch.tokens
    assert pieces[1].split(2)[1].first_row == 4
    moved = batch.map(lambda tensor: tensor.clone())
    assert moved.fresh is not batch.fresh and bool(moved.fresh) and moved.first_row == 0


def test_what_cannot_be_streamed_is_refused_in_one_line():
    with pytest.raises(InputError, match="one corpus from front to back, not 2"):
        StreamBatches([corpus(), corpus()], 2, 8, 1)
    with pytest.raises(InputError, match="too small for 100 rows of 10"):
        StreamBatches(corpus(999), 100, 10, 1)
    with pytest.raises(InputError, match="between 0 and 0.25"):
        StreamBatches(corpus(), 2, 8, 1, jitter=0.5)

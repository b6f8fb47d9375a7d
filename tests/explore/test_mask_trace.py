"""Deck D's mask on the page's terms: the weights are the masks' own, and every step is there."""

from __future__ import annotations

import numpy as np
import pytest
from deck_d import BATTERY_CASE, LOG, PROGRAM_CASE, count_votes

from headway.errors import InputError
from headway.explore.mask_trace import mask_trace


@pytest.mark.parametrize("beginning", [PROGRAM_CASE, BATTERY_CASE])
def test_each_word_looks_where_its_mask_lets_it(beginning):
    trace = mask_trace(beginning)
    weights, mask = trace.attention("mask")[0, 0], count_votes().mask_VV.numpy()
    ids = LOG.ids(beginning)
    assert not weights[0].any()  # the first word has none before it
    for t in range(1, len(ids)):
        row = mask[ids[t], ids[:t]]
        row = row if row.any() else np.ones(t)
        np.testing.assert_allclose(weights[t, :t], row / row.sum(), atol=1e-6)
        assert not weights[t, t:].any()
    last = {trace.tracks["words"].labels[s] for s in np.flatnonzero(weights[-1])}
    assert last == {"program" if beginning == PROGRAM_CASE else "battery"}
    values, mixed = trace["mask.0.attention.values"][0], trace["mask.0.attention.mixed"][0]
    np.testing.assert_allclose(weights @ values, mixed, atol=1e-6)


def test_only_words_of_the_deck_are_known():
    with pytest.raises(InputError, match="no word 'cat'"):
        mask_trace("check the cat")
    with pytest.raises(InputError, match="two words or more"):
        mask_trace("check")

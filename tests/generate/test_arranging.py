"""Rows in order of length: what is moved, when, and that nothing is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.generate.arranging import GROUP, STEPS, Arrangement, arranged, plain
from headway.generate.engine import Engine
from headway.generate.offline import generate_all
from headway.generate.request import Request
from headway.generate.sampling import Sampling
from headway.models.llama import Llama, LlamaConfig
from headway.nn import ragged


@st.composite
def rooms(draw: Any) -> tuple[list[int | None], list[int], list[int]]:
    """Slots with rows and without, rows that come, and the slots that all of them are to have."""
    lengths = draw(st.lists(st.none() | st.integers(0, 2000), max_size=60))
    coming = draw(st.lists(st.integers(0, 2000), max_size=20))
    rows = sum(length is not None for length in lengths) + len(coming)
    size = draw(st.integers(rows, rows + 8))
    return lengths, coming, sorted(draw(st.permutations(range(size)))[:rows])


def carried_out(arrangement: Arrangement, lengths: list[int | None], coming: list[int]) -> dict[int, int]:
    """The rows by slot; every move must find its target free."""
    at = {slot: length for slot, length in enumerate(lengths) if length is not None}
    for old, new in arrangement.moves:
        assert new not in at
        at[new] = at.pop(old)
    for slot, length in zip(arrangement.slots, coming, strict=True):
        assert slot not in at
        at[slot] = length
    return at


@given(rooms(), st.integers(0, 1000))
def test_every_row_keeps_its_length_and_has_a_slot(room: Any, call: int) -> None:
    lengths, coming, slots = room
    everyone = sorted([length for length in lengths if length is not None] + coming)
    for arrangement in (plain(lengths, coming, slots), arranged(lengths, coming, slots, call)):
        at = carried_out(arrangement, lengths, coming)
        assert sorted(at) == slots and sorted(at.values()) == everyone
        assert len({old for old, _ in arrangement.moves}) == len(arrangement.moves)  # each moves once


def test_rows_of_about_one_length_come_together() -> None:
    draw = np.random.default_rng(0)
    coming = draw.permutation(np.repeat([100, 3000], GROUP)).tolist()
    at = carried_out(arranged([], coming, range(2 * GROUP), 10), [], coming)
    assert [at[slot] for slot in range(2 * GROUP)] == sorted(coming)


def test_a_row_that_comes_moves_at_most_one_of_each_group() -> None:
    """A long row, and the only free slot is among short ones."""
    lengths: list[int | None] = [*range(1000, 1000 + 100 * 20 * GROUP, 100)]
    lengths[5] = None
    found = arranged(lengths, [50_000], range(len(lengths)), 10)
    assert len(found.moves) == 19 and found.slots[0] // GROUP == 19
    assert [new // GROUP for _, new in found.moves] == list(range(19))


def test_what_saves_less_than_it_costs_is_not_moved() -> None:
    """Rows of nearly one length, and a call that takes longer than what is read in vain."""
    near: list[int | None] = [200 + at % 3 for at in range(2 * GROUP)]
    near[5] = None
    assert arranged(near, [203], range(len(near)), 10) == plain(near, [203], range(len(near)))
    far: list[int | None] = [100, 3000] * GROUP
    far[5] = None
    slow = 3000 * STEPS * GROUP
    assert arranged(far, [3000], range(len(far)), slow) == plain(far, [3000], range(len(far)))


@pytest.fixture
def model() -> Llama:
    torch.manual_seed(0)
    return Llama(LlamaConfig(2, 32, 64, 4, 2, max_length=256), 61).double().eval()


def test_rows_that_are_moved_write_what_they_write_alone(model: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of all lengths come and go, a few at a time, some are ended from outside."""
    monkeypatch.setattr("headway.generate.sample_pool.CALL", 1 << 12)
    monkeypatch.setattr("headway.nn.view.CALL", 1 << 12)
    draw = np.random.default_rng(3)
    asked = [
        Request(draw.integers(1, 61, draw.choice([2, 5, 90, 180])).tolist(), Sampling(temperature=at % 2), 3 + at % 29,
                frozenset(), seed=at)
        for at in range(90)
    ]  # fmt: skip
    how: Any = {"context": 256, "device": torch.device("cpu")}
    alone = [generate_all(model, [request], **how)[0][0].ids for request in asked]

    orders, spans = list[list[int]](), list[int]()

    def spans_of(*words: Any) -> list[ragged.Span]:
        found = ragged.spans_of(*words)
        spans.append(len(found))
        return found

    monkeypatch.setattr("headway.nn.view.spans_of", spans_of)
    engine, waiting, written = Engine(model, **how, slots=40, length=256), list(enumerate(asked)), dict[int, Any]()
    while waiting or len(engine):
        if (free := 40 - len(engine)) > draw.integers(0, 6) and waiting:
            engine.admit([waiting.pop() for _ in range(min(free, len(waiting)))])
        for token in engine.step():
            if token.written is not None:
                written[token.key] = token.written.ids
        orders += [pool.lengths() for pool in engine.pools]
    assert [written[key] for key in range(len(asked))] == alone
    assert max(spans) > 1  # parts of the rows did attend alone
    full = [order for order in orders if len(order) > 2 * GROUP]
    assert np.mean([max(order[:GROUP]) < max(order) for order in full]) > 0.9

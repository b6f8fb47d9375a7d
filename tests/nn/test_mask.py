"""Every mask against a boolean matrix written with loops."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from headway.nn.mask import Causal, Everything, Global, Padding, Random, Scene, Segments, Window

LENGTHS = [5, 2, 6]
SEGMENTS = [[0, 0, 1, 1, 1, 2], [0, 1, 1, 2, 2, 2], [0, 0, 0, 0, 0, 0]]

RULES = {
    "everything": (Everything(), lambda b, q, k: True),
    "causal": (Causal(), lambda b, q, k: k <= q),
    "window": (Window(2, 1), lambda b, q, k: q - 2 <= k <= q + 1),
    "padding": (Padding(), lambda b, q, k: k < LENGTHS[b]),
    "segments": (Segments(), lambda b, q, k: SEGMENTS[b][q] == SEGMENTS[b][k]),
    "global": (Global(2), lambda b, q, k: q < 2 or k < 2),
    "causal and padding": (Causal() & Padding(), lambda b, q, k: k <= q and k < LENGTHS[b]),
    "window or global": (Window(1) | Global(1), lambda b, q, k: q - 1 <= k <= q or q < 1 or k < 1),
    "causal, packed": (Causal() & Segments(), lambda b, q, k: k <= q and SEGMENTS[b][q] == SEGMENTS[b][k]),
    "three": (
        (Causal() & Padding()) | Global(2),
        lambda b, q, k: (k <= q and k < LENGTHS[b]) or q < 2 or k < 2,
    ),
}


def scene(start=0, queries=6):
    segments = torch.tensor(SEGMENTS)
    return Scene(queries, 6, torch.device("cpu"), start, torch.tensor(LENGTHS), segments[:, 6 - queries :], segments)


def by_loops(rule, queries=range(6)):
    return torch.tensor([[[rule(b, q, k) for k in range(6)] for q in queries] for b in range(3)])


@pytest.mark.parametrize("name", RULES)
def test_matrix_equals_loops(name):
    mask, rule = RULES[name]
    expected = by_loops(rule)
    assert torch.equal(mask.matrix(scene()).expand(3, 1, 6, 6)[:, 0], expected)
    view = mask.view(scene())
    seen = view.matrix(6, 6, torch.device("cpu"))
    seen = torch.ones(1, 1, 6, 6, dtype=torch.bool) if seen is None else seen
    assert torch.equal(seen.expand(3, 1, 6, 6)[:, 0], expected)


@pytest.mark.parametrize("name", RULES)
def test_the_last_queries_of_a_cached_call_see_what_they_would_in_the_whole(name):
    mask, rule = RULES[name]
    expected = by_loops(rule, range(4, 6))
    assert torch.equal(mask.matrix(scene(4, 2)).expand(3, 1, 2, 6)[:, 0], expected)
    rows = mask.matrix(scene(torch.tensor([4, 4, 4]), 2))
    assert torch.equal(rows.expand(3, 1, 2, 6)[:, 0], expected)


@pytest.mark.parametrize("name", ["causal", "window", "padding", "causal and padding", "window or global"])
def test_block_mask_predicate_is_the_same_rule(name):
    mask, rule = RULES[name]
    predicate = mask.predicate(scene())
    expected = by_loops(rule)
    for b in range(3):
        for q in range(6):
            for k in range(6):
                index = (torch.tensor(b), torch.tensor(0), torch.tensor(q), torch.tensor(k))
                assert bool(predicate(*index)) == bool(expected[b, q, k])
    blocks = create_block_mask(predicate, 3, 1, 6, 6, device="cpu", BLOCK_SIZE=2)
    dense = expected.unflatten(1, (3, 2)).unflatten(3, (3, 2)).any(4).any(2)
    assert torch.equal(blocks.to_dense()[:, 0].bool(), dense)


def test_rows_that_start_at_different_positions():
    start = torch.tensor([0, 3])
    seen = Causal().matrix(Scene(2, 5, torch.device("cpu"), start))[:, 0]
    assert seen.int().tolist() == [[[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]], [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]]


def test_masks_are_hashable_values_and_choose_the_kernel():
    assert Causal() & Padding() == Causal() & Padding()
    assert len({Window(1), Window(1), Window(2)}) == 2
    bare = Scene(6, 6, torch.device("cpu"))
    assert (Causal() & Padding() & Segments()).view(bare).causal
    assert Padding().view(bare).matrix(6, 6, bare.device) is None
    one = Scene(1, 5, torch.device("cpu"), start=4)
    assert Causal().view(one).matrix(1, 5, one.device) is None and not Causal().view(one).causal


def test_what_is_a_number_of_first_keys_is_told_as_one_and_built_once_if_asked_for():
    starts, lengths = torch.tensor([0, 3, 5]), torch.tensor(LENGTHS)
    one = Scene(1, 6, torch.device("cpu"), starts, lengths)
    cases = [
        (Causal(), one, [1, 4, 6]),
        (Causal() & Padding(), one, [1, 2, 6]),
        (Padding(), scene(), LENGTHS),
        (Padding() & Segments(), Scene(6, 6, torch.device("cpu"), key_lengths_B=lengths), LENGTHS),
    ]
    for mask, facts, first_keys in cases:
        view = mask.view(facts)
        assert view.prefix_B.tolist() == first_keys and not view.dense
        seen = view.matrix(facts.queries, facts.keys, facts.device)
        assert torch.equal(seen, mask.matrix(facts))
        assert view.matrix(facts.queries, facts.keys, facts.device).data_ptr() == seen.data_ptr()


@pytest.mark.parametrize("mask", [Window(2), Causal() & Window(2), Causal() | Padding(), Causal() & Segments()])
def test_other_rules_are_no_number_of_first_keys(mask):
    view = mask.view(scene(torch.tensor([5, 5, 5]), 1))
    assert view.prefix_B is None and view.dense
    assert Causal().view(scene(torch.tensor([4, 4, 4]), 2)).prefix_B is None


def test_random_mask_has_its_share_and_is_the_same_for_ever():
    big = Scene(500, 500, torch.device("cpu"))
    matrix = Random(0.2, seed=3).matrix(big)
    assert abs(matrix.float().mean().item() - 0.2) < 0.01
    assert torch.equal(matrix, Random(0.2, seed=3).matrix(big))
    assert not torch.equal(matrix, Random(0.2, seed=4).matrix(big))

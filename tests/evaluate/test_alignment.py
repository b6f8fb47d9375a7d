"""Alignment error by hand, and alignments read off attention made to hold them."""

import numpy as np
import pytest

from headway.errors import InputError
from headway.evaluate.alignment import (
    AttendedPair,
    alignment_error,
    best_head,
    diagonal_links,
    head_table,
    links_from_weights,
    merge_words,
    random_links,
    read_links,
    symmetrised,
    write_links,
)


def attention(links: set[tuple[int, int]], target_size: int, source_size: int) -> np.ndarray:
    """Weights that peak at the links and sum to 1 in every row."""
    weights_TS = np.full((target_size, source_size), 0.1)
    for source, target in links:
        weights_TS[target, source] += 1
    return weights_TS / weights_TS.sum(axis=1, keepdims=True)


def test_aer_of_an_example_counted_by_hand():
    # A∩S = {0-0}, A∩P = {0-0, 1-2}, |A| = 3, |S| = 2: AER = 1 - (1 + 2) / (3 + 2).
    score = alignment_error([{(0, 0), (1, 2), (2, 2)}], [{(0, 0), (1, 1)}], [{(0, 0), (1, 1), (1, 2)}])
    assert score.aer == pytest.approx(2 / 5)
    assert score.precision == pytest.approx(2 / 3) and score.recall == pytest.approx(1 / 2)


def test_aer_counts_links_over_all_sentences_instead_of_averaging_sentences():
    predicted = [{(0, 0)}, {(0, 0), (1, 1), (2, 2)}]
    sure = [{(0, 0)}, {(0, 1), (1, 2), (2, 0)}]
    # 1 of 4 links right in either direction; the mean of the two sentences would be 1/2.
    assert alignment_error(predicted, sure, sure).aer == pytest.approx(3 / 4)


def test_aer_is_the_f_measure_when_every_link_is_sure():
    sure = [{(0, 0), (1, 1), (2, 3)}]
    score = alignment_error([{(0, 0), (2, 3), (2, 2), (1, 0)}], sure, sure)
    harmonic = 2 * score.precision * score.recall / (score.precision + score.recall)
    assert 1 - score.aer == pytest.approx(harmonic)


def test_a_sure_link_is_possible_even_when_not_listed_so():
    sure = [{(0, 0)}]
    assert alignment_error(sure, sure, [set()]).aer == 0


def test_predicting_nothing_is_all_error_but_no_wrong_link():
    score = alignment_error([set()], [{(0, 0)}], [{(0, 0)}])
    assert (score.aer, score.precision, score.recall) == (1, 1, 0)


def test_merging_sums_over_source_pieces_and_averages_over_target_pieces():
    # Source: "un|like", "cats", end. Target: "dogs", "un|gleich", end.
    weights_TS = np.array(
        [
            [0.1, 0.2, 0.6, 0.1],
            [0.4, 0.4, 0.1, 0.1],
            [0.2, 0.6, 0.0, 0.2],
            [0.0, 0.0, 0.0, 1.0],
        ]
    )
    merged = merge_words(weights_TS, [0, 1, 1, -1], [0, 0, 1, -1])
    np.testing.assert_allclose(merged, [[0.3, 0.6], [0.8, 0.05]])


def test_merging_keeps_leading_axes():
    rng = np.random.default_rng(0)
    weights_LHTS = rng.random((2, 3, 5, 4))
    target_words, source_words = [0, 0, 2, -1, 1], [1, 0, -1, 1]
    merged = merge_words(weights_LHTS, target_words, source_words)
    for layer, head in np.ndindex(2, 3):
        one = merge_words(weights_LHTS[layer, head], target_words, source_words)
        np.testing.assert_allclose(merged[layer, head], one)


def test_links_follow_the_summed_pieces_of_a_source_word():
    # No single piece of source word 0 beats word 1, their sum does.
    weights_TS = np.array([[0.3, 0.3, 0.4]])
    assert links_from_weights(weights_TS, [0], [0, 0, 1]) == {(0, 0)}


def test_a_target_word_without_weight_or_without_pieces_stays_unlinked():
    weights_TS = np.array([[0.0, 1.0], [0.9, 0.1]])
    # Word 0 looks only at the end token, word 1 has no piece.
    assert links_from_weights(weights_TS, [0, 2], [0, -1]) == {(0, 2)}
    assert links_from_weights(weights_TS, [-1, -1], [0, 1]) == set()
    assert links_from_weights(weights_TS, [0, 1], [-1, -1]) == set()


def test_random_links_are_reproducible_uniform_and_depend_on_the_sentence_number_only():
    sizes = [(5, 7), (3, 4)]
    first = random_links(sizes, seed=3)
    assert first == random_links(sizes, seed=3) and first != random_links(sizes, seed=4)
    assert random_links(sizes[:1], seed=3) == first[:1]
    assert [len(links) for links in first] == [7, 4]
    drawn = [source for source, _ in random_links([(4, 4000)], seed=0)[0]]
    assert np.bincount(drawn, minlength=4) == pytest.approx(1000, abs=120)


def make_pairs(gold_head: tuple[int, int], count: int, seed: int) -> list[AttendedPair]:
    """Pairs of four words in which one head of two layers by two holds the gold links, the others noise."""
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        gold = {(int(source), target) for target, source in enumerate(rng.permutation(4))}
        weights_LHTS = rng.random((2, 2, 4, 4))
        weights_LHTS[gold_head] = attention(gold, 4, 4)
        pairs.append(AttendedPair(weights_LHTS, range(4), range(4), gold, gold))
    return pairs


def test_the_head_table_agrees_with_scoring_each_head_alone():
    pairs = make_pairs((1, 0), count=5, seed=0)
    aer_LH = head_table(pair for pair in pairs)
    gold = [pair.sure for pair in pairs]
    for layer, head in np.ndindex(2, 2):
        predicted = [links_from_weights(pair.weights_LHTS[layer, head], range(4), range(4)) for pair in pairs]
        assert aer_LH[layer, head] == pytest.approx(alignment_error(predicted, gold, gold).aer)


def test_the_best_head_is_chosen_on_one_set_and_reported_on_the_other():
    chosen_on, reported_on = make_pairs((1, 0), count=8, seed=0), make_pairs((0, 1), count=8, seed=1)
    best = best_head(chosen_on, reported_on)
    assert (best.layer, best.head, best.chosen_aer) == (1, 0, 0)
    # On the other set that head holds noise: what is reported must not come from the choice.
    assert best.reported.aer == pytest.approx(head_table(reported_on)[1, 0]) and best.reported.aer > 0.3


@pytest.mark.parametrize("first", [0, 1])
def test_links_survive_writing_and_reading(first):
    sure, possible = {(0, 0), (10, 2)}, {(0, 0), (10, 2), (2, 3)}
    line = write_links(sure, possible, first=first)
    assert read_links(line, first=first) == (sure, possible)


def test_the_written_form_of_links():
    assert write_links({(1, 0), (0, 2)}, {(3, 3)}, first=1) == "1-3 2-1 4p4"
    assert write_links(set()) == "" and read_links(" \n") == (set(), set())


def test_wrong_input_is_told_in_one_line():
    with pytest.raises(InputError, match=r"gold\.txt, line 3: '1:2' is no link"):
        read_links("0-0 1:2", where="gold.txt, line 3")
    with pytest.raises(InputError, match="'0-1' counts words from 0"):
        read_links("0-1", first=1)
    with pytest.raises(InputError, match="number 0 or 1"):
        write_links({(0, 0)}, first=2)
    with pytest.raises(InputError, match="1 predicted, 2 sure and 1 possible"):
        alignment_error([set()], [set(), set()], [set()])
    with pytest.raises(InputError, match="nothing to count"):
        alignment_error([set()], [set()], [set()])
    with pytest.raises(InputError, match=r"shape \(2, 3\) does not fit 3 target and 2 source"):
        merge_words(np.zeros((2, 3)), [0, 1, 2], [0, 1])
    with pytest.raises(InputError, match="word index -2"):
        merge_words(np.zeros((1, 2)), [0], [0, -2])
    with pytest.raises(InputError, match="0 source words"):
        random_links([(0, 3)], seed=0)
    with pytest.raises(InputError, match="at least one"):
        head_table([])
    with pytest.raises(InputError, match="keep some out"):
        best_head(make_pairs((0, 0), 1, 0), [])


def test_the_diagonal_goes_through_sentences_of_unlike_length():
    assert diagonal_links([(2, 4), (4, 2), (3, 3), (1, 2)]) == [
        {(0, 0), (0, 1), (1, 2), (1, 3)}, {(1, 0), (3, 1)}, {(0, 0), (1, 1), (2, 2)}, {(0, 0), (0, 1)},
    ]  # fmt: skip


def test_two_directions_become_one_alignment():
    """Grown by hand from 0-0 and 2-2: 1-1 touches 0-0 across a corner and is free; 2-1 touches 2-2, but both its words
    have links by then; 3-2 touches 2-2, then 4-2 touches 3-2, and their source words are free; 6-6 touches nothing."""
    forward, backward = {(0, 0), (2, 2), (1, 1), (6, 6)}, {(0, 0), (2, 2), (2, 1), (3, 2), (4, 2)}
    assert symmetrised(forward, backward, "intersection") == {(0, 0), (2, 2)}
    assert symmetrised(forward, backward, "union") == forward | backward
    grown = {(0, 0), (1, 1), (2, 2), (3, 2), (4, 2)}
    assert symmetrised(forward, backward, "grow-diag") == symmetrised(backward, forward, "grow-diag") == grown

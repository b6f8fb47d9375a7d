"""Deck D to the digit: chains of first and second order, votes of skip pairs, the learned mask, and attention."""

from __future__ import annotations

import pytest
import torch
from deck_d import BATTERY, BATTERY_CASE, LOG, PAIRS, PROGRAM_CASE, SHOW_ME, Sentences, count_votes

from headway.errors import InputError
from headway.models.skips import SkipPairs, as_attention, learn_scores, mask_of
from headway.nn.attention import attend, dot

VOTES = count_votes()
CASES = (PROGRAM_CASE, BATTERY_CASE)


def shown(sentences: Sentences, table: torch.Tensor, histories: list[str]) -> dict[str, dict[str, float]]:
    """The entries of a table that are not 0, to six digits."""
    rows = zip(histories, table.tolist(), strict=True)
    return {
        history: {word: round(p, 6) for word, p in zip(sentences.words, row, strict=True) if p} for history, row in rows
    }


def test_show_me_my_files() -> None:
    """Deck D, "First order sequence model": the 7 × 7 matrix."""
    assert SHOW_ME.words == ["directories", "files", "me", "my", "photos", "please", "show"]
    assert shown(SHOW_ME, SHOW_ME.table(SHOW_ME.words), SHOW_ME.words) == {
        "directories": {"please": 1}, "files": {"please": 1}, "me": {"my": 1},
        "my": {"directories": 0.2, "files": 0.3, "photos": 0.5}, "photos": {"please": 1}, "please": {},
        "show": {"me": 1},
    }  # fmt: skip


def test_a_one_hot_pulls_out_a_row() -> None:
    """Deck D: one-hot times matrix; "my" is the fourth word."""
    matrix = SHOW_ME.table(SHOW_ME.words)
    one_hot = torch.tensor([0, 0, 0, 1, 0, 0, 0], dtype=torch.float64)
    assert (one_hot @ matrix).tolist() == pytest.approx([0.2, 0.3, 0, 0, 0.5, 0, 0], abs=1e-6)


def test_battery_and_program_first_order() -> None:
    """Deck D: the 8 × 8 matrix, 40/60 behind "ran" and "the"."""
    assert shown(BATTERY, BATTERY.table(BATTERY.words), BATTERY.words) == {
        "battery": {"ran": 1}, "check": {"whether": 1}, "down": {"please": 1}, "please": {}, "program": {"ran": 1},
        "ran": {"down": 0.4, "please": 0.6}, "the": {"battery": 0.4, "program": 0.6}, "whether": {"the": 1},
    }  # fmt: skip


def test_battery_and_program_second_order() -> None:
    """Deck D: two words remove the doubt behind "ran"."""
    assert shown(BATTERY, BATTERY.table(PAIRS), list(PAIRS)) == {
        "battery ran": {"down": 1}, "check whether": {"the": 1}, "program ran": {"please": 1},
        "the battery": {"ran": 1}, "the program": {"ran": 1}, "ran down": {"please": 1},
        "whether the": {"battery": 0.4, "program": 0.6},
    }  # fmt: skip


@pytest.mark.parametrize("order, decided", [(1, False), (7, False), (8, True), (9, True)])
def test_the_log_example_is_decided_at_eighth_order(order: int, decided: bool) -> None:
    """Deck D says ninth: "program" is seven words before "ran", so a history of eight words holds both."""
    histories = [" ".join(case.split()[-order:]) for case in CASES]
    program, battery = shown(LOG, LOG.table(histories), ["program", "battery"]).values()
    either = {"down": 0.5, "please": 0.5}
    assert (program, battery) == (({"please": 1}, {"down": 1}) if decided else (either, either))


def test_the_table_of_skip_pairs() -> None:
    """Deck D: the 13 rows (word, ran)."""
    even = {"down": 0.5, "please": 0.5}
    assert len(LOG.words) == 13
    table = VOTES.pairs.transitions(LOG.ids("ran")[0])[1:, 1:]
    assert shown(LOG, table, [f"{word}, ran" for word in LOG.words]) == {
        "and, ran": even, "battery, ran": {"down": 1}, "check, ran": even, "down, ran": {}, "find, ran": even,
        "it, ran": even, "log, ran": even, "out, ran": even, "please, ran": {}, "program, ran": {"please": 1},
        "ran, ran": {}, "the, ran": even, "whether, ran": even,
    }  # fmt: skip


def test_votes_before_and_after_the_mask() -> None:
    """Deck D: 5 votes to 4, and after the mask 1 to 0."""
    assert VOTES.of(PROGRAM_CASE, masked=False) == {"please": 5, "down": 4}
    assert VOTES.of(BATTERY_CASE, masked=False) == {"down": 5, "please": 4}
    assert VOTES.of(PROGRAM_CASE, masked=True) == {"please": 1}
    assert VOTES.of(BATTERY_CASE, masked=True) == {"down": 1}


def test_the_learned_mask_leaves_only_battery_and_program_behind_ran() -> None:
    of_ran = VOTES.mask_VV[LOG.ids("ran")[0], 1:]
    assert [word for word, kept in zip(LOG.words, of_ran, strict=True) if kept] == ["battery", "program"]
    # Behind "it" all words foretell "ran" alike: nothing is crossed out. "check" has no word before it: no mask.
    of_it = VOTES.mask_VV[LOG.ids("it")[0], 1:]
    assert {word for word, kept in zip(LOG.words, of_it, strict=True) if kept} == {
        "and", "battery", "check", "find", "log", "out", "program", "the", "whether",
    }  # fmt: skip
    assert not VOTES.mask_VV[LOG.ids("check")[0]].any()


@pytest.mark.parametrize("beginning", CASES)
@pytest.mark.parametrize("masked", [False, True])
def test_masks_as_keys_are_attention(beginning: str, masked: bool) -> None:
    """The same votes, as shares, by `attend` with the stacked masks as keys, a one-hot query, one-hots as values."""
    ids = LOG.ids(beginning)
    mask = VOTES.mask_VV if masked else torch.ones_like(VOTES.mask_VV)
    context, weights = attend(*as_attention(ids, mask), score=dot)
    counted = mask[ids[-1], torch.tensor(ids[:-1])]
    torch.testing.assert_close(weights[0, 0, 0], counted / counted.sum(), rtol=0, atol=1e-12)
    votes = VOTES.pairs.votes(ids, mask)
    shares = context[0, 0, 0] @ VOTES.pairs.transitions(ids[-1])
    torch.testing.assert_close(shares, votes / votes.sum(), rtol=0, atol=1e-12)


def test_the_query_pulls_its_mask_out_of_the_keys() -> None:
    query, keys, _ = as_attention(LOG.ids(PROGRAM_CASE), VOTES.mask_VV)
    scores = dot(query, keys)[0, 0, 0]
    kept = VOTES.mask_VV[LOG.ids("ran")[0], torch.tensor(LOG.ids(PROGRAM_CASE)[:-1])]
    assert torch.equal(scores == 0, kept == 1)


def test_pairs_are_those_of_a_loop_on_longer_texts() -> None:
    generator = torch.Generator().manual_seed(0)
    ids, reach = torch.randint(0, 6, (200,), generator=generator).tolist(), 5
    pairs = SkipPairs.count(ids, 6, boundary=0, reach=reach)
    seen: dict[tuple[int, int], list[int]] = {}
    for t in range(len(ids) - 1):
        for s in range(t - 1, max(-1, t - 1 - reach), -1):
            if 0 in (ids[t], ids[s]):
                break
            seen.setdefault((ids[t], ids[s]), []).append(ids[t + 1])
    for current in range(1, 6):
        table = pairs.transitions(current)
        for earlier in range(6):
            behind = seen.get((current, earlier), [])
            wanted = [behind.count(word) / max(len(behind), 1) for word in range(6)]
            assert table[earlier].tolist() == pytest.approx(wanted)


def test_scores_are_learned_where_a_far_word_decides() -> None:
    """Words 1 and 2 decide between 7 and 8 behind 6; 3, 4, 5 stand between and know nothing."""
    generator = torch.Generator().manual_seed(1)
    ids = [0]
    for _ in range(60):
        first = int(torch.randint(1, 3, (1,), generator=generator))
        ids += [first, *torch.randint(3, 6, (3,), generator=generator).tolist(), 6, 6 + first, 0]
    pairs = SkipPairs.count(ids, 9, boundary=0)
    mask = mask_of(pairs, learn_scores(pairs, ids))
    assert mask[6].tolist() == [0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert pairs.votes([1, 3, 5, 4, 6], mask).argmax() == 7 and pairs.votes([2, 3, 5, 4, 6], mask).argmax() == 8


def test_one_word_has_no_votes() -> None:
    pairs = SkipPairs.count([0, 1, 2, 1, 2, 0], 3, boundary=0)
    assert pairs.votes([1]).tolist() == [0.0] * 3
    assert as_attention([1], torch.ones(3, 3))[2].shape == (1, 1, 0, 3)


def test_a_text_without_pairs() -> None:
    with pytest.raises(InputError, match="three words"):
        SkipPairs.count([0, 1, 0, 2, 0], 3, boundary=0)

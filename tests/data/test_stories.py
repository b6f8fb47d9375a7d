"""Stories: the format of bAbI and plain lines, what is refused, what is held out, batches and their noise."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
import torch

from headway.data.stories import (
    Asked,
    StoryBatches,
    StoryStore,
    hold_out_stories,
    lines_in,
    noisy_times,
    numbered,
    parse,
    read_stories,
    times,
)
from headway.errors import InputError
from milk import write_stories

BABI = """1 Mary got the milk there.
2 John moved to the bedroom.
3 Where is the milk? \thallway\t1
4 Mary travelled to the hallway.
5 What does Mary have?\tmilk,football\t1 4
1 Fred is tired.
2 Why did fred go?\ttired\t1
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_numbered_lines_are_stories_that_start_at_1(tmp_path: Path) -> None:
    first, second, third = read_stories([written(tmp_path / "qa2_two_train.txt", BABI)])
    assert first.story == ("Mary got the milk there.", "John moved to the bedroom.")
    assert (first.question, first.answer, first.support, first.task) == (
        "Where is the milk?",
        "hallway",
        (0,),
        "qa2_two",
    )
    assert len(second.story) == 3 and second.answer == "milk,football" and second.support == (0, 2)
    assert third.story == ("Fred is tired.",) and (first.number, second.number, third.number) == (1, 1, 2)


def test_plain_lines_are_stories_with_blank_lines_between_them() -> None:
    rows = ["3 men came.", "They sat.", "Who sat?", "", "Joe left.", "Who left?\tjoe"]
    first, second = parse(rows, "x", answered=False)
    assert first.story == ("3 men came.", "They sat.") and first.answer == ""
    assert second.story == ("Joe left.",) and second.answer == "joe"
    assert lines_in("Joe left. Joe sat! Who left?") == ["Joe left.", "Joe sat!", "Who left?"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 A sat.\n3 Who sat?\ta\n", r"line 2: number 3, expected 2 \(or 1 for a new story\)"),
        ("1 A sat.\nWho sat?\ta\n", "line 2: no number"),
        ("1 A sat.\n2 Who sat?\n", "line 2: a question without an answer"),
        ("1 A sat.\n2 Who sat?\t \t1\n", "line 2: a question without an answer"),
        ("1 Who sat?\ta\t1\n", "line 1: a question with no statement before it"),
        ("1 A sat.\n2 Who sat?\ta\t7\n", "line 2: '7' is no number of a statement"),
        ("1 A sat.\n2 Who sat?\ta\tx\n", "line 2: 'x' is no number of a statement"),
        ("1 A sat.\n2 Who sat?\ta\t1\t2\n", "line 2: 3 tabs"),
        ("1 A sat.\n2 ?\ta\t1\n", "line 2: a question without words"),
        ("1 A sat.\n2 B sat.\n", "there is no question in it"),
        (f"1 A sat.\n{'9' * 9999} B sat.\n", "line 2: number 99999999999999999999, expected 2"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_stories([written(tmp_path / "stories.txt", text)])


def test_a_member_of_a_tar_is_read_in_place(tmp_path: Path) -> None:
    path = tmp_path / "all.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in ("en/other.txt", "en/qa2_two_train.txt"):
            entry = tarfile.TarInfo(name)
            entry.size = len(BABI.encode())
            archive.addfile(entry, io.BytesIO(BABI.encode()))
    assert len(read_stories([path / "en/qa2_two_train.txt"])) == 3
    with pytest.raises(InputError, match="has no member 'en/qa3.txt'"):
        read_stories([path / "en/qa3.txt"])
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=r"is not a whole \.tar\.gz"):
        read_stories([path / "en/qa2_two_train.txt"])


def test_questions_of_one_story_are_held_out_together(tmp_path: Path) -> None:
    asked = read_stories([write_stories(tmp_path / "milk.txt", 60)])
    train, held = hold_out_stories(asked, 0.1)
    assert len(train) + len(held) == len(asked) == 120 and 8 <= len(held) <= 16
    assert not {one.number for one in train} & {one.number for one in held}
    assert hold_out_stories(asked[::-1], 0.1)[1] == held[::-1]


def codes(texts: list[str]) -> list[list[int]]:
    return [[4 + sum(map(ord, word)) % 90 for word in text.split()] for text in texts]


def store_of(asked: list[Asked], memory: int = 50) -> StoryStore:
    return StoryStore(asked, numbered(asked, ("milk,football", "tired")), codes, memory)


def test_the_last_sentences_are_kept_and_times_count_back_from_the_question(tmp_path: Path) -> None:
    store = store_of(read_stories([written(tmp_path / "a.txt", BABI)]), memory=2)
    inputs = store.inputs(torch.arange(3))
    assert inputs.times_BS.tolist() == [[2, 1], [2, 1], [1, 0]] and store.labels_N.tolist() == [-1, 0, 1]
    assert inputs.words_BSW[1, 1].tolist() == [*codes(["Mary travelled to the hallway"])[0]]
    assert inputs.words_BSW[2, 1].eq(0).all() and inputs.question_BQ[2].tolist()[:4] == codes(["Why did fred go"])[0]


def test_noise_moves_sentences_back_in_time_and_keeps_their_order() -> None:
    torch.manual_seed(1)
    counts = torch.arange(1, 41)
    plain = times(counts, 40)
    draws = torch.randint(0, 2**31, (40, 6))
    noisy = noisy_times(plain, counts, draws, 0.1, 42)
    more = (noisy - plain)[plain > 0]
    assert more.min() == 0 and 1 <= more.max() <= 4 and ((noisy == 0) == (plain == 0)).all() and noisy.max() <= 42
    for row, count in zip(noisy.tolist(), counts.tolist(), strict=True):
        if row[0] < 42:  # none was held at the last time
            assert all(a > b for a, b in zip(row[: count - 1], row[1:count], strict=True))
    assert noisy_times(plain, counts, draws, 0.0, 50).equal(plain)


def test_batches_are_a_function_of_the_step_and_shuffled_ones_are_full(tmp_path: Path) -> None:
    store = store_of(read_stories([write_stories(tmp_path / "milk.txt", 25)]))
    batches = StoryBatches(store, 8, seed=3, noise=0.5)
    assert batches.per_epoch == 6
    some = [batches.batch(step) for step in (0, 5, 6, 0)]
    assert some[0].examples == some[3].examples != some[2].examples and all(len(batch) == 8 for batch in some)
    assert some[0].inputs.times_BS.equal(some[3].inputs.times_BS)
    assert any(
        not batch.inputs.times_BS.eq(store.inputs(torch.tensor(batch.examples)).times_BS).all() for batch in some
    )
    held = list(StoryBatches(store, 8, seed=0, shuffle=False).epoch())
    assert [one for batch in held for one in batch.examples] == list(range(50))

"""Questions with their contexts: SQuAD's JSON and JSON lines, what is wrong with them, windows of long contexts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headway.data.answer_windows import AnswerStore, framed_windows
from headway.data.questions import Answer, Question, hold_out_questions, read_questions
from headway.errors import InputError, TooLong
from headway.text.tokenizer import TextOptions, Tokenizer

CONTEXT = "The café in Zürich opened in 1907. Ada Lovelace never saw it."


def squad(*asked: dict[str, Any], context: str = CONTEXT, title: str = "Cafés") -> dict[str, Any]:
    return {"version": "v2.0", "data": [{"title": title, "paragraphs": [{"context": context, "qas": list(asked)}]}]}


def asked(start: Any = 29, text: str = "1907", **more: Any) -> dict[str, Any]:
    answers = [{"text": text, "answer_start": start}]
    return {"question": "When did it open?", "id": "q7", "answers": answers} | more


def test_squads_json_packed_or_not_gives_questions_and_their_answers(tmp_path: Path) -> None:
    facts = squad(asked(), {"question": "Who paid?", "id": "q8", "answers": [], "is_impossible": True})
    (tmp_path / "a.json").write_text(json.dumps(facts, indent=1))
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(json.dumps(facts).encode()))
    plain, packed = (read_questions([tmp_path / name]) for name in ("a.json", "a.json.gz"))
    assert [one[:4] for one in plain] == [one[:4] for one in packed]
    first, second = plain
    assert first.answers == (Answer("1907", 29),) and CONTEXT[29:33] == "1907" and first.article == "Cafés"
    assert second.answers == () and second.answer is None and second.place == f"{tmp_path / 'a.json'}, question q8"


def test_lines_may_leave_the_start_out_or_have_columns(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"answers": [{"text": "Ada Lovelace", "start": 35}]},
        {"answers": [{"text": "in"}]},
        {"answers": {"text": ["1907", "in 1907"], "answer_start": [29, 26]}},
        {},
    ]
    common = {"context": CONTEXT, "question": "Who?"}
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(common | row) + "\n" for row in rows))
    found = read_questions([tmp_path / "a.jsonl"])
    starts = [[answer.start for answer in one.answers] for one in found]
    assert starts == [[35], [9], [29, 26], []] and found[3].place.endswith("line 4")
    assert found[0].article == CONTEXT  # without a title, questions of one context stay together


def test_a_model_is_trained_on_the_answer_that_most_people_gave() -> None:
    answers = (Answer("in 1907", 26), Answer("1907", 29), Answer("1907", 29))
    assert Question("q", CONTEXT, answers, "a", "p").answer == Answer("1907", 29)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (squad(asked(28)), "question q7: the answer '1907' is not in its context at character 28 .there: ' 190'"),
        (squad(asked(-4)), "at character -4"),
        (squad(asked(10**40)), "is not in its context at character 1000"),
        (squad(asked("29")), "the start of the answer '1907' is str, not a number"),
        (squad(asked(0, " ")), "question q7, an answer: the text is empty"),
        (squad(asked(), context=" "), "article 'Cafés', paragraph 1: the context is empty"),
        (squad(asked(question="")), "question q7: the question is empty"),
        (squad(asked(answers=[3])), "question q7: 'answers' must be a list of objects"),
        (squad(asked(answers={"text": ["a"], "start": []})), "an object of lists of one length"),
        ({"data": {}}, "'data' must be a list of objects"),
        ([], "list, expected an object with 'data'"),
        (squad(), "there is no question in it"),
    ],
)
def test_what_is_wrong_is_said_with_the_question(tmp_path: Path, facts: Any, message: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match=message):
        read_questions([tmp_path / "a.json"])


def test_broken_json_is_said_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(squad(asked()), indent=1).replace('"qas": [', '"qas": ['[:-1]))
    with pytest.raises(InputError, match=r"a\.json, line \d+: not JSON"):
        read_questions([tmp_path / "a.json"])
    (tmp_path / "a.jsonl").write_text(json.dumps({"context": CONTEXT, "question": "?"}) + '\n{"context": ""\n')
    with pytest.raises(InputError, match=r"a\.jsonl, line 2: not JSON"):
        read_questions([tmp_path / "a.jsonl"])
    (tmp_path / "a.jsonl").write_text(json.dumps({"context": "a cat", "question": "?", "answers": [{"text": "dog"}]}))
    with pytest.raises(InputError, match=r"a\.jsonl, line 1: the answer 'dog' is not in its context$"):
        read_questions([tmp_path / "a.jsonl"])
    with pytest.raises(InputError, match=r"cannot read .*a\.csv as questions: give SQuAD's"):
        read_questions([tmp_path / "a.csv"])


def test_articles_are_held_out_whole() -> None:
    questions = [Question(f"q{n}", "c", (), f"article {n % 10}", "") for n in range(100)]
    train, held = hold_out_questions(questions, 0.2)
    assert len(held) == 20 and not {one.article for one in train} & {one.article for one in held}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([CONTEXT, "When did it open?"] * 2, TextOptions(size=290, lowercase=True))


@given(words=some.lists(some.sampled_from(["café", "opened", "1907,", "Zürich"]), min_size=1, max_size=40),
       longest=some.integers(12, 60), stride=some.integers(1, 40))  # fmt: skip
def test_windows_cover_the_text_and_overlap(tokenizer: Tokenizer, words: list[str], longest: int, stride: int) -> None:
    context = " ".join(words)
    [whole] = framed_windows(tokenizer, [("open?", context)], 10_000, 128, truncate=True)
    [cut] = framed_windows(tokenizer, [("open?", context)], longest, stride, truncate=True)
    tokens = [window.ids[window.begin : window.end] for window in cut]
    text = whole[0].ids[whole[0].begin : whole[0].end]
    assert len(whole) == 1 and all(len(window.ids) <= longest for window in cut)
    assert all(window.ids[-1:] == whole[0].ids[-1:] and window.ids[0] == whole[0].ids[0] for window in cut)
    at, joined = 0, list(tokens[0])
    room = max(map(len, tokens))
    for some_tokens in tokens[1:]:
        at += max(1, min(stride, room // 2))
        assert at <= len(joined)  # no token is left out
        joined = joined[:at] + some_tokens
    assert joined == text
    for start in range(0, len(context), 7):
        answer = Answer(context[start : start + 5], start)
        if answer.text.strip() == answer.text:
            for window in cut:
                first, last = window.ends(answer)
                if first:
                    left, right = window.characters(context, first, last)
                    assert answer.text in context[left:right] and left <= start


def test_an_answer_that_a_window_cuts_is_none_of_it(tokenizer: Tokenizer) -> None:
    question = Question("open?", CONTEXT, (Answer("1907", 29),), "a", "p")
    found = framed_windows(tokenizer, [question.text], 24, 4)
    store = AnswerStore([question], found, 0, spans=True)
    by_hand = []
    for window in store.windows:
        inside = [at for at in range(window.begin, window.end) if window.spans[at][1] > 29 and window.spans[at][0] < 33]
        covers = inside and window.spans[inside[0]][0] <= 29 and window.spans[inside[-1]][1] >= 33
        by_hand.append((inside[0], inside[-1]) if covers else (0, 0))
    assert list(zip(store.first_N, store.last_N, strict=True)) == by_hand
    assert (0, 0) in by_hand and len(set(by_hand)) > 1


def test_a_question_that_leaves_no_room_is_refused_or_cut(tokenizer: Tokenizer) -> None:
    pair = ("When did it open? " * 5, CONTEXT)
    with pytest.raises(TooLong, match=r"question 1 has \d+ tokens, at most 10 leave room for the text: shorten it"):
        list(framed_windows(tokenizer, [pair], 24, 4))
    [cut] = framed_windows(tokenizer, [pair], 24, 4, truncate=True)
    assert all(len(window.ids) <= 24 and window.end > window.begin for window in cut)

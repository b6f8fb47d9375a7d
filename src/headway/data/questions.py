"""Questions about texts that have their answers: read from files, held out by article.

What a file is, is decided by its name. `.json` is SQuAD's, 1.1 or 2.0 (Rajpurkar et al. 2016, 2018): articles of
paragraphs, each a context with questions. `.jsonl` has an object a line: "context", "question" and "answers", each with
its "text" and the character it starts at ("start"; without one, the first place of the text). A question without
answers is one that its context does not answer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headway.data.readers import at_least_one, bare_suffix, lines, records, text_of
from headway.data.split import hold_out_by_hash
from headway.errors import InputError, refuse

ACCEPTED = "give SQuAD's .json, or a .jsonl of context, question and answers; .gz, .zst and .xz of these are read too"
SHOWN = 40  # characters of a text in a message
STARTS = ("start", "answer_start")


class Answer(NamedTuple):
    """start: its first character in the context."""

    text: str
    start: int


class Question(NamedTuple):
    """answers: any of them is right; none: the context has no answer. article: what is held out together. place: file
    and line, or file and id, for messages."""

    question: str
    context: str
    answers: tuple[Answer, ...]
    article: str
    place: str

    @property
    def text(self) -> tuple[str, str]:
        """As an encoder reads it."""
        return self.question, self.context

    @property
    def answer(self) -> Answer | None:
        """The answer that a model is trained on: the one that most people gave, of several such the first."""
        return Counter(self.answers).most_common(1)[0][0] if self.answers else None


def read_questions(files: Sequence[str | Path]) -> list[Question]:
    """The questions of all files, in order."""
    found = (question for file in files for question in _read(Path(file)))
    return list(at_least_one(found, f"{', '.join(map(str, files))}: there is no question in it"))


def is_questions(file: str) -> bool:
    """Whether a file's name says that it has questions with their contexts."""
    return bare_suffix(Path(file)) in READERS


def hold_out_questions(questions: Sequence[Question], share: float) -> tuple[list[Question], list[Question]]:
    """The training questions and the held-out ones: whole articles, chosen by a hash of their titles."""
    return hold_out_by_hash(questions, [question.article for question in questions], share, "questions")


def _read(path: Path) -> Iterator[Question]:
    suffix = bare_suffix(path)
    if suffix not in READERS:
        raise InputError(f"cannot read {path} as questions: {ACCEPTED}")
    return READERS[suffix](path)


def _squad(path: Path) -> Iterator[Question]:
    for article in _objects(_whole(path), "data", str(path)):
        title = str(article.get("title", ""))
        for number, paragraph in enumerate(_objects(article, "paragraphs", f"{path}, article '{title[:SHOWN]}'"), 1):
            here = f"{path}, article '{title[:SHOWN]}', paragraph {number}"
            context = _filled(paragraph, "context", here)
            for asked in _objects(paragraph, "qas", here):
                yield _question(asked, context, title or context, f"{path}, question {str(asked.get('id'))[:SHOWN]}")


def _whole(path: Path) -> dict[str, Any]:
    """The object that a .json is."""
    try:
        found = json.loads("\n".join(lines(path)))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}, column {error.colno})") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error})") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: {type(found).__name__}, expected an object with 'data' as SQuAD has it")
    return found


def _lines(path: Path) -> Iterator[Question]:
    for where, record in records(lines(path), str(path), "'context', 'question' and 'answers'"):
        context = _filled(record, "context", where)
        yield _question(record, context, str(record.get("title") or context), where)


READERS = {".json": _squad, ".jsonl": _lines}


def _objects(record: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    found = record.get(key)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise InputError(f"{where}: '{key}' must be a list of objects")
    return found


def _filled(record: dict[str, Any], key: str, where: str) -> str:
    text = text_of(record, key, where)
    refuse(not text.strip(), f"{where}: the {key} is empty")
    return text


def _question(record: dict[str, Any], context: str, article: str, place: str) -> Question:
    question, given = _filled(record, "question", place), record.get("answers") or []
    if isinstance(given, dict):  # the columns of a table: all texts, all starts
        given = _rows(given, place)
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise InputError(f"{place}: 'answers' must be a list of objects with 'text' and 'start'")
    impossible = record.get("is_impossible") is True
    return Question(
        question, context, () if impossible else tuple(_answer(one, context, place) for one in given), article, place
    )  # fmt: skip


def _rows(columns: dict[str, Any], place: str) -> list[dict[str, Any]]:
    lists = list(columns.values())
    if not all(isinstance(one, list) and len(one) == len(lists[0]) for one in lists):
        raise InputError(f"{place}: 'answers' must be a list of objects, or an object of lists of one length")
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def _answer(record: dict[str, Any], context: str, place: str) -> Answer:
    text = _filled(record, "text", f"{place}, an answer")
    key = next((key for key in STARTS if key in record), None)
    start = context.find(text) if key is None else record[key]
    if not isinstance(start, int) or isinstance(start, bool):
        raise InputError(f"{place}: the start of the answer '{text[:SHOWN]}' is {type(start).__name__}, not a number")
    refuse(key is None and start < 0, f"{place}: the answer '{text[:SHOWN]}' is not in its context")
    if start < 0 or context[start : start + len(text)] != text:
        there = context[max(start, 0) : max(start, 0) + min(len(text), SHOWN)]
        raise InputError(
            f"{place}: the answer '{text[:SHOWN]}' is not in its context at character {str(start)[:SHOWN]} "
            f"(there: '{there}'); count characters from 0, not bytes"
        )
    return Answer(text, start)

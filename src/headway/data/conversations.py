"""Conversations and preferences between two answers, from JSON lines.

A line is an object of one of these shapes; `.gz`, `.zst` and `.xz` of the file are read too:

    {"messages": [{"role": "user", "content": …}, {"role": "assistant", "content": …}, …]}
    {"prompt": …, "completion": …}              a prompt, as a text or as messages, and its answer
    {"prompt": …, "chosen": …, "rejected": …}   two answers: texts, or messages
    {"chosen": …, "rejected": …}                two whole conversations that part at their last answers: messages, or
                                                "\\n\\nHuman: …\\n\\nAssistant: …" (Bai et al. 2022)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from headway.data.readers import at_least_one, bare_suffix, lines, records, text_of
from headway.data.split import hold_out_by_hash
from headway.errors import InputError, refuse
from headway.text.chat import Message

ACCEPTED = 'give a .jsonl whose lines have "messages", or "prompt", "chosen" and "rejected"'
EXPECTED = '"messages", "prompt" and "completion", or "chosen" and "rejected"'
ROLES = ("system", "user", "assistant", "tool")
ANSWERING = "assistant"
TURN = re.compile(r"\n\n(Human|Assistant):")
SPEAKERS = {"Human": "user", "Assistant": ANSWERING}
NAMED = 2  # lines that are left out which a message names

Broken = Literal["refuse", "skip"]
Say = Callable[[str], object]


class Conversation(NamedTuple):
    """messages: the last is an answer. place: file and line, for messages of errors."""

    messages: tuple[Message, ...]
    place: str

    @property
    def first(self) -> str:
        """What was said first: conversations that begin alike are held out together."""
        return self.messages[0]["content"]


class Preference(NamedTuple):
    """A prompt and two answers to it, the first of which is preferred."""

    prompt: tuple[Message, ...]
    chosen: str
    rejected: str
    place: str

    @property
    def first(self) -> str:
        return self.prompt[0]["content"]

    def answered(self, answer: str) -> Conversation:
        return Conversation((*self.prompt, {"role": ANSWERING, "content": answer}), self.place)


def read_conversations(files: Sequence[str | Path], broken: Broken = "refuse", say: Say = print) -> list[Conversation]:
    """Those of all files, in order; of a preference the answer that was chosen. broken: a line that is none of the
    shapes is an error ("refuse"), or is left out and told ("skip")."""
    return _read(_conversation, files, broken, say)


def read_preferences(files: Sequence[str | Path], broken: Broken = "refuse", say: Say = print) -> list[Preference]:
    """Those of all files, in order."""
    return _read(_preference, files, broken, say)


def hold_out_begun_alike(values: Sequence[Any], share: float) -> tuple[list[Any], list[Any]]:
    """The training values and the held-out ones, chosen by a hash of what was said first."""
    return hold_out_by_hash(values, [value.first for value in values], share, "conversations")


def _read(shape: Callable[..., Any], files: Sequence[str | Path], broken: Broken, say: Say) -> list[Any]:
    left: list[str] = []

    def found() -> Iterator[Any]:
        for where, record in _objects(files):
            try:
                yield shape(record, where)
            except InputError as error:
                if broken == "refuse":
                    raise InputError(f"{error}; --set data.broken=skip leaves such lines out") from None
                left.append(str(error))

    read = list(at_least_one(found(), f"{', '.join(map(str, files))}: there is no conversation in it"))
    if left:
        say(f"left out {len(left):,} of {len(left) + len(read):,} lines that cannot be used: {'; '.join(left[:NAMED])}")
    return read


def _objects(files: Sequence[str | Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in map(Path, files):
        refuse(bare_suffix(path) != ".jsonl", f"cannot read {path} as conversations: {ACCEPTED}")
        yield from records(lines(path), str(path), EXPECTED)


def _conversation(record: dict[str, Any], where: str) -> Conversation:
    if "messages" in record:
        found = Conversation(_messages(record["messages"], "messages", where), where)
        refuse(found.messages[-1]["role"] != ANSWERING, f"{where}: the last message is not the assistant's")
        return found
    if "completion" in record:
        prompt = _prompt(record, where)
        return Conversation((*prompt, _answer(record, "completion", where)), where)
    found_pair = _preference(record, where)
    return found_pair.answered(found_pair.chosen)


def _preference(record: dict[str, Any], where: str) -> Preference:
    for key in ("chosen", "rejected"):
        refuse(key not in record, f"{where}: no key {key!r}: a line has {EXPECTED}")
    if "prompt" in record:
        prompt = _prompt(record, where)
        chosen, rejected = (_answer(record, key, where)["content"] for key in ("chosen", "rejected"))
    else:
        whole = [_whole(record, key, where) for key in ("chosen", "rejected")]
        (*begun, last), (*other, second) = whole
        refuse(begun != other, f"{where}: 'chosen' and 'rejected' part before their last answers")
        refuse(not begun, f"{where}: there is no message before the answers")
        prompt, chosen, rejected = tuple(begun), last["content"], second["content"]
    return Preference(prompt, chosen, rejected, where)


def _prompt(record: dict[str, Any], where: str) -> tuple[Message, ...]:
    if isinstance(record.get("prompt"), str):
        return ({"role": "user", "content": _filled(text_of(record, "prompt", where), "prompt", where)},)
    found = _messages(record.get("prompt"), "prompt", where)
    refuse(found[-1]["role"] == ANSWERING, f"{where}: the prompt ends with an answer")
    return found


def _answer(record: dict[str, Any], key: str, where: str) -> Message:
    """A text, or a list with the one message that answers."""
    given = record[key]
    if isinstance(given, list):
        *more, last = _messages(given, key, where)
        wrong = bool(more) or last["role"] != ANSWERING
        refuse(wrong, f"{where}: {key!r} must be one message, the assistant's, behind the prompt")
        return last
    return {"role": ANSWERING, "content": _filled(text_of(record, key, where), key, where)}


def _whole(record: dict[str, Any], key: str, where: str) -> tuple[Message, ...]:
    """A whole conversation that ends with an answer."""
    given = record[key]
    found = _turns(text_of(record, key, where), key, where) if isinstance(given, str) else None
    found = _messages(given, key, where) if found is None else found
    refuse(found[-1]["role"] != ANSWERING, f"{where}: {key!r} does not end with the assistant's answer")
    return found


def _turns(text: str, key: str, where: str) -> tuple[Message, ...]:
    before, *parts = TURN.split(text)
    refuse(before.strip() or not parts, f"{where}: {key!r} without a \"prompt\" must begin with '\\n\\nHuman: '")
    said = zip(parts[::2], parts[1::2], strict=True)
    return tuple({"role": SPEAKERS[who], "content": _filled(text.strip(), key, where)} for who, text in said)


def _messages(given: Any, key: str, where: str) -> tuple[Message, ...]:
    refuse(not isinstance(given, list) or not given, f"{where}: {key!r} must be a list of messages, or a text")
    for number, one in enumerate(given, 1):
        if not isinstance(one, dict):
            raise InputError(f"{where}: message {number} is {type(one).__name__}, expected a role and a content")
        role = text_of(one, "role", f"{where}, message {number}")
        refuse(role not in ROLES, f"{where}: message {number} has the role {role[:40]!r}, expected {', '.join(ROLES)}")
        _filled(text_of(one, "content", f"{where}, message {number}"), f"message {number}", where)
    return tuple({"role": one["role"], "content": one["content"]} for one in given)


def _filled(text: str, key: str, where: str) -> str:
    refuse(not text.strip(), f"{where}: {key!r} is empty")
    return text

"""Texts with their summaries, from JSON lines: a text, or its sentences, and one summary or several by several people.

The first summary of a text is learned; all of them judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headway.data.readers import at_least_one, bare_suffix, lines, records, text_of
from headway.errors import refuse


class Summary(NamedTuple):
    """A text, and what people wrote of it."""

    text: str
    summaries: tuple[str, ...]


def read_summaries(files: Sequence[str | Path], text: str, summary: str) -> list[Summary]:
    """Those of all files, in order. text, summary: the keys of a line."""
    found = (one for path in map(Path, files) for one in _read(path, text, summary))
    return list(at_least_one(found, f"{', '.join(map(str, files))}: there is no text with a summary in it"))


def _read(path: Path, text: str, summary: str) -> Any:
    wanted = f"a .jsonl with {text!r} and {summary!r} in each line"
    refuse(bare_suffix(path) != ".jsonl", f"cannot read {path} as texts with summaries: give {wanted}")
    for where, record in records(lines(path), str(path), f"{text!r} and {summary!r}"):
        body, told = (_texts(record, key, where) for key in (text, summary))
        yield Summary(" ".join(" ".join(body).split()), tuple(" ".join(one.split()) for one in told))


def _texts(record: dict[str, Any], key: str, where: str) -> list[str]:
    """The text under a key, or the list of texts there; none is blank."""
    given = record.get(key)
    several = given if isinstance(given, list) else [given]
    texts = [text_of({key: one} if key in record else {}, key, where) for one in several]
    refuse(not any(one.strip() for one in texts), f"{where}: {key!r} is empty")
    return [one for one in texts if one.strip()]

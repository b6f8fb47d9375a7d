"""JSON from outside, which may hold anything: size, nesting, Unicode and numbers are checked in one place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headway.errors import InputError

LARGEST = 256 << 20  # bytes of a file
DEEPEST = 60


def read_object(path: Path, missing: str = "the folder is incomplete") -> dict[str, Any]:
    """The object that a file holds; an error names the file and what was expected."""
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise InputError(f"{path} has {size:,} bytes: a file of facts has {LARGEST:,} at most")
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path} is missing: {missing}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    return parsed(data, str(path))


def parsed(data: bytes | str, name: str) -> dict[str, Any]:
    """The object that a text holds; `name` says of what."""
    found = _loaded(data, name)
    if not isinstance(found, dict):
        kind = {list: "a list", str: "a text", type(None): "null"}.get(type(found), "a number")
        raise InputError(f"{name} must hold an object with keys, not {kind}")
    _check(found, name)
    return found


def _loaded(data: bytes | str, name: str) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no number of JSON")

    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise InputError(f"{name} is nested too deeply: {DEEPEST} levels at most") from None
    except ValueError as error:  # no UTF-8, no JSON, a number of thousands of digits
        raise InputError(f"{name} cannot be read: {error}") from None


def _check(value: dict[str, Any], name: str) -> None:
    """Level by level: no text that cannot be written again, and not too many levels."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner.extend(one)
                inner.extend(one.values())
            elif isinstance(one, list):
                inner.extend(one)
            elif isinstance(one, str) and not one.isascii() and any("\ud800" <= letter <= "\udfff" for letter in one):
                raise InputError(f"{name} has half a character in {one[:40]!r}: it was damaged")
        level = inner
        if not level:
            return
    raise InputError(f"{name} is nested too deeply: {DEEPEST} levels at most")

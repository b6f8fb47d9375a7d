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
    return parsed(_bytes(path, missing), str(path))


def read_list(path: Path, missing: str = "the folder is incomplete") -> list[Any]:
    """The list that a file holds."""
    return _parsed(_bytes(path, missing), str(path), list, "a list")


def _bytes(path: Path, missing: str) -> bytes:
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise InputError(f"{path} has {size:,} bytes: a file of facts has {LARGEST:,} at most")
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path} is missing: {missing}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None


def parsed(data: bytes | str, name: str, finite: bool = True) -> dict[str, Any]:
    """The object that a text holds; `name` says of what. finite: numbers may not be NaN or infinite."""
    return _parsed(data, name, dict, "an object with keys", finite)


def _parsed(data: bytes | str, name: str, kind: type, wanted: str, finite: bool = True) -> Any:
    def refuse_constant(constant: str) -> None:
        raise ValueError(f"{constant} is no number of JSON")

    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        found = json.loads(text, parse_constant=refuse_constant if finite else None)
    except RecursionError:
        raise InputError(f"{name} is nested too deeply: {DEEPEST} levels at most") from None
    except ValueError as error:  # no UTF-8, no JSON, a number of thousands of digits
        raise InputError(f"{name} cannot be read: {error}") from None
    if not isinstance(found, kind):
        names = {dict: "an object", list: "a list", str: "a text", type(None): "null"}
        raise InputError(f"{name} must hold {wanted}, not {names.get(type(found), 'a number')}")
    _check(found, name)
    return found


def encodable(text: str) -> bool:
    """Whether a text is UTF-8: JSON and arguments may hold half a surrogate pair, which is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check(value: Any, name: str) -> None:
    """Level by level: no text that cannot be written again, and not too many levels."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += [*one, *one.values()]
            elif isinstance(one, list):
                inner += one
            elif isinstance(one, str) and not encodable(one):
                raise InputError(f"{name} has half a character in {one[:40]!r}: it was damaged")
        level = inner
        if not level:
            return
    raise InputError(f"{name} is nested too deeply: {DEEPEST} levels at most")

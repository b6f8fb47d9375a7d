"""JSON from outside: whatever it holds, an object or one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway import outside
from headway.errors import InputError

WRONG = {
    "a list": b"[]",
    "a text": b'"x"',
    "null": b"null",
    "a number": b"3",
    "cut": b'{"a": ',
    "no UTF-8": b'{"a": "\xff\xfe"}',
    "half a character": b'{"a": "\\ud800"}',
    "half a character in a key": b'{"\\udc00": 1}',
    "not a number": b'{"a": NaN}',
    "infinite": b'{"a": -Infinity}',
    "a number of 5,000 digits": b'{"a": ' + b"9" * 5000 + b"}",
    "nested": b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}",
    "nested beyond Python": b"[" * 100_000 + b"]" * 100_000,
    "empty": b"",
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_object_is_one_line_that_names_the_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_bytes(WRONG[name])
    with pytest.raises(InputError) as caught:
        outside.read_object(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_an_object_is_read_and_a_missing_or_large_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "facts.json"
    with pytest.raises(InputError, match="is missing: the folder is incomplete"):
        outside.read_object(path)
    with pytest.raises(InputError, match="cannot be read"):
        outside.read_object(tmp_path)
    path.write_text('{"é": [1, {"b": null}]}', encoding="utf-8")
    assert outside.read_object(path) == {"é": [1, {"b": None}]}
    monkeypatch.setattr(outside, "LARGEST", 5)
    with pytest.raises(InputError, match="5 at most"):
        outside.read_object(path)

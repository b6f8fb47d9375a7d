"""Texts for a command: from the command line, a file or standard input, one a line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from headway.errors import InputError, refuse


def name_of(file: str) -> str:
    """Its name in an error."""
    return "standard input" if file == "-" else file


def lines_of(file: str) -> Iterator[str]:
    """The lines of a file, `-` for standard input."""
    from headway.data.readers import lines

    if file != "-":
        yield from lines(file)
        return
    for number, raw in enumerate(sys.stdin.buffer, 1):
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise InputError(f"{name_of(file)}, line {number} is not UTF-8 ({error.reason})") from None


def asked(given: list[str], what: str) -> list[str]:
    """The values of the option for a `what`, or one a line from standard input."""
    found = given or list(lines_of("-"))
    refuse(not found, f"no {what}: pass --{what} TEXT, or a {what} a line on standard input")
    return found


def questions_of(given: list[str]) -> list[str]:
    """Questions as they are written, or those of a file, one a line."""
    return [question for one in given for question in (lines_of(one) if Path(one).is_file() else [one])]


def texts_of(given: list[str], file: str | None) -> list[str]:
    """The texts of --text, or those of the file; at least one must not be blank."""
    refuse(given and file is not None, "--text and a file were both given: pass one of them")
    if file and " " in file.strip() and not Path(file).exists():
        raise InputError(f"no file '{file}'; if that is a text, write --text before it")
    if not given and file is None and sys.stdin.isatty():
        print("headway: type a text a line; Ctrl-D ends", file=sys.stderr)
    texts = given or list(lines_of(file or "-"))
    if not any(text.strip() for text in texts):
        raise InputError("there is no text: pass --text TEXT, a file, or a text a line on standard input")
    return texts

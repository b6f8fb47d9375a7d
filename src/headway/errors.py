"""Errors that the user can fix: one line that says what is wrong and what to do, no traceback."""

import errno
from collections.abc import Iterable
from difflib import get_close_matches


class InputError(Exception):
    """Wrong use or bad input. The command line prints its one line and leaves with exit code 2."""


class Notice(Warning):
    """What the user should know although nothing is refused. The command line prints it as one line."""


class TooLong(InputError):
    """A text that is longer than the model reads."""


def refuse(wrong: object, why: str) -> None:
    """Raise `InputError` where something is wrong."""
    if wrong:
        raise InputError(why)


def nearest(wrong: str, right: Iterable[str], listed: str = "") -> str:
    """A hint for an error line: `; did you mean 'x'?`, or all right names when none is similar. `listed`: what shows
    the right names where they are many."""
    known = sorted(right)
    close = get_close_matches(wrong, known, n=1)
    if close:
        return f"; did you mean '{close[0]}'?"
    if listed:
        return f"; {listed} shows those there are"
    return f"; there is: {', '.join(known)}" if known else ""


def is_full(error: BaseException) -> bool:
    """Whether an error means that the disk, or the user's quota on it, is full."""
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error)


def of_library(error: BaseException) -> str:
    """What an error of the tokenizers library says, a panic of its Rust code too, which is no `Exception`; anything
    else that is none (Ctrl-C), and an error of our own, is raised again."""
    if isinstance(error, InputError) or (not isinstance(error, Exception) and type(error).__name__ != "PanicException"):
        raise error
    return " ".join(str(error).split()) or "the library gave up on it"

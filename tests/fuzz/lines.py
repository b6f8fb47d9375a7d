"""What an answer must look like: exit 0, or one clear line; no traceback, no Python exception's name, in time."""

from __future__ import annotations

import re

from forked import Outcome

EXCEPTION = re.compile(r"Traceback|\b[A-Z]\w*(?:Error|Exception|Interrupt|Warning|Panic)\b")


def fault(outcome: Outcome) -> str | None:
    """What is wrong with an answer to a bad or good command line; None: nothing."""
    said = outcome.err.strip()
    if outcome.late:
        return f"still at work after {outcome.seconds:.0f} s"
    if outcome.code not in (0, 1, 2):
        return f"exit {outcome.code}"
    if found := EXCEPTION.search(said + outcome.out):
        return f"a Python exception's name: {found[0]}"
    last = said.split("\n")[-1]
    if outcome.code and not (last.startswith("headway: ") or "headway: " in last):
        return "no line of its own"
    return None

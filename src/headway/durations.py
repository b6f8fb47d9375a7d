"""Durations as people say them."""

from __future__ import annotations

UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def spoken(seconds: float) -> str:
    """`45 s`, `3 min 20 s`, `1 h 12 min`, `2 d 3 h`: the largest unit that fits and the one below it."""
    if seconds < 1:
        return f"{max(seconds, 0.0):.2g} s"
    for (large, size), (small, part) in zip(UNITS, UNITS[1:], strict=False):
        # Rounded to the smaller unit first, so that 59 min 60 s is an hour.
        count, rest = divmod(round(seconds / part), size // part)
        if count:
            return f"{count:,} {large}" + (f" {rest} {small}" if rest else "")
    return f"{round(seconds)} s"

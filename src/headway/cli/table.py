"""Tables of plain text."""

from __future__ import annotations

from collections.abc import Container, Sequence


def aligned(rows: Sequence[Sequence[str]], left: Container[int] = (0,)) -> list[str]:
    """A line for each row: the columns of these numbers on the left, the others on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pads = [str.ljust if number in left else str.rjust for number in range(len(widths))]
    return ["  ".join(pad(*cell) for pad, *cell in zip(pads, row, widths, strict=True)).rstrip() for row in rows]

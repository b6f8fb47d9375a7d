"""Tables of plain text."""

from __future__ import annotations

from collections.abc import Container, Sequence


def aligned(rows: Sequence[Sequence[str]], left: Container[int] = (0,)) -> list[str]:
    """A line for each row: the columns of these numbers on the left, the others on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    forms = [f"{{:{'<' if number in left else '>'}{width}}}" for number, width in enumerate(widths)]
    return ["  ".join(forms).format(*row).rstrip() for row in rows]

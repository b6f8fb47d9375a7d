"""HTML for notebooks: small tables, with everything that comes from outside escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

MOST = 40  # rows and columns of a heat map that are shown
LONGEST = 300  # characters of a text
LEFT = "text-align:left"


def shortened(text: str, longest: int = LONGEST) -> str:
    """In one line, cut where it is long."""
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def facts_table(title: str, facts: Mapping[str, str]) -> str:
    """A bold title above a name and a value a row."""
    rows = "".join(
        f'<tr><th style="{LEFT}">{escape(name)}</th><td style="{LEFT}">{escape(shortened(value))}</td></tr>'
        for name, value in facts.items()
    )
    return f"<div><b>{escape(title)}</b><table>{rows}</table></div>"


def heat_table(weights: Any, rows: Sequence[str], columns: Sequence[str], caption: str) -> str:
    """Numbers from 0 on as shades: the largest is the darkest. A cell's tooltip has its number."""
    shown = weights[:MOST, :MOST]
    largest = float(shown.max(initial=0.0)) or 1.0
    cut = f" (the first {MOST})" if max(weights.shape) > MOST else ""
    top = "".join(f"<th>{escape(column)}</th>" for column in columns[:MOST])
    body = "".join(
        f'<tr><th style="text-align:right">{escape(row)}</th>{"".join(_cell(value, largest) for value in values)}</tr>'
        for row, values in zip(rows, shown.tolist(), strict=False)
    )
    whole = f"<caption>{escape(caption)}{cut}</caption><tr><td></td>{top}</tr>{body}"
    return f'<div style="overflow-x:auto"><table>{whole}</table></div>'


def _cell(value: float, largest: float) -> str:
    shade = max(0.0, min(1.0, value / largest)) if value == value else 0.0
    return f'<td title="{value:.3f}" style="background:rgba(31,119,180,{shade:.2f});min-width:1.2em"></td>'

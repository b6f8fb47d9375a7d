"""How the tables of `table.py` write a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Column = tuple[str, str, Callable[[Any], str]]  # key of the row, heading, how a value is written


def times(value: Any) -> str:
    return f"{value:.2f} ×"


def two_digits(value: Any) -> str:
    return f"{value:.2f}"


def count(value: Any) -> str:
    return f"{value:,.0f}"


def number(value: Any) -> str:
    return f"{value:g}" if value else "0"


def rate(value: Any) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def share(value: Any) -> str:
    return f"{100 * value:.0f} %"


def tenths(value: Any) -> str:
    return f"{100 * value:.1f} %"


def one_digit(value: Any) -> str:
    return f"{value:.1f}"


def code(value: Any) -> str:
    return f"`{value}`"


def tiny(value: Any) -> str:
    """3.8e-07 as 3.8·10⁻⁷; what is not tiny as it is."""
    if not 0 < abs(value) < 1e-3:
        return f"{value:.2g}"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits}·10{str(int(power)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def signed(value: Any) -> str:
    return f"{value:+.2f}".replace("-", "−")


def minus(value: Any) -> str:
    return f"{value:.2f}".replace("-", "−")

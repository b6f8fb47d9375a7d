"""Formats of other programs, in and out. Importing this registers them for every command and loads nothing heavy."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from headway.formats import FORMATS, Format


def _later(module: str, name: str) -> Callable[..., Any]:
    """A function of this package, whose module is imported when it is called."""
    return lambda *given: getattr(import_module(f"headway.hub.{module}"), name)(*given)


FORMATS.append(
    Format(
        "Hugging Face",
        _later("reading", "find_foreign"),
        _later("reading", "foreign_card"),
        _later("reading", "read_foreign"),
        _later("explain", "explained"),
    )
)

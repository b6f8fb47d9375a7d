"""Formats of other programs, in and out. Importing this registers them for every command and loads nothing heavy."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from headway.formats import FORMATS, Format


def _reading(name: str) -> Callable[..., Any]:
    """A function of `headway.hub.reading`, which is imported when it is called."""
    return lambda *given: getattr(import_module("headway.hub.reading"), name)(*given)


FORMATS.append(Format("Hugging Face", _reading("find_foreign"), _reading("foreign_card"), _reading("read_foreign")))

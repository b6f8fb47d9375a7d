"""Readers for model folders of other formats; `headway.folder` tries them where headway.json is missing.

The registry imports no reader, since imports run downward only; a reader is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

    from headway.card import Card, Loaded


class Format(NamedTuple):
    """find: the folder for the name that the user gave, None where it is not of this format. card: its description
    of the model. read: the model on a device in a precision. explain: why a place is no model, None where it knows
    nothing of it."""

    name: str
    find: Callable[[str], Path | None]
    card: Callable[[Path], Card]
    read: Callable[[Path, torch.device, torch.dtype], Loaded]
    explain: Callable[[str], str | None] = lambda given: None


FORMATS: list[Format] = []

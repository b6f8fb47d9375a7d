"""Model folders of other formats. Whoever can read one registers here; `headway.folder` asks before it gives up.

It stands below everything and loads nothing: imports run downward only, and a reader is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

    from headway.card import Card, Loaded


class Format(NamedTuple):
    """find: the folder that is meant by what a person wrote, None where it is not of this format. card: what it says
    of its model. read: the model on a device in a precision."""

    name: str
    find: Callable[[str], Path | None]
    card: Callable[[Path], Card]
    read: Callable[[Path, torch.device, torch.dtype], Loaded]


FORMATS: list[Format] = []

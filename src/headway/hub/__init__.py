"""Formats of other programs, in and out. Importing this registers them for every command and loads nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headway.formats import FORMATS, Format

if TYPE_CHECKING:
    import torch

    from headway.folder import Card, Loaded


def _find(given: str) -> Path | None:
    from headway.hub.reading import find_foreign

    return find_foreign(given)


def _card(folder: Path) -> Card:
    from headway.hub.reading import foreign_card

    return foreign_card(folder)


def _read(folder: Path, device: torch.device, dtype: torch.dtype) -> Loaded:
    from headway.hub.reading import read_foreign

    return read_foreign(folder, device, dtype)


FORMATS.append(Format("Hugging Face", _find, _card, _read))

"""Folders for CTranslate2, an engine for fast inference on a CPU."""

from __future__ import annotations

from pathlib import Path

from headway.atomic import replaced_folder
from headway.errors import InputError
from headway.folder import Loaded, read_model, write_card
from headway.hub.families.ctranslate2_parts import Engine
from headway.hub.families.exports import EXPORTS, export_of

PRECISIONS = ("float32", "float16", "int8")


def export_ctranslate2(model: str | Path, folder: str | Path, precision: str = "float32") -> None:
    loaded = read_model(model)
    if precision not in PRECISIONS:
        raise InputError(f"CTranslate2 folders are written as {', '.join(PRECISIONS)}, not as {precision}")
    with replaced_folder(Path(folder)) as place:
        write_ctranslate2(place, loaded, precision)


def write_ctranslate2(place: Path, loaded: Loaded, precision: str) -> None:
    """Fill an empty folder with CTranslate2's files, and headway's card and tokenizers beside them."""
    spec = engine_of(loaded.card.family).specification(loaded)
    spec.validate()
    spec.optimize(quantization=precision)
    spec.save(str(place))
    write_card(place, loaded.card, loaded.processors)


def engine_of(family: str) -> Engine:
    if (engine := export_of(family, "CTranslate2").ctranslate2) is None:
        held = ", ".join(name for name, export in EXPORTS.items() if export.ctranslate2)
        raise InputError(f"headway writes the families {held} for CTranslate2, not a {family}")
    return engine

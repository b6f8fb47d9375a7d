"""A model of any kind by its folder, ready for use."""

from __future__ import annotations

from pathlib import Path

from headway.folder import find_model, read_card
from headway.generate import encoder, generator, translator
from headway.generate.encoder import Encoder
from headway.generate.generator import Generator
from headway.generate.tracing import trace
from headway.generate.translator import Translator

__all__ = ["Encoder", "Generator", "Translator", "load", "trace"]


def load(folder: str | Path, device: str = "auto", dtype: str = "auto") -> Translator | Generator | Encoder:
    """What its family is for: a `Translator`, a `Generator` or an `Encoder`."""
    card = read_card(find_model(folder))
    if len(card.vocabularies) == 2:
        return translator.load(folder, device, dtype)
    return (encoder if card.family == "bert" else generator).load(folder, device, dtype)

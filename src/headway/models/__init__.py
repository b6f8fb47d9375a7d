"""Systems: one file a family. `FAMILIES` is the one place where a family's name becomes a class."""

from __future__ import annotations

from typing import Any

from headway.models.gpt import GPT, GPTConfig
from headway.models.transformer import Transformer, TransformerConfig

# Of each: its config, its model, and how many vocabularies that takes.
FAMILIES: dict[str, tuple[Any, Any, int]] = {
    "transformer": (TransformerConfig, Transformer, 2),
    "gpt": (GPTConfig, GPT, 1),
}

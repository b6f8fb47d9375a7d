"""Systems: one file a family. `FAMILIES` is the one place where a family's name becomes a class."""

from __future__ import annotations

from typing import Any, NamedTuple

from headway.models.gpt import GPT, GPTConfig
from headway.models.transformer import Transformer, TransformerConfig


class Family(NamedTuple):
    """A model is built of its config and its vocabularies' sizes: source and target, or the one of a text."""

    config: Any
    model: Any
    vocabularies: int = 1


FAMILIES = {
    "transformer": Family(TransformerConfig, Transformer, 2),
    "gpt": Family(GPTConfig, GPT),
}

ModelConfig = TransformerConfig | GPTConfig

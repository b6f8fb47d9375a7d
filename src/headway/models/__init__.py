"""Systems: one file a family. `FAMILIES` is the one place where a family's name becomes a class."""

from __future__ import annotations

from headway.models.transformer import Transformer, TransformerConfig

FAMILIES = {"transformer": (TransformerConfig, Transformer)}

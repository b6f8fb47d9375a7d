"""Questions about any family's config and model, answered from the usual fields and parts that it has."""

from __future__ import annotations

from typing import Any

from torch import nn

from headway.errors import InputError, refuse
from headway.models.parts import Rotary
from headway.nn.position import Position

SIZES = ("layers", "encoder_layers", "decoder_layers", "heads", "width", "inner")


def window(config: Any, default: int = 0) -> int:
    """Tokens that a model is given at once; `default` for one that is not trained in steps."""
    return int(getattr(config, "max_length", default))


def token_types(config: Any) -> int:
    """How many types of token a model tells apart: the texts of a pair."""
    return int(getattr(config, "types", 0))


def letters(config: Any) -> int:
    """The most letters of a token that a model reads (0: none)."""
    return int(getattr(getattr(config, "letters", None), "most", 0))


def shares_table(config: Any) -> bool:
    """Whether source and target have one table of vectors."""
    return getattr(config, "embeddings", "") in ("shared", "joint")


def check(config: Any) -> None:
    """Refuse sizes that do not fit together."""
    width, heads = getattr(config, "width", 0), getattr(config, "heads", 1)
    refuse(width % heads, f"model.width {width} is not a multiple of model.heads {heads}")
    if heads % (shared := getattr(config, "shared_heads", 0) or heads):
        raise InputError(f"model.heads {heads} is not a multiple of model.shared_heads {shared}")
    if isinstance(getattr(config, "position", None), Rotary) and width // heads % 2:
        raise InputError(f"model.position=rotary turns pairs of numbers: a head cannot be {width // heads} wide")


def family_of(model: nn.Module) -> str:
    """The family's name, or the class of a module that is of none."""
    return str(getattr(getattr(model, "config", None), "name", type(model).__name__))


def sizes_of(model: nn.Module) -> dict[str, int]:
    """Layers, heads and widths as the config names them, and the number of parameters."""
    config = getattr(model, "config", None)
    within = [config, getattr(config, "mixing", None)]
    found = {key: getattr(one, key) for key in SIZES for one in within if isinstance(getattr(one, key, None), int)}
    return found | {"parameters": sum(weight.numel() for weight in model.parameters())}


def tracks_of(model: nn.Module) -> dict[str, tuple[str, str]] | None:
    """The tracks that a model declares; None: a module of no family."""
    return getattr(model, "tracks", None)


def token_tables(model: nn.Module) -> dict[str, nn.Embedding]:
    """Where a text model keeps a vector for each entry of its vocabulary: the embedding tables by name, one that is
    shared once; those of positions are none."""
    positions = {part for position in model.modules() if isinstance(position, Position) for part in position.modules()}
    parts = model.named_modules()
    return {name: part for name, part in parts if isinstance(part, nn.Embedding) and part not in positions}

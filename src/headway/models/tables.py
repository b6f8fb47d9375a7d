"""Where a text model keeps a vector for each entry of its vocabulary."""

from __future__ import annotations

from torch import nn

from headway.nn.position import Position


def token_tables(model: nn.Module) -> dict[str, nn.Embedding]:
    """The embedding tables by name, one that is shared once; those of positions are none."""
    found: dict[str, nn.Embedding] = {}
    for name, module in _below(model, ""):
        if isinstance(module, nn.Embedding) and all(module is not other for other in found.values()):
            found[name] = module
    return found


def _below(module: nn.Module, prefix: str) -> list[tuple[str, nn.Module]]:
    """All parts of a module with their names, but for positions."""
    inside: list[tuple[str, nn.Module]] = []
    for name, part in module.named_children():
        if not isinstance(part, Position):
            inside += [(prefix + name, part), *_below(part, f"{prefix}{name}.")]
    return inside

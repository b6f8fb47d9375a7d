"""Which family a config.json without a model_type describes: its architecture says it, or the weights fit one alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from headway.errors import InputError
from headway.hub.families import FOREIGN
from headway.hub.families.foreign import Foreign
from headway.hub.hf_folder import Weights
from headway.models.blank import blank

META = torch.device("meta")  # sizes alone


def with_model_type(facts: dict[str, Any], weights: Callable[[], Weights], where: str) -> dict[str, Any]:
    if facts.get("model_type"):
        return facts
    asked = facts.get("architectures")
    asked = asked if isinstance(asked, list) else []
    named = [name for name, foreign in FOREIGN.items() if any(one in foreign.architectures for one in asked)]
    if named:
        return facts | {"model_type": named[0]}
    shapes = weights().shapes()
    fitting = [foreign for foreign in FOREIGN.values() if _fits(foreign, facts, shapes)]
    if not fitting:
        raise InputError(f"{where} has no model_type, and its weights are of no family that headway knows: add the key")
    names = [foreign.model_type for foreign in fitting]
    if len(names) > 1:
        raise InputError(f'{where} has no model_type, and its weights fit {" and ".join(names)}: add "model_type": …')
    return facts | {"model_type": names[0]}


def _fits(foreign: Foreign, facts: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> bool:
    """Whether a model of this family, built by these facts, has just these weights."""
    try:
        sizes, (config, head) = (
            foreign.vocabularies(facts),
            foreign.model_in(facts | {"model_type": foreign.model_type}),
        )
        ours = dict(blank(foreign.family, config, sizes, META, torch.float32, head).named_parameters())
        table = foreign.table(ours, config, sizes, head)
        found = {name: shapes[theirs] for name, theirs in table.resolve(shapes).items()}
        table.check(found, ours, "")
    except (InputError, KeyError, ValueError, TypeError, ZeroDivisionError, RuntimeError):
        return False
    return True

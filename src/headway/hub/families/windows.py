"""Which layers see a window alone, in a config.json: `sliding_window`, and `layer_types` or the family's own rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.errors import InputError, refuse
from headway.hub.config_keys import Field, Fields, Keys, NoCounterpart

KINDS = {"sliding_attention": True, "full_attention": False}
Rule = Callable[[Keys, int], bool]  # of the keys and a layer's number


def _windowed(keys: Keys, rule: Rule, default: int) -> tuple[int, tuple[int, ...]]:
    """The window, and the layers that have it; (0, ()) where none has."""
    layers = keys.size("num_hidden_layers")
    width = int(keys.take("sliding_window", 0 if "sliding_window" in keys.facts else default, int))
    kinds = keys.take("layer_types", None, list)
    if kinds is None:
        kinds = ["sliding_attention" if rule(keys, number) else "full_attention" for number in range(layers)]
    if len(kinds) != layers or any(kind not in KINDS for kind in kinds):
        raise InputError(f"{keys.where}: layer_types must be {' or '.join(KINDS)} for each of {layers} layers")
    found = tuple(number for number, kind in enumerate(kinds) if KINDS[kind])
    refuse(found and width < 1, f"{keys.where}: layers have a sliding window, but sliding_window is {width}")
    return (width, found) if found else (0, ())


def by_layer(rule: Rule, default: int = 0, switch: bool = False) -> Fields:
    """Each layer for itself. `rule`: where layer_types does not say. `switch`: use_sliding_window turns all on and
    off."""

    def read(keys: Keys) -> tuple[int, tuple[int, ...]]:
        on = not switch or keys.flag("use_sliding_window", False)
        found = _windowed(keys if on else _without_window(keys), lambda keys, n: on and rule(keys, n), default)
        keys.used |= {"sliding_window", "layer_types"}
        return found

    def write(windowed: tuple[int, ...], config: Any) -> dict[str, Any]:
        kinds = ["sliding_attention" if number in windowed else "full_attention" for number in range(config.layers)]
        # Some programs make a mask for the window even where no layer has it.
        width = config.window or (None if switch else 4096)
        said = {"use_sliding_window": bool(windowed)} if switch else {}
        return {"layer_types": kinds, "sliding_window": width} | said

    return {
        "window": Field(lambda keys: read(keys)[0], lambda window, config: {}),
        "windowed": Field(lambda keys: read(keys)[1], write),
    }


def _without_window(keys: Keys) -> Keys:
    return Keys(keys.facts | {"sliding_window": None}, keys.where, keys.usual)


def every_layer() -> Fields:
    """All layers or none."""

    def read(keys: Keys) -> int:
        refuse(keys.facts.get("sliding_window") == 0, f"{keys.where}: sliding_window is 0: no token would see itself")
        return int(keys.take("sliding_window", 0, int))

    def write(windowed: tuple[int, ...], config: Any) -> dict[str, Any]:
        if windowed not in ((), tuple(range(config.layers))):
            raise NoCounterpart
        return {"sliding_window": config.window or None}

    return {
        "window": Field(read, lambda window, config: {}),
        "windowed": Field(lambda keys: tuple(range(keys.size("num_hidden_layers"))) if read(keys) else (), write),
    }

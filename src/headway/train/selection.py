"""Which weights of a model are trained, and at which share of the rate: by name, by layer, or by adapters alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from headway.errors import InputError, nearest, refuse


def choose_trained(model: nn.Module, run: Any) -> None:
    """Freeze what the run's engine does not train, and put its adapters in."""
    engine = run.engine
    freeze(model, engine.frozen, engine.last_layers)
    if engine.adapters is not None:
        refuse(not run.init, "engine.adapters trains a few weights beside those of a trained model: --init MODEL")
        engine.adapters.put_into(model, engine.seed, () if run.head is None else ("head",))


def counts(model: nn.Module) -> tuple[int, int]:
    """How many parameters the model has, and how many of them are trained."""
    weights = list(model.parameters())
    return sum(w.numel() for w in weights), sum(w.numel() for w in weights if w.requires_grad)


def rates_of(model: nn.Module, engine: Any) -> dict[str, float]:
    """What the rate of each trained weight is multiplied by."""
    names = [name for name, weight in model.named_parameters() if weight.requires_grad]
    by_width = engine.parametrisation.rates(model)
    found = {name: factor * by_width.get(name, 1.0) for name, factor in factors(names, engine.rates).items()}
    if engine.layer_decay == 1:
        return found
    depth_of = depths(model, "engine.layer_decay")
    return {name: factor * engine.layer_decay ** depth_of[name] for name, factor in found.items()}


def decays_of(model: nn.Module, engine: Any) -> dict[str, float]:
    """What the decay of some weights is multiplied by: where the width lowers the rate, a step takes away as much."""
    return {name: 1 / factor for name, factor in engine.parametrisation.rates(model).items()}


def selects(name: str, given: str) -> bool:
    """Whether `given` selects a weight: as the beginning of its name, or as a pattern for all of it. The weights of an
    encoder below a head may be named without `encoder.` too."""
    names = (name, name.removeprefix("encoder."))
    return any(one == given or one.startswith(f"{given}.") or fnmatchcase(one, given) for one in names)


def factors(names: Sequence[str], rates: Mapping[str, float]) -> dict[str, float]:
    """What each weight's rate is multiplied by; of several names that select it, the longest counts."""
    for given, factor in rates.items():
        _must_select(names, given, "engine.rates")
        above = f"must be above 0, not {factor} (engine.frozen holds)"
        refuse(factor <= 0, f"engine.rates: the factor of '{given}' {above}")
    by_length = sorted(rates, key=len, reverse=True)
    return {name: next((rates[given] for given in by_length if selects(name, given)), 1.0) for name in names}


def freeze(model: nn.Module, frozen: Sequence[str], last_layers: int | None = None) -> None:
    """The selected weights stay as they are: no gradient is computed for them. `last_layers`: so do those that lie
    below the last so many layers."""
    weights = dict(model.named_parameters())
    for given in frozen:
        _must_select(list(weights), given, "engine.frozen")
    depth_of = {} if last_layers is None else depths(model, "engine.last_layers")
    layers = max(map(len, stacks(model).values()), default=0)
    refuse(
        last_layers is not None and last_layers > layers,
        f"engine.last_layers={last_layers}: the model has {layers} layers; leave it out to train every weight",
    )
    for name, weight in weights.items():
        if any(selects(name, given) for given in frozen) or depth_of.get(name, 0) > (last_layers or 0):
            weight.requires_grad_(False)


def stacks(model: nn.Module) -> dict[str, nn.ModuleList]:
    """The model's stacks of layers by name; one inside another's layer is a part of that."""
    found: dict[str, nn.ModuleList] = {}
    for name, part in model.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in found)
        if isinstance(part, nn.ModuleList) and name.rpartition(".")[2] == "layers" and not inside:
            found[name] = part
    return found


def depths(model: nn.Module, key: str) -> dict[str, int]:
    """How deep each weight lies below the top: 0 above the layers, such as a head's, 1 in a stack's last layer, 2 in
    the one below it …; what comes before the layers, such as an embedding, lies below the first. `key`: the setting
    that asks."""
    found, sizes = {}, {name: len(layers) for name, layers in stacks(model).items()}
    refuse(not sizes, f"{key}: the model has no stack of layers; engine.frozen and engine.rates take names of weights")
    below = 1 + max(sizes.values())
    for name, _ in model.named_parameters():
        stack = next((stack for stack in sizes if name.startswith(f"{stack}.")), None)
        if stack is not None:
            found[name] = sizes[stack] - int(name.removeprefix(f"{stack}.").partition(".")[0])
            below = 0
        else:
            found[name] = below
    return found


def _must_select(names: Sequence[str], given: str, key: str) -> None:
    if not any(selects(name, given) for name in names):
        begins = dict.fromkeys(name.rsplit(".", depth)[0] for depth in (0, 1, 2, 3) for name in names)
        raise InputError(f"{key}: no weight's name begins with '{given}'{nearest(given, begins)}")

"""Adapters: few new weights that are trained in place of a model's own, and merged into those when it is written."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headway.errors import InputError, nearest, refuse
from headway.folder import weights_of
from headway.nn.low_rank import Adapted, can_adapt, merge_adapters, replace_parts
from headway.nn.weights import kept_tensors
from headway.tasks.start import earlier_model
from headway.train.selection import selects, stacks


@dataclass(frozen=True)
class Lora:
    """W + (alpha/rank)·BA for linear maps of the layers (Hu et al. 2022); W stays as it is.

    on: which of them, by the last part of their names (`qkv`, `output`) or as in `engine.frozen` (empty: all).
    """

    name: ClassVar[str] = "lora"
    rank: int = 8
    alpha: float = 16.0
    on: tuple[str, ...] = ()

    def put_into(self, model: nn.Module, seed: int, whole: Sequence[str] = ()) -> None:
        """Freeze every weight but those that `whole` selects, and give the linear maps their adapters. A map whose
        weights were frozen already gets none."""
        random = torch.Generator().manual_seed(seed)
        chosen = {name: part for name, part in self._chosen(model).items() if _is_trained(part)}
        refuse(not chosen, "engine.adapters: the linear maps that it names are all frozen (engine.frozen)")
        for name, weight in model.named_parameters():
            weight.requires_grad_(weight.requires_grad and any(selects(name, given) for given in whole))
        replace_parts(model, {part: Adapted(part, self.rank, self.alpha, random) for part in chosen.values()})

    def _chosen(self, model: nn.Module) -> dict[str, Any]:
        below = tuple(f"{stack}." for stack in stacks(model))
        maps: dict[str, Any] = {
            name: part for name, part in model.named_modules() if can_adapt(part) and name.startswith(below)
        }
        refuse(not maps, "engine.adapters: the model has no layers with linear maps to adapt")
        for given in self.on:
            if not any(_names(given, name) for name in maps):
                known = dict.fromkeys(name.rpartition(".")[2] for name in maps)
                raise InputError(
                    f"engine.adapters.on: no linear map of a layer is named '{given}'{nearest(given, known)}"
                )
        return {name: part for name, part in maps.items() if not self.on or any(_names(one, name) for one in self.on)}


def _names(given: str, name: str) -> bool:
    return name.rpartition(".")[2] == given or selects(name, given)


def _is_trained(part: nn.Module) -> bool:
    return all(weight.requires_grad for weight in part.parameters())


def finished(model: nn.Module, weights: Mapping[str, Tensor], run: Any) -> dict[str, Tensor]:
    """The chosen weights of a trained model as they are written: adapters merged, and what was frozen as exact as the
    model has it that the run started from, where training has rounded it."""
    rounded = {name for name, w in model.named_parameters() if not w.requires_grad and w.dtype == torch.bfloat16}
    earlier = earlier_model(run) if rounded else None
    start = {} if earlier is None else kept_tensors(earlier.model)
    as_given = {name: name.replace(".base.", ".") for name in rounded}
    exact = {name: start[given].detach().float() for name, given in as_given.items() if given in start}
    return merged(model, {**weights, **exact})


@torch.no_grad()
def merged(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """These weights of a model with adapters as weights of the same model without, in float32. Of a model without
    adapters they stay as they are."""
    if not any(isinstance(part, Adapted) for part in model.modules()):
        return dict(weights)
    whole = copy.deepcopy(model).to("cpu", torch.float32)
    for name, tensor in kept_tensors(whole).items():
        tensor.copy_(weights[name])
    merge_adapters(whole)
    return weights_of(whole)

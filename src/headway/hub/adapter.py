"""LoRA adapters (Hu et al. 2022) in peft's format: W + (α/r)·BA is merged while the base model's weights are read."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.errors import InputError, refuse
from headway.hub.checkpoint import ADAPTER, Checkpoint, opened, opener_of
from headway.hub.hf_folder import Weights, weights_named
from headway.hub.names import listed
from headway.hub.vocabularies import read_tokenizers
from headway.outside import read_object

FILE = "adapter_model"
PREFIX = "base_model.model."
# A matrix of an adapter: the module, which matrix, and the adapter's name, which older files have.
MATRIX = re.compile(r"(?P<module>.+)\.lora_(?P<embedding>embedding_)?(?P<part>[AB])(\.\w+)??(\.weight)?")
WHOLE = re.compile(r"(?P<module>.+?)(\.modules_to_save(\.\w+)?)?\.(?P<end>weight|bias)")
# Settings of other methods than LoRA's own, with the values at which they change nothing.
OFF: dict[str, tuple[Any, ...]] = {
    "use_dora": (None, False), "bias": (None, "none"), "lora_bias": (None, False), "layer_replication": (None,),
    "trainable_token_indices": (None,), "target_parameters": (None, []), "use_qalora": (None, False),
}  # fmt: skip


def adapted(folder: Path) -> Checkpoint:
    """The base model with the adapter merged into it; a tokenizer in the adapter's folder has precedence."""
    facts = read_object(folder / ADAPTER)
    where = str(folder / ADAPTER)
    refuse(facts.get("peft_type") != "LORA", f"{where}: peft_type is {facts.get('peft_type')!r}, headway merges 'LORA'")
    for key, allowed in OFF.items():
        refuse(facts.get(key) not in allowed, f"{where}: {key} is {facts.get(key)!r}, which headway does not have")
    base = opened(_base(folder, facts))
    own = (folder / "tokenizer.json").is_file()
    tokenizers = (lambda: read_tokenizers(folder, base.facts)) if own else base.tokenizers
    return Checkpoint(base.where, base.facts, lambda: Merged(base.weights, folder, facts), tokenizers, base.folder)


def _base(folder: Path, facts: dict[str, Any]) -> Path:
    """The base model: beside the adapter, where its config says, or of the hub."""
    name = facts.get("base_model_name_or_path")
    if not isinstance(name, str) or not name:
        raise InputError(f"{folder / ADAPTER} lacks the key 'base_model_name_or_path'")
    for place in (folder / "base", Path(name), folder.parent / Path(name).name):
        if place != folder and opener_of(place) is not None:
            return place
    missing = f"{folder} is an adapter of {name}, which is not there: put that model into {folder / 'base'}"
    if Path(name).is_absolute() or len(name.split("/")) != 2:
        raise InputError(missing)
    from headway.hub.remote import bring

    try:
        return bring(name)
    except InputError as error:
        raise InputError(f"{missing} ({error})") from error


class Merged:
    """The weights of the base model, each with what the adapter adds to it or puts in its place."""

    def __init__(self, base: Weights, folder: Path, facts: dict[str, Any]) -> None:
        self.base, self.facts = base, facts
        self.own = weights_named(folder, FILE)
        self.where = self.own.where
        shapes = base.shapes()
        self.matrices: dict[str, dict[str, str]] = {}  # of a weight: A and B, by their names in the adapter's file
        self.whole: dict[str, str] = {}
        for name in self.own.shapes():
            inner = name.removeprefix(PREFIX)
            if found := MATRIX.fullmatch(inner):
                weight = self._named(f"{found['module']}.weight", shapes)
                self.matrices.setdefault(weight, {})[f"{found['embedding'] or ''}{found['part']}"] = name
            elif found := WHOLE.fullmatch(inner):
                self.whole[self._named(f"{found['module']}.{found['end']}", shapes)] = name
            else:
                raise InputError(f"{self.where} has '{name}', which is no weight of a LoRA adapter")
        if odd := [name for name, parts in self.matrices.items() if len(parts) != 2]:
            raise InputError(f"{self.where} has one of the two matrices of {listed(odd)}: it is incomplete")

    def _named(self, name: str, shapes: dict[str, tuple[int, ...]]) -> str:
        """The weight in the base's file, which leaves out the first part of the name where it has no head."""
        for known in (name, name.partition(".")[2]):
            if known in shapes:
                return known
        raise InputError(f"{self.where} changes '{name}', which the base model {self.base.where} does not have")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return self.base.shapes()

    def get(self, name: str) -> Tensor:
        if name in self.whole:
            return self.own.get(self.whole[name])
        weight = self.base.get(name)
        if name not in self.matrices:
            return weight
        parts = self.matrices[name]
        embedding = "embedding_A" in parts
        first, second = (self.own.get(parts[part]).float() for part in sorted(parts))
        added = second @ first
        if embedding or self.facts.get("fan_in_fan_out"):
            added = added.mT
        if added.shape != weight.shape:
            shapes = f"{list(added.shape)}, expected {list(weight.shape)}"
            raise InputError(f"{self.where}: what is added to '{name}' has the shape {shapes}")
        wide = torch.promote_types(weight.dtype, torch.float32)
        return weight.to(wide) + self._scale(name.removesuffix(".weight"), len(first)) * added

    def _scale(self, module: str, rank: int) -> float:
        alpha = _by_name(self.facts.get("alpha_pattern"), module, self.facts.get("lora_alpha", 8))
        refuse(not isinstance(alpha, int | float), f"{self.where}: lora_alpha is {str(alpha)[:40]}, expected a number")
        return float(alpha) / (math.sqrt(rank) if self.facts.get("use_rslora") else rank)

    def joined(self, names: list[str]) -> Tensor | None:
        return None if any(name in self.matrices or name in self.whole for name in names) else self.base.joined(names)


def _by_name(patterns: Any, module: str, usual: Any) -> Any:
    """The value of the first pattern that is the end of a module's name."""
    for pattern, value in (patterns or {}).items():
        if re.fullmatch(rf"(.*\.)?({pattern})", module):
            return value
    return usual

"""Weights of a program around `torch.nn.Transformer`, whatever it calls its parts: which is which, and what they say.

D width, P positions, V vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.errors import InputError, refuse
from headway.hub.families.foreign import SHARED
from headway.hub.families.torch_transformer import TORCH
from headway.hub.hf_folder import InMemory, SafeWeights, unpickled
from headway.hub.names import listed
from headway.nn.position import halved_sinusoid, sinusoid

Tensors = dict[str, Tensor]
SAFE = ".safetensors"
WRAPPED = ("model_state_dict", "state_dict", "model")  # where a training program's file has them, beside other things
FIRST = re.compile(r"(.*)layers\.0\.self_attn\.in_proj_weight")
LAYER = re.compile(r"layers\.\d+\.self_attn\.in_proj\.weight")
POSITION = re.compile(r"(^|[._])(pe|pos[a-z]*)($|[._])", re.IGNORECASE)
OUTPUT = re.compile(r"^(?!.*emb).*(out|head|gener|logit|proj|linear|fc)", re.IGNORECASE)
SIDES = {
    "source": re.compile(r"(^|[._])(src|source|enc(?=[._]|oder)|input)", re.IGNORECASE),
    "target": re.compile(r"(^|[._])(tgt|trg|target|dec(?=[._]|oder)|output)", re.IGNORECASE),
}
FORMULAS = {"pairs": sinusoid, "halves": halved_sinusoid}
NEAR = 1e-3  # a sinusoid that was computed in float32
TABLES = {(True, True): "shared", (False, True): "tied", (True, False): "joint", (False, False): "separate"}


def tensors_in(path: Path) -> Tensors:
    """By name, wherever they lie in the file; none where it holds something else."""
    if path.suffix == SAFE:
        weights = SafeWeights(path)
        found: Any = {name: weights.get(name) for name in weights.shapes()}
    else:
        found = unpickled(path)
    if isinstance(found, Mapping):
        found = next((found[key] for key in WRAPPED if isinstance(found.get(key), Mapping)), found)
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, Tensor) and _is_weight(value)}


def _is_weight(tensor: Tensor) -> bool:
    """A number, or whole ones, are counters and masks."""
    return tensor.dim() > 0 and tensor.is_floating_point()


def names_in(path: Path) -> Collection[str]:
    """Of `tensors_in`, without reading more than that takes."""
    return SafeWeights(path).file_of if path.suffix == SAFE else tensors_in(path)


def stacks(names: Collection[str]) -> dict[str, str]:
    """What the names of encoder and decoder begin with; none where these weights are of another model. The decoder is
    the one with attention on the source."""
    crossed = {
        found[1]: f"{found[1]}layers.0.multihead_attn.in_proj_weight" in names
        for name in names
        if (found := FIRST.fullmatch(name))
    }
    encoders, decoders = ([start for start in crossed if crossed[start] == is_decoder] for is_decoder in (False, True))
    return {"encoder": encoders[0], "decoder": decoders[0]} if len(encoders) == len(decoders) == 1 else {}


class TorchWeights(InMemory):
    """Under the names of `headway.hub.families.torch_transformer`. facts: what they say, as keys of that family."""

    def __init__(self, where: Path, tensors: Tensors) -> None:
        self.where, self.tensors = where, {}
        starts = stacks(tensors)
        inside = tuple(f"{start}{part}." for start in starts.values() for part in ("layers", "norm"))
        for side, start in starts.items():
            own = tuple(name for name in inside if name.startswith(start))
            found = {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(own)}
            self.tensors |= {f"{side}.{name}": tensor for name, tensor in _stack(found).items()}
        width, inner = (self._size("encoder.layers.0.linear1.weight", axis) for axis in (1, 0))
        self.facts: dict[str, Any] = {"model_type": TORCH.model_type, "d_model": width, "dim_feedforward": inner}
        for side in starts:
            layers = [name for name in self.tensors if name.startswith(side) and LAYER.fullmatch(name, len(side) + 1)]
            self.facts[f"num_{side}_layers"] = len(layers)
        self.final = "encoder.norm.weight" in self.tensors or "decoder.norm.weight" in self.tensors
        outside = {name: tensor for name, tensor in tensors.items() if not name.startswith(inside)}
        self._place_positions({name: outside.pop(name) for name in [*outside] if _is_position(name, outside[name])})
        self._place_tables(outside)

    def _size(self, name: str, axis: int) -> int:
        found = self.tensors.get(name)
        refuse(found is None or found.dim() != 2, f"{self.where} lacks {name}, or it is no matrix")
        return int(self.tensors[name].shape[axis])

    def _place_positions(self, found: Tensors) -> None:
        """A sinusoid is a formula; any other table is learned."""
        width = self.facts["d_model"]
        tables = {name: tensor.squeeze() for name, tensor in found.items()}
        if odd := [name for name, table_PD in tables.items() if table_PD.dim() != 2 or table_PD.shape[1] != width]:
            raise InputError(f"{self.where} has {listed(odd)}, expected a table of positions of width {width}")
        kinds = {_kind(table_PD) for table_PD in tables.values()}
        refuse(
            len(kinds) > 1, f"{self.where} has {listed([*tables])}: headway has one kind of positions for both sides"
        )
        kind = kinds.pop() if kinds else "pairs"
        if kind not in FORMULAS:
            for side, name in self._by_side([*tables], "tables of positions").items():
                self.tensors[f"{side}.position.weight"] = tables[name]
        self.facts |= {"position": kind, "max_length": min(map(len, tables.values()), default=0)}

    def _place_tables(self, outside: Tensors) -> None:
        """Embeddings and the output projection. A tied weight lies in the file more than once."""
        head = self._head(outside)
        weight_VD, bias_V = outside.pop(f"{head}.weight"), outside.pop(f"{head}.bias", None)
        side = self._by_side(sorted(outside), "embeddings")
        source_VD, target_VD = outside[side["source"]], outside[side["target"]]
        joint, tied = _same(source_VD, target_VD), _same(target_VD, weight_VD)
        self.tensors |= {"source.weight": source_VD} | ({} if joint else {"target.weight": target_VD})
        if bias_V is not None and not tied:  # the last column of headway's head
            refuse(bias_V.shape != weight_VD.shape[:1], f"{self.where}: {head}.bias does not fit {head}.weight")
            self.tensors["head.weight"] = torch.cat([weight_VD, bias_V[:, None]], 1)
        else:
            self.tensors |= {} if tied else {"head.weight": weight_VD}
            self.tensors |= {} if bias_V is None else {"head.bias": bias_V}
        self.facts |= {"embeddings": TABLES[joint, tied], "output_bias": bias_V is not None}
        self.facts |= {"vocab_size": len(source_VD), "decoder_vocab_size": len(target_VD), SHARED: False}

    def _head(self, outside: Tensors) -> str:
        """The one with a bias, else the one with such a name."""
        width = self.facts["d_model"]
        modules = [name.removesuffix(".weight") for name in outside if name.endswith(".weight")]
        named = [name for name in modules if f"{name}.bias" in outside] or [
            name for name in modules if OUTPUT.search(name)
        ]
        odd = [name for name, tensor in outside.items() if not name.endswith(".bias") and tensor.shape[1:] != (width,)]
        if odd or len(named) != 1 or not 2 <= len(modules) <= 3:
            raise InputError(
                f"{self.where} has {listed(sorted(outside)) or 'nothing'} beside its stacks: expected one table of "
                f"embeddings, or one for each side, and one output projection, all of width {width}"
            )
        return named[0]

    def _by_side(self, names: list[str], what: str) -> dict[str, str]:
        """One for both sides, or one for each, by their names."""
        if len(names) == 1:
            return dict.fromkeys(SIDES, names[0])
        found = {side: [name for name in names if pattern.search(name)] for side, pattern in SIDES.items()}
        if len(names) != 2 or found["source"] == found["target"] or any(len(one) != 1 for one in found.values()):
            raise InputError(
                f"{self.where}: of its {what}, {listed(names)}, the names do not say which is the source's"
            )
        return {side: one[0] for side, one in found.items()}


def _stack(found: Tensors) -> Tensors:
    """Packed projections under the names of headway's parts: those of attention on the source are two. A model without
    biases computes as one whose biases are 0."""
    result: Tensors = {}
    for name, tensor in found.items():
        name = name.replace(".in_proj_", ".in_proj.")
        if ".multihead_attn.in_proj." not in name:
            result[name] = tensor
            continue
        width = len(tensor) // 3
        for part, rows in (("query", tensor[:width]), ("key_value", tensor[width:])):
            result[name.replace("in_proj", part)] = rows
    if not any(name.endswith("bias") for name in result):
        result |= {
            name.removesuffix("weight") + "bias": tensor.new_zeros(len(tensor)) for name, tensor in result.items()
        }
    return result


def _is_position(name: str, tensor: Tensor) -> bool:
    return bool(POSITION.search(name)) or tensor.dim() == 3


def _kind(table_PD: Tensor) -> str:
    positions_P, width = torch.arange(len(table_PD)), table_PD.shape[1]
    for name, formula in FORMULAS.items():
        if torch.allclose(table_PD.double(), formula(positions_P, width), rtol=0, atol=NEAR):
            return name
    return "learned"


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)

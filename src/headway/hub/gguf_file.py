"""GGUF, llama.cpp's file of a model: metadata, tokenizer and (quantised) weights, read through the `gguf` library.

What each architecture calls its keys and weights is in `gguf_architectures.py`. Quantised weights become float32 when
they are read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.errors import InputError, nearest, of_library
from headway.extras import wanted
from headway.hub.checkpoint import Checkpoint
from headway.hub.gguf_architectures import ARCHITECTURES, Architecture, stored_shape
from headway.hub.gguf_tokenizer import gguf_tokenizer
from headway.hub.hf_folder import NotMapped
from headway.models.rotary_scaling import Llama3

FREQUENCIES, UNSCALED = "rope_freqs.weight", "none"
SCALING = {
    "rope.scaling.type": "rope_type", "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
}  # fmt: skip
WITH_LENGTH = ("yarn",)
# Keys that say nothing more, or nothing about the computation.
NOTHING_MORE = ("attention.value_length", "rope.dimension_count", "rope.scaling.attn_factor", "vocab_size")


def gguf_file(path: Path) -> Checkpoint:
    file = _parsed(path, path.stat().st_mtime_ns)
    kind = str(file.facts.get("general.architecture"))
    if kind not in ARCHITECTURES:
        raise InputError(f"{path}: headway reads no GGUF file of a '{kind}'{nearest(kind, ARCHITECTURES)}")
    facts = _config(file, kind, ARCHITECTURES[kind])
    tokenizer = lru_cache(lambda: gguf_tokenizer(file.facts, path))
    weights = GgufWeights(path, file.tensors, ARCHITECTURES[kind], facts)
    return Checkpoint(str(path), facts, lambda: weights, lambda: (tokenizer(), tokenizer()))


@dataclass(frozen=True)
class Parsed:
    facts: dict[str, Any]
    tensors: dict[str, Any]


@lru_cache(maxsize=2)
def _parsed(path: Path, changed: int) -> Parsed:
    library = wanted("gguf", "hub")
    try:
        reader = library.GGUFReader(path)
        facts = {name: value.contents() for name, value in reader.fields.items()}
        return Parsed(facts, {str(tensor.name): tensor for tensor in reader.tensors})
    except Exception as error:  # the library raises many kinds for a broken file
        raise InputError(f"{path} is no GGUF file, or it is broken ({of_library(error)}): copy it again") from error


def _config(file: Parsed, kind: str, architecture: Architecture) -> dict[str, Any]:
    """As config.json would say it. What no table has keeps its name: it is refused as an unknown key."""
    given = {key.removeprefix(f"{kind}."): file.facts[key] for key in file.facts if key.startswith(f"{kind}.")}
    facts = {architecture.keys[key]: value for key, value in given.items() if key in architecture.keys}
    tokens = file.facts.get("tokenizer.ggml.tokens")
    table = file.tensors.get("token_embd.weight")
    if table is not None and len(table.shape) == 2:
        facts["vocab_size"] = int(table.shape[1])
    elif isinstance(tokens, list):
        facts["vocab_size"] = len(tokens)
    facts |= _scaling(given, file, facts)
    known = (*architecture.keys, *NOTHING_MORE, *(key for key in given if key.startswith("rope.scaling.")))
    facts |= {f"{kind}.{key}": value for key, value in given.items() if key not in known}
    whole, turned = facts.get("head_dim") or _share(facts), given.get("rope.dimension_count")
    if architecture.partial and turned is not None and whole:
        facts["partial_rotary_factor"] = turned / whole
    elif turned is not None and turned != whole:
        facts[f"{kind}.rope.dimension_count"] = turned
    if facts.get("sliding_window") == 0:  # some programs write so that there is none
        facts["sliding_window"] = None
    facts["tie_word_embeddings"] = "output.weight" not in file.tensors
    facts |= {key: name in file.tensors for key, name in architecture.told.items()}
    facts |= _derived(architecture, facts, kind)
    ends = [file.facts.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    return facts | {
        "model_type": architecture.model_type, **architecture.fixed, "eos_token_id": [i for i in ends if i is not None]
    }  # fmt: skip


def _derived(architecture: Architecture, facts: dict[str, Any], kind: str) -> dict[str, Any]:
    try:
        return architecture.derived(facts)
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise InputError(f"the file lacks sizes of a {kind}, or they are no numbers: {error}") from error


def _share(facts: dict[str, Any]) -> Any:
    width, heads = facts.get("hidden_size"), facts.get("num_attention_heads")
    return width // heads if isinstance(width, int) and isinstance(heads, int) and heads else None


def _scaling(given: dict[str, Any], file: Parsed, facts: dict[str, Any]) -> dict[str, Any]:
    """Rotary scaling: by its type, or of Llama 3 by the factor of each frequency."""
    if FREQUENCIES in file.tensors:
        return {"rope_scaling": _llama3(file.tensors[FREQUENCIES], facts)}
    if given.get("rope.scaling.type", UNSCALED) == UNSCALED:
        return {}
    found = {name: given[key] for key, name in SCALING.items() if key in given}
    if found["rope_type"] not in WITH_LENGTH:
        found.pop("original_max_position_embeddings", None)
    return {"rope_scaling": found}


def _llama3(tensor: Any, facts: dict[str, Any]) -> dict[str, Any]:
    """The scaling of Llama 3.1 or 3.2 whose factors these are."""
    found = torch.from_numpy(np.array(tensor.data, np.float32)).double()
    base, width = float(facts.get("rope_theta", 10_000.0)), 2 * len(found)
    plain = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    for factor in (8.0, 32.0):
        scaling = Llama3(factor=factor, length=8192, low=1.0, high=4.0)
        if torch.allclose(plain / scaling.frequencies(width, base).double(), found, rtol=1e-4):
            return {
                "rope_type": "llama3", "factor": factor, "original_max_position_embeddings": 8192,
                "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            }  # fmt: skip
    raise InputError(f"its {FREQUENCIES} are the factors of no rotary scaling that headway has")


class GgufWeights(NotMapped):
    """Tensors by Hugging Face's names. A name that no table has is put below the model's own: it is refused."""

    def __init__(self, path: Path, tensors: dict[str, Any], architecture: Architecture, facts: dict[str, Any]) -> None:
        self.where, self.architecture, self.facts = path, architecture, facts
        self.tensors = {self._named(name): tensor for name, tensor in tensors.items() if name != FREQUENCIES}

    def _named(self, name: str) -> str:
        module, _, end = name.rpartition(".")
        found = re.fullmatch(r"blk\.(\d+)\.(.+)", module)
        if found and found[2] in self.architecture.layer:
            return f"{self.architecture.layers}{found[1]}.{self.architecture.layer[found[2]]}.{end}"
        if module in self.architecture.names:
            return f"{self.architecture.names[module]}.{end}"
        return f"{self.architecture.layers.partition('.')[0]}.{name}"

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The file has its axes in the order of memory, the last first."""
        found = {name: tuple(int(size) for size in reversed(tensor.shape)) for name, tensor in self.tensors.items()}
        return {name: stored_shape(self.architecture, name, shape) for name, shape in found.items()}

    def get(self, name: str) -> Tensor:
        tensor = self.tensors[name]
        quants = wanted("gguf.quants", "hub")
        try:
            values = quants.dequantize(tensor.data, tensor.tensor_type)
        except Exception as error:  # a type that the library does not know, or too few bytes
            kind = getattr(tensor.tensor_type, "name", tensor.tensor_type)
            raise InputError(f"{self.where}: '{tensor.name}' ({kind}) cannot be read: {of_library(error)}") from error
        shape = [int(size) for size in reversed(tensor.shape)]
        weight = torch.from_numpy(np.array(values, np.float32).reshape(shape))
        return self.architecture.change(weight, name, self.facts)

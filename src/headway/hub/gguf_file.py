"""GGUF, llama.cpp's file of a model: metadata, tokenizer and (quantised) weights, read through the `gguf` library.

Each architecture is a table of its keys and one of its weights' names, in Hugging Face's words. Quantised weights
become float32 when they are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.errors import InputError, nearest, of_library
from headway.hub.checkpoint import Checkpoint
from headway.hub.extras import wanted
from headway.hub.gguf_tokenizer import gguf_tokenizer
from headway.hub.rotary_rows import from_pairs, to_pairs
from headway.models.rotary_scaling import Llama3

KEYS = {
    "block_count": "num_hidden_layers", "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads", "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta", "attention.key_length": "head_dim", "vocab_size": "vocab_size",
}  # fmt: skip
LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
GPT2_KEYS = {
    "block_count": "n_layer", "context_length": "n_positions", "embedding_length": "n_embd",
    "feed_forward_length": "n_inner", "attention.head_count": "n_head",
    "attention.layer_norm_epsilon": "layer_norm_epsilon", "vocab_size": "vocab_size",
}  # fmt: skip
GPT2_LAYER = {
    "attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
}  # fmt: skip
GPT2_NAMES = {
    "token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f",
    "output": "lm_head",
}  # fmt: skip
FREQUENCIES, UNSCALED = "rope_freqs.weight", "none"
SCALING = {
    "rope.scaling.type": "rope_type", "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
}  # fmt: skip
WITH_LENGTH = ("yarn",)
Change = Callable[[Tensor, str, dict[str, Any]], Tensor]


def _heads(name: str, facts: dict[str, Any]) -> int | None:
    """llama.cpp turns neighbouring pairs of Llama's queries and keys: how many heads such a weight has."""
    key = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
    return None if key is None else int(facts[key])


def _turned(weight: Tensor, name: str, facts: dict[str, Any]) -> Tensor:
    heads = _heads(name, facts)
    return weight if heads is None else from_pairs(weight, heads)


def _turned_back(weight: Tensor, name: str, facts: dict[str, Any]) -> Tensor:
    heads = _heads(name, facts)
    return weight if heads is None else to_pairs(weight, heads)


def _less_one(weight: Tensor, name: str, facts: dict[str, Any]) -> Tensor:
    """The gain of Gemma's norms is 1 + w, and the file holds the gain."""
    return weight - 1 if name.endswith("norm.weight") else weight


def _more_one(weight: Tensor, name: str, facts: dict[str, Any]) -> Tensor:
    return weight + 1 if name.endswith("norm.weight") else weight


def _same(weight: Tensor, name: str, facts: dict[str, Any]) -> Tensor:
    return weight


def _transposed(weight: Tensor, name: str, facts: dict[str, Any]) -> Tensor:
    """GPT-2's matrices are (inputs, outputs)."""
    return weight.mT.contiguous() if name.endswith(".weight") and name.split(".")[-2].startswith("c_") else weight


@dataclass(frozen=True)
class Architecture:
    """What a value of general.architecture means. change: of a weight as it stands in the file; back: the other way.
    fixed: what config.json would always say; told: what it would say of whether a weight is there."""

    model_type: str
    keys: Mapping[str, str] = field(default_factory=lambda: KEYS)
    names: Mapping[str, str] = field(default_factory=lambda: NAMES)
    layer: Mapping[str, str] = field(default_factory=lambda: LAYER)
    layers: str = "model.layers."
    change: Change = _same
    back: Change = _same
    fixed: Mapping[str, Any] = field(default_factory=dict)
    told: Mapping[str, str] = field(default_factory=dict)


ARCHITECTURES = {
    "llama": Architecture("llama", change=_turned, back=_turned_back, told={"attention_bias": "blk.0.attn_q.bias"}),
    "qwen2": Architecture("qwen2"),
    "gemma": Architecture("gemma", change=_less_one, back=_more_one, fixed={"hidden_activation": "gelu_pytorch_tanh"}),
    "gpt2": Architecture("gpt2", GPT2_KEYS, GPT2_NAMES, GPT2_LAYER, "transformer.h.", _transposed, _transposed),
}
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
    if turned is not None and turned != whole:
        facts[f"{kind}.rope.dimension_count"] = turned
    facts["tie_word_embeddings"] = "output.weight" not in file.tensors
    facts |= {key: name in file.tensors for key, name in architecture.told.items()}
    ends = [file.facts.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    return facts | {
        "model_type": architecture.model_type, **architecture.fixed, "eos_token_id": [i for i in ends if i is not None]
    }  # fmt: skip


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


class GgufWeights:
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
        flipped = self.architecture.change is _transposed
        return {name: shape[::-1] if flipped and _is_map(name) else shape for name, shape in found.items()}

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

    def joined(self, names: list[str]) -> Tensor | None:
        return None


def _is_map(name: str) -> bool:
    return name.endswith(".weight") and name.split(".")[-2].startswith("c_")

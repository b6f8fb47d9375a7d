"""Llama as Meta publishes it: params.json, consolidated.*.pth and a SentencePiece tokenizer.model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.errors import InputError, refuse
from headway.hub.checkpoint import META, Checkpoint
from headway.hub.config_keys import Keys
from headway.hub.hf_folder import NotMapped, OldWeights
from headway.hub.rotary_rows import from_pairs
from headway.hub.vocabularies import read_tokenizers
from headway.outside import read_object

# Their names and Hugging Face's; the axis along which several files split a weight (None: each has all of it).
LAYER: dict[str, tuple[str, int | None]] = {
    "attention.wq": ("self_attn.q_proj", 0), "attention.wk": ("self_attn.k_proj", 0),
    "attention.wv": ("self_attn.v_proj", 0), "attention.wo": ("self_attn.o_proj", 1),
    "feed_forward.w1": ("mlp.gate_proj", 0), "feed_forward.w3": ("mlp.up_proj", 0),
    "feed_forward.w2": ("mlp.down_proj", 1), "attention_norm": ("input_layernorm", None),
    "ffn_norm": ("post_attention_layernorm", None),
}  # fmt: skip
NAMES = {"tok_embeddings": ("model.embed_tokens", 1), "norm": ("model.norm", None), "output": ("lm_head", 0)}
USELESS = "rope.freqs"


def meta_folder(folder: Path) -> Checkpoint:
    keys = Keys(read_object(folder / META), META)
    width, heads = keys.size("dim"), keys.size("n_heads")
    refuse(width % heads, f"{folder / META}: dim {width} is not a multiple of {heads} heads")
    shared = keys.size("n_kv_heads", heads)
    weights = MetaWeights(folder, heads, shared)
    shapes = weights.shapes()
    if "model.embed_tokens.weight" not in shapes or "model.layers.0.mlp.gate_proj.weight" not in shapes:
        raise InputError(f"{weights.where} has no weights of a Llama (tok_embeddings, layers.0.feed_forward.w1)")
    scaled = keys.flag("use_scaled_rope", False)
    facts: dict[str, Any] = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": width,
        "num_hidden_layers": keys.size("n_layers"), "num_attention_heads": heads, "num_key_value_heads": shared,
        "rms_norm_eps": keys.number("norm_eps", 1e-5), "rope_theta": keys.number("rope_theta", 10_000.0),
        # Sizes that params.json gives by a rule, or with −1, are those of the weights.
        "vocab_size": shapes["model.embed_tokens.weight"][0],
        "intermediate_size": shapes["model.layers.0.mlp.gate_proj.weight"][0],
        "max_position_embeddings": keys.size("max_seq_len", 131_072 if scaled else 4096),
        "tie_word_embeddings": "lm_head.weight" not in shapes,
    }  # fmt: skip
    if scaled:  # Llama 3.1 and later: the rule's numbers stand in their program
        facts["rope_scaling"] = {
            "rope_type": "llama3", "factor": keys.number("rope_scale_factor", 8.0), "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        }  # fmt: skip
    keys.used.update(("multiple_of", "ffn_dim_multiplier", "vocab_size", "max_batch_size"))
    keys.done()
    return Checkpoint(str(folder / META), facts, lambda: weights, lambda: read_tokenizers(folder, facts))


class MetaWeights(NotMapped):
    """consolidated.00.pth and those that follow, joined."""

    def __init__(self, folder: Path, heads: int, shared: int) -> None:
        files = sorted(folder.glob("consolidated.*.pth"))
        refuse(not files, f"{folder} has {META} and no weights: expected consolidated.00.pth")
        self.where, self.heads, self.shared = files[0], heads, shared
        self.files = [OldWeights(file).tensors for file in files]
        self.theirs = {_named(name): name for name in self.files[0] if name != USELESS}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        found = {}
        for name, theirs in self.theirs.items():
            shape, axis = list(self.files[0][theirs].shape), _axis(theirs)
            if axis is not None:
                shape[axis] = sum(file[theirs].shape[axis] for file in self.files if theirs in file)
            found[name] = tuple(shape)
        return found

    def get(self, name: str) -> Tensor:
        theirs = self.theirs[name]
        axis, parts = _axis(theirs), [file[theirs] for file in self.files if theirs in file]
        if len(parts) != len(self.files):
            raise InputError(f"{self.where.parent}: '{theirs}' is not in every consolidated.*.pth")
        whole = parts[0] if axis is None or len(parts) == 1 else torch.cat(parts, axis)
        turned = {"q_proj": self.heads, "k_proj": self.shared}.get(name.split(".")[-2])
        return whole if turned is None else from_pairs(whole, turned)


def _parted(theirs: str) -> tuple[str, dict[str, tuple[str, int | None]], str]:
    """The beginning of the name in Hugging Face's words, the table of its end, and the end."""
    module = theirs.removesuffix(".weight")
    found = re.fullmatch(r"layers\.(\d+)\.(.+)", module)
    return (f"model.layers.{found[1]}.", LAYER, found[2]) if found else ("", NAMES, module)


def _named(theirs: str) -> str:
    """A weight that is none of Llama's keeps its name, below that of the model: it is refused by name."""
    before, names, module = _parted(theirs)
    return f"{before}{names[module][0]}.weight" if module in names else f"model.{theirs}"


def _axis(theirs: str) -> int | None:
    _, names, module = _parted(theirs)
    return names[module][1] if module in names else None

"""What a value of general.architecture in a GGUF file means: tables of its keys and of its weights' names, in Hugging
Face's words, and how weights lie there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from headway.hub.rotary_rows import from_pairs, to_pairs

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
    return weight.mT.contiguous() if is_map(name) else weight


@dataclass(frozen=True)
class Architecture:
    """change: of a weight as it stands in the file; back: the other way. fixed: what config.json would always say.
    told: what it would say of whether a weight is there. derived: what llama.cpp takes from the other keys. partial: a
    part of each head may be turned."""

    model_type: str
    keys: Mapping[str, str] = field(default_factory=lambda: KEYS)
    names: Mapping[str, str] = field(default_factory=lambda: NAMES)
    layer: Mapping[str, str] = field(default_factory=lambda: LAYER)
    layers: str = "model.layers."
    change: Change = _same
    back: Change = _same
    fixed: Mapping[str, Any] = field(default_factory=dict)
    told: Mapping[str, str] = field(default_factory=dict)
    derived: Callable[[dict[str, Any]], dict[str, Any]] = lambda facts: {}
    partial: bool = False


def _every(full: int) -> Callable[[dict[str, Any]], list[str]]:
    """The kinds of layers where every so many-th sees the whole text."""
    kinds = {False: "sliding_attention", True: "full_attention"}
    return lambda facts: [kinds[(n + 1) % full == 0] for n in range(facts["num_hidden_layers"])]


def _gemma(full: int, largest: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """`largest`: the layers of the size whose scores are scaled by the width of all heads together."""

    def derived(facts: dict[str, Any]) -> dict[str, Any]:
        by_width = facts["num_hidden_layers"] == largest
        scale = facts["hidden_size"] // facts["num_attention_heads"] if by_width else facts.get("head_dim", 256)
        return {"query_pre_attn_scalar": scale, "layer_types": _every(full)(facts)}

    return derived


HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
AROUND = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
GEMMA2_KEYS = KEYS | {
    "attention.sliding_window": "sliding_window", "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}  # fmt: skip
GEMMA_FIXED = {"hidden_activation": "gelu_pytorch_tanh", "attention_bias": False}
LAYER_NORM = {key: name for key, name in KEYS.items() if key != "attention.layer_norm_rms_epsilon"}
ARCHITECTURES = {
    "llama": Architecture("llama", change=_turned, back=_turned_back, told={"attention_bias": "blk.0.attn_q.bias"}),
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture(
        "qwen3", layer=LAYER | HEAD_NORMS, fixed={"attention_bias": False, "use_sliding_window": False}
    ),
    "gemma": Architecture("gemma", change=_less_one, back=_more_one, fixed={"hidden_activation": "gelu_pytorch_tanh"}),
    "gemma2": Architecture(
        "gemma2", GEMMA2_KEYS, layer=LAYER | AROUND, change=_less_one, back=_more_one, fixed=GEMMA_FIXED,
        derived=_gemma(full=2, largest=46),
    ),
    "gemma3": Architecture(
        "gemma3_text", GEMMA2_KEYS, layer=LAYER | AROUND | HEAD_NORMS, change=_less_one, back=_more_one,
        fixed=GEMMA_FIXED | {"rope_local_base_freq": 10_000.0}, derived=_gemma(full=6, largest=62),
    ),
    "olmo2": Architecture(
        "olmo2", layer={key: name for key, name in (LAYER | AROUND | HEAD_NORMS).items()
                        if key not in ("attn_norm", "ffn_norm")}, fixed={"attention_bias": False},
    ),
    "phi3": Architecture(
        "phi3", KEYS | {"attention.sliding_window": "sliding_window"}, partial=True,
        layer=LAYER | {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
    ),
    "starcoder2": Architecture(
        "starcoder2", LAYER_NORM | {"attention.layer_norm_epsilon": "norm_epsilon"},
        layer=LAYER | {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}, told={"use_bias": "blk.0.attn_q.bias"},
        fixed={"hidden_act": "gelu_pytorch_tanh"},
    ),
    "stablelm": Architecture(
        "stablelm", LAYER_NORM | {"attention.layer_norm_epsilon": "layer_norm_eps",
                                  "use_parallel_residual": "use_parallel_residual"},
        told={"use_qkv_bias": "blk.0.attn_q.bias"}, partial=True, fixed={"qk_layernorm": False},
    ),
    "gpt2": Architecture("gpt2", GPT2_KEYS, GPT2_NAMES, GPT2_LAYER, "transformer.h.", _transposed, _transposed),
}  # fmt: skip


def is_map(name: str) -> bool:
    """Whether this is a matrix of GPT-2's."""
    return name.endswith(".weight") and name.split(".")[-2].startswith("c_")


def stored_shape(architecture: Architecture, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in Hugging Face's files of a weight that lies with this one."""
    return shape[::-1] if architecture.change is _transposed and is_map(name) else shape

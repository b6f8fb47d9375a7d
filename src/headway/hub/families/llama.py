"""Llama, Mistral, Qwen2 and Gemma in the Hugging Face format ↔ `headway.models.llama`.

Their weights have the same names. What differs is which choices a config.json can say, and what it leaves unsaid.
"""

from __future__ import annotations

from typing import Any

from headway.errors import InputError, refuse
from headway.hub.config_keys import Field, Fields, Keys, NoCounterpart, choice, flag, number, size
from headway.hub.families.foreign import Foreign, Usual
from headway.hub.families.rotary import LENGTH, SHARE, rotary_keys, scaling_in, scaling_out
from headway.hub.names import Table, below
from headway.models.llama import LlamaConfig, OneRmsNorm
from headway.models.rotary_scaling import Scaling

ACTIVATIONS = {"silu": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"}


def _scaling_in(keys: Keys) -> Scaling:
    inner = rotary_keys(keys)
    inner.must(SHARE, 1.0, 1)
    return scaling_in(inner, keys.size(LENGTH))


def head_width(said: bool) -> Field:
    """`said`: config.json has a key for another width than width/heads."""

    def read(keys: Keys) -> int:
        width: int = keys.take("head_dim", 0, int)
        return 0 if width * keys.size("num_attention_heads") == keys.size("hidden_size") else width

    def write(width: int, config: LlamaConfig) -> dict[str, Any]:
        if said:
            return {"head_dim": width or config.width // config.heads}
        if width not in (0, config.width // config.heads):
            raise NoCounterpart
        return {}

    return Field(read, write)


FIELDS = {
    "layers": size("num_hidden_layers"),
    "width": size("hidden_size"),
    "inner": size("intermediate_size"),
    "heads": size("num_attention_heads"),
    "shared_heads": Field(
        size("num_key_value_heads", lambda keys: keys.size("num_attention_heads")).read,
        lambda heads, config: {"num_key_value_heads": heads or config.heads},
    ),
    "head_width": head_width(said=True),
    "attention_dropout": number("attention_dropout", 0.0),
    "tied": flag("tie_word_embeddings", False),
    "norm.epsilon": number("rms_norm_eps", 1e-6),
    "feed_forward.activation": choice("hidden_act", "silu", ACTIVATIONS),
    "base": Field(lambda keys: rotary_keys(keys).number("rope_theta", 10_000.0), lambda base, config: {}),
    "scaling": Field(_scaling_in, lambda scaling, config: {"rope_parameters": scaling_out(scaling, config.base)}),
    "max_length": size(LENGTH),
}


def _gemma_activation(keys: Keys) -> Any:
    """Gemma was published with "gelu" and trained with its approximation."""
    key = "hidden_activation" if keys.take("hidden_activation") else "hidden_act"
    return keys.choice(key, "gelu_pytorch_tanh", ACTIVATIONS | {"gelu": "gelu-tanh"})


GEMMA_ACTIVATION = Field(_gemma_activation, choice("hidden_act", "", ACTIVATIONS).write)


def _window(keys: Keys, upper: bool) -> tuple[int, int]:
    """The window (0: none), and the first layer that has it. `upper`: it may be another than the first."""
    layers, first = keys.size("num_hidden_layers"), 0
    width = keys.take("sliding_window", 4096 if "sliding_window" not in keys.facts else 0, int)
    on = not upper or keys.flag("use_sliding_window", False)
    refuse(
        on and keys.facts.get("sliding_window") == 0, f"{keys.where}: sliding_window is 0: no token would see itself"
    )
    if upper:
        first = min(layers, keys.take("max_window_layers", 28, int))
        width = width if on else 0
    kinds = keys.take("layer_types", None, list)
    wanted = ["sliding_attention" if width and n >= first else "full_attention" for n in range(layers)]
    if kinds is not None and kinds != wanted:
        # Newer files name the kind of each layer; what they can say beyond a first layer is not known here.
        first = next((n for n, kind in enumerate(kinds) if kind == "sliding_attention"), len(kinds))
        plain = ["full_attention"] * first + ["sliding_attention"] * (len(kinds) - first)
        if kinds != plain or len(kinds) != layers or not width:
            raise InputError(f"{keys.where}: layer_types must be full_attention up to one layer, sliding from there on")
    return (width, first) if width and first < layers else (0, 0)


def _windows(upper: bool) -> Fields:
    def first_out(first: int, config: LlamaConfig) -> dict[str, Any]:
        if first and not upper:
            raise NoCounterpart
        return {"use_sliding_window": config.window > 0, "max_window_layers": first} if upper else {}

    return {
        "window": Field(lambda keys: _window(keys, upper)[0], lambda width, config: {"sliding_window": width or None}),
        "windowed_from": Field(lambda keys: _window(keys, upper)[1], first_out),
    }


LAYER = {
    "attention.qkv": "self_attn.{q,k,v}_proj",
    "attention.output": "self_attn.o_proj",
    "feed_forward.expand": "mlp.{gate,up}_proj",
    "feed_forward.contract": "mlp.down_proj",
    "around_attention.before": "input_layernorm",
    "around_feed_forward.before": "post_attention_layernorm",
}
TABLE = Table(
    {
        "embed.table": "model.embed_tokens",
        "decoder.final": "model.norm",
        "output": "lm_head",
        **below("decoder.layers.*.", "model.layers.*.", LAYER),
    },
    prefix="model.",
    copies={"lm_head.weight": "model.embed_tokens.weight"},
    useless=(r"\.rotary_emb\.inv_freq$",),  # frequencies that older programs kept beside the weights
)


def _foreign(name: str, fields: Fields, base: LlamaConfig, usual: Usual, **defaults: Any) -> Foreign:
    return Foreign(
        name.lower(), (f"{name}ForCausalLM", f"{name}Model"), base, FIELDS | fields, lambda config, head: TABLE,
        defaults, must={"mlp_bias": False, "use_bidirectional_attention": False}, usual=usual,
        ignored=("pretraining_tp", "hidden_act"),  # the first: how one product is cut into several
    )  # fmt: skip


PLAIN = Usual({"start": "<s>", "end": "</s>", "unknown": "<unk>"}, frame=(True, False))
BRACKETED = {"start": "<bos>", "end": "<eos>", "unknown": "<unk>", "pad": "<pad>", "mask": "<mask>"}
BIAS = {"bias": flag("attention_bias", False, yes="all", no="none")}
LLAMA = _foreign("Llama", BIAS, LlamaConfig(), PLAIN, max_position_embeddings=2048)
MISTRAL = _foreign(
    "Mistral", _windows(upper=False), LlamaConfig(), PLAIN, max_position_embeddings=4096 * 32, num_key_value_heads=8
)
QWEN2 = _foreign(
    "Qwen2", _windows(upper=True) | {"head_width": head_width(said=False)}, LlamaConfig(bias="qkv"), Usual(),
    max_position_embeddings=32768, num_key_value_heads=32,
)  # fmt: skip
GEMMA = _foreign(
    "Gemma", BIAS | {"feed_forward.activation": GEMMA_ACTIVATION}, LlamaConfig(scaled=True, norm=OneRmsNorm()),
    Usual(BRACKETED, (True, False)), max_position_embeddings=8192, num_key_value_heads=16, head_dim=256,
    tie_word_embeddings=True,
)  # fmt: skip

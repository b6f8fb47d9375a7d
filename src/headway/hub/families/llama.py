"""Llama, Mistral, Qwen2 and Gemma in the Hugging Face format ↔ `headway.models.llama`.

Their weights have the same names. What differs is which choices a config.json can say, and what it leaves unsaid.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from headway.errors import InputError, nearest
from headway.hub.families.foreign import Foreign, Keys, Usual, one_vocabulary, refuse
from headway.hub.names import Entry, Table, joined, layered, same
from headway.models import parts
from headway.models.llama import LlamaConfig, OneRmsNorm, RmsNorm
from headway.models.rotary_scaling import Dynamic, Linear, Llama3, Scaling, Unscaled, Yarn

ACTIVATIONS: dict[str, Any] = {"silu": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"}


@dataclass(frozen=True)
class Dialect:
    """What one of the four has, and takes for granted.

    bias: always there, never, or as the key attention_bias says. window: its keys for a sliding window, none where it
    has no window. shared: keys and values where config.json names none (0: as many as heads).
    """

    model_type: str
    bias: Literal["none", "qkv", "asked"] = "none"
    window: Literal["none", "all", "upper"] = "none"
    gemma: bool = False
    shared: int = 0
    head_width: int = 0
    max_length: int = 2048
    tied: bool = False


LLAMA_SAYS = Dialect("llama", bias="asked")
MISTRAL_SAYS = Dialect("mistral", window="all", shared=8, max_length=4096 * 32)
QWEN2_SAYS = Dialect("qwen2", bias="qkv", window="upper", shared=32, max_length=32768)
GEMMA_SAYS = Dialect("gemma", bias="asked", gemma=True, shared=16, head_width=256, max_length=8192, tied=True)


def config_in(says: Dialect, facts: dict[str, Any]) -> LlamaConfig:
    keys = Keys(facts)
    keys.ignore("pretraining_tp")  # how one product is cut into several
    keys.must("mlp_bias", False)
    layers, heads = keys.size("num_hidden_layers"), keys.size("num_attention_heads")
    width = keys.size("hidden_size")
    head_width = keys.take("head_dim", says.head_width, int)
    window, windowed_from = _window_in(says, keys, layers)
    epsilon = keys.number("rms_norm_eps", 1e-6)
    base, scaling = rotary_in(keys, keys.size("max_position_embeddings", says.max_length))
    config = LlamaConfig(
        layers=layers,
        width=width,
        inner=keys.size("intermediate_size"),
        heads=heads,
        shared_heads=keys.size("num_key_value_heads", says.shared or heads),
        head_width=0 if head_width * heads == width else head_width,
        attention_dropout=keys.number("attention_dropout", 0.0),
        bias=_bias_in(says, keys),
        tied=keys.flag("tie_word_embeddings", says.tied),
        scaled=says.gemma,
        base=base,
        scaling=scaling,
        norm=OneRmsNorm(epsilon) if says.gemma else RmsNorm(epsilon),
        feed_forward=parts.Gated(activation=_activation_in(says, keys)),
        window=window,
        windowed_from=windowed_from,
        max_length=keys.size("max_position_embeddings", says.max_length),
    )
    keys.done()
    return config


def _activation_in(says: Dialect, keys: Keys) -> Any:
    if not says.gemma:
        return keys.choice("hidden_act", "silu", ACTIVATIONS)
    keys.must("use_bidirectional_attention", False)
    key = "hidden_activation" if keys.take("hidden_activation") else "hidden_act"
    keys.ignore("hidden_act")
    # Gemma was published with "gelu" and trained with its approximation.
    return keys.choice(key, "gelu_pytorch_tanh", ACTIVATIONS | {"gelu": "gelu-tanh"})


def _bias_in(says: Dialect, keys: Keys) -> Literal["none", "qkv", "all"]:
    if says.bias == "asked":
        return "all" if keys.flag("attention_bias", False) else "none"
    return says.bias


def _window_in(says: Dialect, keys: Keys, layers: int) -> tuple[int, int]:
    """The window (0: none), and the first layer that has it."""
    if says.window == "none":
        return 0, 0
    width = keys.take("sliding_window", 4096 if "sliding_window" not in keys.facts else 0, int)
    first = 0
    if says.window == "upper":
        first = min(layers, keys.take("max_window_layers", 28, int))
        width = width if keys.flag("use_sliding_window", False) else 0
    kinds = keys.take("layer_types", None, list)
    wanted = ["sliding_attention" if width and n >= first else "full_attention" for n in range(layers)]
    if kinds is not None and kinds != wanted:
        # Newer files name the kind of each layer; what they can say beyond a first layer is not known here.
        switch = next((n for n, kind in enumerate(kinds) if kind == "sliding_attention"), len(kinds))
        plain = ["full_attention"] * switch + ["sliding_attention"] * (len(kinds) - switch)
        if kinds != plain or len(kinds) != layers or not width:
            raise InputError(f"{keys.where}: layer_types must be full_attention up to one layer, sliding from there on")
        first = switch
    return (width, first) if width and first < layers else (0, 0)


def rotary_in(keys: Keys, max_length: int) -> tuple[float, Scaling]:
    """The base and the scaling, from rope_parameters or from older files' rope_theta and rope_scaling."""
    given = dict(keys.take("rope_parameters", None, dict) or keys.take("rope_scaling", {}, dict))
    keys.ignore("rope_scaling", "rope_theta")
    for key in ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings"):
        if keys.take(key) is not None:
            given.setdefault(key, keys.take(key))
    inner = Keys(given, f"{keys.where}: rope_parameters")
    kind = inner.take("rope_type") or inner.take("type") or "default"
    inner.ignore("type")
    inner.must("partial_rotary_factor", 1.0, 1)
    base = inner.number("rope_theta", 10_000.0)
    if kind not in READ:
        raise InputError(f"{keys.where}: headway has no rotary scaling '{kind}'{nearest(str(kind), READ)}")
    scaling = READ[kind](inner, max_length)
    inner.done()
    return base, scaling


def _llama3_in(inner: Keys, max_length: int) -> Scaling:
    return Llama3(
        inner.number("factor", 8.0), inner.number("low_freq_factor", 1.0), inner.number("high_freq_factor", 4.0),
        inner.size("original_max_position_embeddings", max_length),
    )  # fmt: skip


def _yarn_in(inner: Keys, max_length: int) -> Scaling:
    length = inner.size("original_max_position_embeddings", max_length)
    factor = inner.number("factor", max_length / length)
    stretch = inner.take("attention_factor", None, (int, float))
    near, far = (inner.take(key, None, (int, float)) for key in ("mscale", "mscale_all_dim"))
    if stretch is None and near and far:
        gain = Yarn(factor).gain - 1
        stretch = (near * gain + 1) / (far * gain + 1)
    whole = inner.flag("truncate", True)
    fast, slow = inner.number("beta_fast", 32.0), inner.number("beta_slow", 1.0)
    return Yarn(factor, length, fast, slow, None if stretch is None else float(stretch), whole)


READ: dict[str, Any] = {
    "default": lambda inner, _: Unscaled(),
    "linear": lambda inner, _: Linear(inner.number("factor", 1.0)),
    "dynamic": lambda inner, _: Dynamic(inner.number("factor", 1.0)),
    "llama3": _llama3_in,
    "yarn": _yarn_in,
}


def rotary_out(base: float, scaling: Scaling) -> dict[str, Any]:
    said: dict[str, Any] = {"rope_type": scaling.name, "rope_theta": base}
    if isinstance(scaling, Linear | Dynamic | Llama3 | Yarn):
        said["factor"] = scaling.factor
    if isinstance(scaling, Llama3 | Yarn):
        said["original_max_position_embeddings"] = scaling.length
    if isinstance(scaling, Llama3):
        said |= {"low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
    if isinstance(scaling, Yarn):
        said |= {"beta_fast": scaling.fast, "beta_slow": scaling.slow, "truncate": scaling.whole}
        said |= {} if scaling.stretch is None else {"attention_factor": scaling.stretch}
    return said


def config_out(says: Dialect, config: LlamaConfig, vocabularies: tuple[int, ...]) -> dict[str, Any]:
    """The keys of config.json; a choice without a counterpart is refused by name."""
    refuse(says.model_type, {
        "model.bias": config.bias == "qkv" if says.bias == "asked" else config.bias != says.bias,
        "model.window": says.window == "none" and config.window > 0,
        "model.windowed_from": says.window == "all" and config.windowed_from > 0,
        "model.norm": isinstance(config.norm, OneRmsNorm) != says.gemma,
        "model.scaled": config.scaled != says.gemma,
        "model.head_width": says.model_type == "qwen2" and config.head_width not in (0, config.width // config.heads),
        "model.feed_forward.dropout": config.feed_forward.dropout > 0,
    })  # fmt: skip
    activation = next(name for name, ours in ACTIVATIONS.items() if ours == config.feed_forward.activation)
    said = {
        "num_hidden_layers": config.layers,
        "hidden_size": config.width,
        "intermediate_size": config.inner,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.shared_heads or config.heads,
        "attention_dropout": config.attention_dropout,
        "tie_word_embeddings": config.tied,
        "rms_norm_eps": config.norm.epsilon,
        "hidden_act": activation,
        "rope_parameters": rotary_out(config.base, config.scaling),
        "max_position_embeddings": config.max_length,
        "vocab_size": vocabularies[0],
    }
    if says.model_type != "qwen2":
        said["head_dim"] = config.head_width or config.width // config.heads
    if says.bias == "asked":
        said["attention_bias"] = config.bias == "all"
    if says.window != "none":
        said["sliding_window"] = config.window or None
    if says.window == "upper":
        said |= {"use_sliding_window": config.window > 0, "max_window_layers": config.windowed_from or 0}
    return said


def table(config: LlamaConfig, vocabularies: tuple[int, ...]) -> Table:
    width = config.head_width or config.width // config.heads
    shared = width * (config.shared_heads or config.heads)
    ours, theirs = "decoder.layers.{n}.", "model.layers.{n}."
    attention, mlp = f"{theirs}self_attn.", f"{theirs}mlp."

    def maps(kind: str) -> Entry:
        rows = {"q": width * config.heads, "k": shared, "v": shared}
        return joined(f"{ours}attention.qkv.{kind}", {f"{attention}{x}_proj.{kind}": n for x, n in rows.items()})

    layer = [
        maps("weight"),
        same(f"{ours}attention.output.weight", f"{attention}o_proj.weight"),
        joined(
            f"{ours}feed_forward.expand.weight",
            {f"{mlp}gate_proj.weight": config.inner, f"{mlp}up_proj.weight": config.inner},
        ),
        same(f"{ours}feed_forward.contract.weight", f"{mlp}down_proj.weight"),
        same(f"{ours}around_attention.before.weight", f"{theirs}input_layernorm.weight"),
        same(f"{ours}around_feed_forward.before.weight", f"{theirs}post_attention_layernorm.weight"),
    ]
    if config.bias != "none":
        layer.append(maps("bias"))
    if config.bias == "all":
        layer.append(same(f"{ours}attention.output.bias", f"{attention}o_proj.bias"))
    whole = [
        same("embed.table.weight", "model.embed_tokens.weight"),
        same("decoder.final.weight", "model.norm.weight"),
    ]
    if not config.tied:
        whole.append(same("output.weight", "lm_head.weight"))
    copies = {"lm_head.weight": "model.embed_tokens.weight"} if config.tied else None
    # Frequencies that older programs kept beside the weights.
    return Table((*whole, *layered(config.layers, layer)), "model.", copies, useless=(r"\.rotary_emb\.inv_freq$",))


PLAIN = Usual({"start": "<s>", "end": "</s>", "unknown": "<unk>"}, frame=(True, False))
BRACKETED = {"start": "<bos>", "end": "<eos>", "unknown": "<unk>", "pad": "<pad>", "mask": "<mask>"}


def _foreign(says: Dialect, name: str, usual: Usual) -> Foreign:
    return Foreign(
        says.model_type, "llama", (f"{name}ForCausalLM", f"{name}Model"), partial(config_in, says),
        partial(config_out, says), table, one_vocabulary, usual=usual,
    )  # fmt: skip


LLAMA, MISTRAL = _foreign(LLAMA_SAYS, "Llama", PLAIN), _foreign(MISTRAL_SAYS, "Mistral", PLAIN)
QWEN2, GEMMA = _foreign(QWEN2_SAYS, "Qwen2", Usual()), _foreign(GEMMA_SAYS, "Gemma", Usual(BRACKETED, (True, False)))

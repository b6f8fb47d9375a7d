"""ModernBERT (Warner et al. 2024) in the Hugging Face format ↔ `headway.models.modernbert`. Behind attention it has a
second dropout of the same rate, which headway has not; it is 0 as it was published."""

from __future__ import annotations

from typing import Any

from headway.errors import InputError
from headway.hub.config_keys import Field, Keys, NoCounterpart, choice, flag, number, size
from headway.hub.families.encoder import TABLE, Kin, Row, classes, foreign, labels_in
from headway.hub.families.foreign import Usual
from headway.hub.names import below
from headway.models.head import Map
from headway.models.heads import Classes, MultipleChoice, Vectors, Words
from headway.models.modernbert import ModernBertConfig
from headway.models.token_heads import Spans, Tags

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"}
POOLINGS = {"cls": "first", "mean": "mean"}
KINDS = {"full_attention": ("global_rope_theta", 160_000.0), "sliding_attention": ("local_rope_theta", 10_000.0)}


def _every(keys: Keys) -> int:
    """Newer files name the kind of each layer: those that see all must follow each other at equal distances."""
    layers, every = keys.size("num_hidden_layers", 22), keys.size("global_attn_every_n_layers", 3)
    kinds = keys.take("layer_types", None, list)
    for count in (every, *range(1, layers + 1)):
        if kinds in (None, ["sliding_attention" if n % count else "full_attention" for n in range(layers)]):
            return count
    raise InputError(f"{keys.where}: layer_types must be full_attention for every n-th layer from the first, no other")


def _every_out(every: int, config: ModernBertConfig) -> dict[str, Any]:
    kinds = ["sliding_attention" if n % every else "full_attention" for n in range(config.layers)]
    return {"global_attn_every_n_layers": every, "layer_types": kinds}


def _base(kind: str) -> Field:
    """Of the angles of one kind of layer: in rope_parameters, or in a key of its own."""
    key, usual = KINDS[kind]

    def read(keys: Keys) -> float:
        every = keys.take("rope_parameters", None, dict) or {}
        old = keys.number(key, usual)
        inner = Keys(dict(every.get(kind) or {}), f"{keys.where}: rope_parameters")
        inner.must("rope_type", "default")
        base = inner.number("rope_theta", old)
        inner.done()
        return float(base)

    def write(base: float, config: ModernBertConfig) -> dict[str, Any]:
        bases = {"full_attention": config.base, "sliding_attention": config.near_base}
        parameters = {name: {"rope_type": "default", "rope_theta": bases[name]} for name in KINDS}
        return {key: base, "rope_parameters": parameters}

    return Field(read, write)


def _window_out(window: int, config: ModernBertConfig) -> dict[str, Any]:
    return {"local_attention": 2 * window}


FIELDS = {
    "layers": size("num_hidden_layers", 22),
    "width": size("hidden_size", 768),
    "inner": size("intermediate_size", 1152),
    "heads": size("num_attention_heads", 12),
    "every": Field(_every, _every_out),
    "window": Field(lambda keys: keys.size("local_attention", 128) // 2, _window_out),
    "base": _base("full_attention"),
    "near_base": _base("sliding_attention"),
    "bias": flag("attention_bias", False),
    "norm_bias": flag("norm_bias", False),
    "dropout": number("embedding_dropout", 0.0),
    "attention_dropout": number("attention_dropout", 0.0),
    "norm.epsilon": number("norm_eps", 1e-5),
    "feed_forward.activation": choice("hidden_activation", "gelu", ACTIVATIONS | {"silu": "silu"}),
    "feed_forward.dropout": number("mlp_dropout", 0.0),
    "max_length": size("max_position_embeddings", 8192),
}


def _map(keys: Keys, config: ModernBertConfig) -> Map:
    activation = keys.choice("classifier_activation", "gelu", ACTIVATIONS)
    return Map(activation, keys.flag("classifier_bias", False), config.norm.epsilon, config.norm_bias)


def _map_out(activation: str, bias: bool) -> dict[str, Any]:
    names = [name for name, ours in ACTIVATIONS.items() if ours == activation]
    if not names:
        raise NoCounterpart("head")
    return {"classifier_activation": names[0], "classifier_bias": bias}


def _words(keys: Keys, config: ModernBertConfig) -> Words:
    hidden, tied = _map(keys, config), keys.flag("tie_word_embeddings", True)
    return Words(tied, hidden.activation, config.norm.epsilon, hidden.bias, hidden.norm_bias)  # type: ignore[arg-type]


def _pooling(keys: Keys) -> Any:
    return keys.choice("classifier_pooling", "cls", POOLINGS)


def _classes(keys: Keys, config: ModernBertConfig) -> Any:
    labelled = classes()(keys, config)
    return Classes(labelled.labels, labelled.answer, pooling=_pooling(keys), map=_map(keys, config))


def _hidden_out(head: Any) -> dict[str, Any]:
    if head.map is None:
        raise NoCounterpart("head.map")
    return _map_out(head.map.activation, head.map.bias)


def _pooled_out(head: Any) -> dict[str, Any]:
    return _hidden_out(head) | {"classifier_pooling": "cls" if head.pooling == "first" else "mean"}


LAYER = {
    "attention.qkv": "attn.Wqkv",
    "attention.output": "attn.Wo",
    "around_attention.before": "attn_norm",
    "feed_forward.expand": "mlp.Wi",
    "feed_forward.contract": "mlp.Wo",
    "around_feed_forward.before": "mlp_norm",
}
NAMES = {
    TABLE: "model.embeddings.tok_embeddings",
    "encoder.embed.norm": "model.embeddings.norm",
    "encoder.encoder.final": "model.final_norm",
    **below("encoder.encoder.layers.*.", "model.layers.*.", LAYER),
}
TOKENS = {"head.layer.map": "head.dense", "head.layer.norm": "head.norm"}
TEXT = {"head.first.layer.map": "head.dense", "head.first.layer.norm": "head.norm"}
DROPOUT = "classifier_dropout"
KIN = Kin(
    "modernbert", "ModernBert", "model.", NAMES,
    {
        "Model": Row(Vectors, lambda keys, config: Vectors()),
        "ForMaskedLM": Row(
            Words, _words,
            {"head.map": "head.dense", "head.norm": "head.norm", "head.output": "decoder",
             "head.bias_V": "decoder.bias"},
            write=lambda head: _map_out(head.activation, head.bias),
        ),
        "ForSequenceClassification": Row(Classes, _classes, TEXT | {"head.labels": "classifier"}, DROPOUT, _pooled_out),
        "ForTokenClassification": Row(
            Tags, lambda keys, config: Tags(labels_in(keys), map=_map(keys, config)),
            TOKENS | {"head.labels": "classifier"}, DROPOUT, _hidden_out,
        ),
        "ForQuestionAnswering": Row(
            Spans, lambda keys, config: Spans(map=_map(keys, config)), TOKENS | {"head.ends": "classifier"}, DROPOUT,
            _hidden_out,
        ),
        "ForMultipleChoice": Row(
            MultipleChoice, lambda keys, config: MultipleChoice(pooling=_pooling(keys), map=_map(keys, config)),
            TEXT | {"head.score": "classifier"}, DROPOUT, _pooled_out,
        ),
    },
    (r"\.rotary_emb\.",),
)  # fmt: skip
# Of training alone, of one kernel, or of a head that the folder is not for.
IGNORED = (
    "classifier_dropout", "classifier_activation", "classifier_bias", "classifier_pooling", "initializer_cutoff_factor",
    "deterministic_flash_attn", "reference_compile", "repad_logits_with_grad", "sparse_prediction",
    "sparse_pred_ignore_index", "cls_token_id", "layer_norm_eps", "num_labels",
)  # fmt: skip
MODERNBERT = foreign(
    KIN, ModernBertConfig(), FIELDS, Usual(), {DROPOUT: 0.0},
    must={"mlp_bias": False, "decoder_bias": True, "position_embedding_type": "absolute", "rope_scaling": None},
    ignored=IGNORED,
)  # fmt: skip

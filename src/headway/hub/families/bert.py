"""BERT (Devlin et al. 2019), RoBERTa (Liu et al. 2019) and ALBERT (Lan et al. 2020) in the Hugging Face format ↔
`headway.models.bert`.

ALBERT has no dropout behind its feed-forward network; headway's has that of the config, which is 0 as it was published.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from headway.errors import InputError, refuse
from headway.hub.config_keys import Field, Fields, Keys, NoCounterpart, choice, misfit, number, size
from headway.hub.families.foreign import ACTIVATIONS, Foreign, Usual
from headway.hub.names import Table, below
from headway.hub.sentence_folder import declared_vectors
from headway.models.bert import BertConfig
from headway.models.heads import Classes, Tags, Vectors, Words, WordsAndPair

ANSWERS = {"single_label_classification": "one", "multi_label_classification": "several", "regression": "number"}
HEADS: dict[str, Any] = {"Model": Vectors, "ForMaskedLM": Words, "ForPreTraining": WordsAndPair,
         "ForSequenceClassification": Classes, "ForTokenClassification": Tags}  # fmt: skip
CLASS = {"bert": "Bert", "roberta": "Roberta", "albert": "Albert"}


def _architectures(kind: str) -> dict[str, Any]:
    return {CLASS[kind] + name: head for name, head in HEADS.items() if (kind, head) != ("roberta", WordsAndPair)}


FIELDS = {
    "layers": size("num_hidden_layers", 12),
    "width": size("hidden_size", 768),
    "inner": size("intermediate_size", 3072),
    "heads": size("num_attention_heads", 12),
    "types": size("type_vocab_size", 2),
    "max_length": size("max_position_embeddings", 512),
    "dropout": number("hidden_dropout_prob", 0.1),
    "attention_dropout": number("attention_probs_dropout_prob", 0.1),
    "norm.epsilon": number("layer_norm_eps", 1e-12),
    "feed_forward": choice("hidden_act", "gelu", ACTIVATIONS),
}
ALBERT_FIELDS = FIELDS | {
    "groups": size("num_hidden_groups", 1),
    "group_layers": size("inner_group_num", 1),
    "narrow": size("embedding_size", 128),
}
ALBERT_DEFAULTS = {
    "hidden_size": 4096, "intermediate_size": 16384, "num_attention_heads": 64, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "hidden_act": "gelu_new", "classifier_dropout_prob": 0.1,
}  # fmt: skip


def _first(keys: Keys) -> int:
    """RoBERTa counts from behind its padding's row."""
    return int(keys.take("pad_token_id", 1, int)) + 1


def _rows_behind(keys: Keys) -> int:
    rows = keys.size("max_position_embeddings", 512)
    refuse(_first(keys) >= rows, f"config.json: max_position_embeddings is {rows}, behind the padding's there is none")
    return rows - _first(keys)


def _padding_out(first: int, config: BertConfig) -> dict[str, Any]:
    if not first:
        raise NoCounterpart
    return {"pad_token_id": first - 1}


ROBERTA_FIELDS = FIELDS | {
    "first_position": Field(_first, _padding_out),
    "max_length": Field(
        _rows_behind, lambda length, config: {"max_position_embeddings": length + config.first_position}
    ),
}
# Of training alone; of generation, by models that do not generate; of heads that ALBERT's authors tried.
IGNORED = (
    "layer_norm_eps", "eos_token_ids", "output_past", "num_labels", "down_scale_factor", "gap_size",
    "net_structure_type", "num_memory_blocks", "classifier_dropout", "classifier_dropout_prob",
)  # fmt: skip


def head_in(kind: str, keys: Keys, config: BertConfig) -> Any:
    asked = keys.take("architectures") or [CLASS[kind] + "Model"]
    head = next(_architectures(kind)[name] for name in asked if name in _architectures(kind))
    tied = keys.flag("tie_word_embeddings", True)
    dropout = keys.take(_dropout_key(kind), None, int, float)  # without one that of the layers
    if head in (Words, WordsAndPair):
        # RoBERTa's own activation, else that of the layers.
        tanh = getattr(config.feed_forward, "approximate", "none") == "tanh"
        activation = "gelu" if kind == "roberta" else "gelu-tanh" if tanh else config.feed_forward.name
        return head(tied, activation, config.norm.epsilon)
    if head is Classes:
        answer, labels = keys.choice("problem_type", "single_label_classification", ANSWERS), _labels(keys)
        if answer == "one" and len(labels) == 1:
            answer = "several"  # the only label is true or not: a softmax over one would always say 1
        return Classes(labels, answer, dropout, twice=kind == "roberta")
    return Tags(_labels(keys), dropout) if head is Tags else Vectors(first=True)


def _dropout_key(kind: str) -> str:
    return "classifier_dropout_prob" if kind == "albert" else "classifier_dropout"


def _labels(keys: Keys) -> tuple[str, ...]:
    named = keys.take("id2label", None, dict)
    if named is None:
        return tuple(f"LABEL_{number}" for number in range(keys.size("num_labels", 2)))
    try:
        numbers = sorted(int(number) for number in named)
    except ValueError:
        raise InputError(f"{keys.where}: id2label must have whole numbers for keys") from None
    if numbers != list(range(len(numbers))) or not numbers:
        raise InputError(f"{keys.where}: id2label must name the labels from 0 on, without a gap")
    return tuple(str(named.get(str(number), named.get(number))) for number in numbers)


def head_out(kind: str, head: Any, config: BertConfig) -> dict[str, Any]:
    architecture = next((name for name, part in _architectures(kind).items() if type(head) is part), None)
    if architecture is None:
        raise NoCounterpart("head")
    facts: dict[str, Any] = {"tie_word_embeddings": getattr(head, "tied", True), "architectures": [architecture]}
    if isinstance(head, Classes | Tags):
        facts["id2label"] = {str(number): label for number, label in enumerate(head.labels)}
        facts["label2id"] = {label: number for number, label in enumerate(head.labels)}
        facts |= {} if head.dropout is None else {_dropout_key(kind): head.dropout}
    if isinstance(head, Classes):
        facts["problem_type"] = next(key for key, answer in ANSWERS.items() if answer == head.answer)
    read_back = head if isinstance(head, Vectors) else head_in(kind, Keys(facts), config)
    if fault := misfit(head, read_back, {"head.dropout"}, "head"):
        raise NoCounterpart(fault)
    return facts


def settle(config: BertConfig, head: Any, folder: Path, names: Collection[str]) -> tuple[BertConfig, Any]:
    """Other files of the folder: how vectors are pooled from the last layer, whether the first token has a map."""
    if isinstance(head, Vectors):
        head = replace(declared_vectors(folder), first=any("pooler" in name for name in names))
    return config, head


LAYER = {
    "around_attention.outside": "attention.output.LayerNorm",
    "around_feed_forward.outside": "output.LayerNorm",
    "attention.qkv": "attention.self.{query,key,value}",
    "attention.output": "attention.output.dense",
    "feed_forward.expand": "intermediate.dense",
    "feed_forward.contract": "output.dense",
}
ALBERT_LAYER = {
    "around_attention.outside": "attention.LayerNorm",
    "around_feed_forward.outside": "full_layer_layer_norm",
    "attention.qkv": "attention.{query,key,value}",
    "attention.output": "attention.dense",
    "feed_forward.expand": "ffn",
    "feed_forward.contract": "ffn_output",
}
# Where each keeps the map for the first token, the words' map, norm and output, and the head for pairs.
PLACES = {
    "bert": ("bert.pooler.dense", "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
             "cls.predictions", "cls.seq_relationship"),
    "roberta": ("roberta.pooler.dense", "lm_head.dense", "lm_head.layer_norm", "lm_head", ""),
    "albert": ("albert.pooler", "predictions.dense", "predictions.LayerNorm", "predictions",
               "sop_classifier.classifier"),
}  # fmt: skip


def names(kind: str, config: BertConfig, head: Any) -> Table:
    pooler, map_, norm, words, pair = PLACES[kind]
    # Masks in older files, and heads that checkpoints carry without need.
    useless = [r"embeddings\.(position|token_type)_ids$", *(f"^{name}." for name in (pooler, pair) if name)]
    found = {
        "encoder.embed.table": f"{kind}.embeddings.word_embeddings",
        "encoder.embed.position.table": f"{kind}.embeddings.position_embeddings",
        "encoder.embed.types": f"{kind}.embeddings.token_type_embeddings",
        "encoder.embed.norm": f"{kind}.embeddings.LayerNorm",
        "encoder.embed.widen": f"{kind}.encoder.embedding_hidden_mapping_in",
        "head.first.layer.map": pooler,
        "head.map": map_,
        "head.norm": norm,
        "head.output": f"{words}.decoder",
        "head.bias_V": f"{words}.bias",
        "head.pair": pair,
        "head.labels": "classifier",
    }
    copies = {}
    if isinstance(head, Words) and head.tied:
        copies = {
            f"{words}.decoder.weight": f"{found['encoder.embed.table']}.weight",
            f"{words}.decoder.bias": f"{words}.bias",
        }
    elif isinstance(head, Words):
        found["head.bias_V"] = f"{words}.decoder.bias"
        useless.append(f"^{words}.bias$")  # beside that of the output it is not used
    elif isinstance(head, Classes) and kind == "roberta":
        found |= {"head.first.layer.map": "classifier.dense", "head.labels": "classifier.out_proj"}
    layers = f"{kind}.encoder." + ("albert_layer_groups.*." if kind == "albert" else "layer.*.")
    found |= below("encoder.encoder.layers.*.", layers, ALBERT_LAYER if kind == "albert" else LAYER)

    def number(layer: int) -> str:
        group, inner = divmod(layer, config.group_layers)
        return f"{group}.albert_layers.{inner}" if kind == "albert" else str(layer)

    endings = {".gamma": ".weight", ".beta": ".bias"}  # of a norm, in old files
    return Table(found, prefix=f"{kind}.", copies=copies, useless=tuple(useless), endings=endings, number=number)


def _foreign(kind: str, fields: Fields, defaults: dict[str, Any], usual: Usual) -> Foreign:
    return Foreign(
        kind, tuple(_architectures(kind)), BertConfig(), fields, partial(names, kind), defaults, usual=usual,
        must={"position_embedding_type": "absolute", "is_decoder": False}, ignored=IGNORED, settle=settle,
        head_in=partial(head_in, kind), head_out=partial(head_out, kind),
    )  # fmt: skip


SQUARE = {"unknown": "[UNK]", "pad": "[PAD]", "mask": "[MASK]", "first": "[CLS]", "separator": "[SEP]"}
ANGLE = {"start": "<s>", "end": "</s>", "unknown": "<unk>", "pad": "<pad>", "mask": "<mask>", "first": "<s>",
         "separator": "</s>"}  # fmt: skip
BERT = _foreign("bert", FIELDS, {}, Usual(SQUARE))
ROBERTA = _foreign("roberta", ROBERTA_FIELDS, {}, Usual(ANGLE, enclosed=True))
ALBERT = _foreign("albert", ALBERT_FIELDS, ALBERT_DEFAULTS, Usual())

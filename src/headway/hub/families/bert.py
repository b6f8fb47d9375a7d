"""BERT (Devlin et al. 2019), RoBERTa (Liu et al. 2019) and ALBERT (Lan et al. 2020) in the Hugging Face format ↔
`headway.models.bert`.

ALBERT has no dropout behind its feed-forward network; headway's has that of the config, which is 0 as it was published.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.errors import InputError
from headway.hub.families.foreign import Foreign, Keys, Usual, one_vocabulary, refuse
from headway.hub.names import Entry, Table, both, joined, layered, same
from headway.hub.sentence_folder import declared_vectors
from headway.models import parts
from headway.models.bert import BertConfig
from headway.models.heads import Classes, Tags, Vectors, Words, WordsAndPair

ACTIVATIONS: dict[str, parts.Gelu | parts.Relu] = {
    "gelu": parts.Gelu(),
    "gelu_new": parts.Gelu(approximate="tanh"),
    "gelu_pytorch_tanh": parts.Gelu(approximate="tanh"),
    "relu": parts.Relu(),
}
ANSWERS = {"single_label_classification": "one", "multi_label_classification": "several", "regression": "number"}
HEADS: dict[str, Any] = {"Model": Vectors, "ForMaskedLM": Words, "ForPreTraining": WordsAndPair,
         "ForSequenceClassification": Classes, "ForTokenClassification": Tags}  # fmt: skip
CLASS = {"bert": "Bert", "roberta": "Roberta", "albert": "Albert"}
OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}  # of a norm


def _architectures(kind: str) -> tuple[str, ...]:
    return tuple(CLASS[kind] + head for head in HEADS if (kind, head) != ("roberta", "ForPreTraining"))


def config_in(facts: dict[str, Any]) -> tuple[BertConfig, Any]:
    keys = Keys(facts)
    kind = facts["model_type"]
    keys.must("position_embedding_type", "absolute")
    keys.must("is_decoder", False)
    # Of training alone; of generation, by models that do not generate; of heads that ALBERT's authors tried.
    keys.ignore("layer_norm_eps", "eos_token_ids", "output_past", "num_labels", "down_scale_factor", "gap_size")
    keys.ignore("net_structure_type", "num_memory_blocks", "classifier_dropout", "classifier_dropout_prob")
    dropout = keys.number("hidden_dropout_prob", 0.0 if kind == "albert" else 0.1)
    # RoBERTa counts from behind its padding's row.
    first = keys.take("pad_token_id", 1, int) + 1 if kind == "roberta" else 0
    rows = keys.size("max_position_embeddings", 512)
    if first >= rows:
        raise InputError(f"config.json: max_position_embeddings is {rows}, behind the padding's there is none")
    config = BertConfig(
        layers=keys.size("num_hidden_layers", 12),
        width=keys.size("hidden_size", 4096 if kind == "albert" else 768),
        inner=keys.size("intermediate_size", 16384 if kind == "albert" else 3072),
        heads=keys.size("num_attention_heads", 64 if kind == "albert" else 12),
        narrow=keys.size("embedding_size", 128) if kind == "albert" else 0,
        groups=keys.size("num_hidden_groups", 1) if kind == "albert" else 0,
        group_layers=keys.size("inner_group_num", 1) if kind == "albert" else 1,
        types=keys.size("type_vocab_size", 2),
        first_position=first,
        max_length=rows - first,
        dropout=dropout,
        attention_dropout=keys.number("attention_probs_dropout_prob", 0.0 if kind == "albert" else 0.1),
        norm=parts.PostNorm(keys.number("layer_norm_eps", 1e-12)),
        feed_forward=keys.choice("hidden_act", "gelu_new" if kind == "albert" else "gelu", ACTIVATIONS),
    )
    head = _head_in(keys, kind, config)
    keys.done()
    return config, head


def _head_in(keys: Keys, kind: str, config: BertConfig) -> Any:
    asked = keys.take("architectures") or [CLASS[kind] + "Model"]
    head = next(name.removeprefix(CLASS[kind]) for name in asked if name in _architectures(kind))
    tied = keys.flag("tie_word_embeddings", True)
    # An own choice; without one that of the layers, but for ALBERT, whose own is not.
    key, usual = ("classifier_dropout_prob", 0.1) if kind == "albert" else ("classifier_dropout", None)
    dropout = keys.take(key, usual, (int, float))
    if head == "ForMaskedLM":
        return Words(tied, _word_activation(config, kind), config.norm.epsilon)
    if head == "ForPreTraining":
        return WordsAndPair(tied, _word_activation(config, kind), config.norm.epsilon)
    if head == "ForSequenceClassification":
        return Classes(_labels(keys), _answer(keys), dropout, twice=kind == "roberta")
    return Tags(_labels(keys), dropout) if head == "ForTokenClassification" else Vectors(first=True)


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


def _answer(keys: Keys) -> Any:
    return keys.choice("problem_type", "single_label_classification", ANSWERS)


def settle(config: BertConfig, head: Any, folder: Path, names: Collection[str]) -> tuple[BertConfig, Any]:
    """Other files of the folder: how vectors are pooled from the last layer, whether the first token has a map."""
    if isinstance(head, Vectors):
        head = replace(declared_vectors(folder), first=any("pooler" in name for name in names))
    return config, head


def config_out(kind: str) -> Callable[[BertConfig, tuple[int, ...], Any], dict[str, Any]]:
    """The keys of config.json; a choice without a counterpart is refused by name."""

    def out(config: BertConfig, vocabularies: tuple[int, ...], head: Any) -> dict[str, Any]:
        _check_fits(config, head, kind)
        albert = kind == "albert"
        activation = next(name for name, part in ACTIVATIONS.items() if part == config.feed_forward)
        facts: dict[str, Any] = {
            "num_hidden_layers": config.layers,
            "hidden_size": config.width,
            "intermediate_size": config.inner,
            "num_attention_heads": config.heads,
            "type_vocab_size": config.types,
            "max_position_embeddings": config.max_length + config.first_position,
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": config.attention_dropout,
            "layer_norm_eps": config.norm.epsilon,
            "hidden_act": activation,
            "vocab_size": vocabularies[0],
            "tie_word_embeddings": getattr(head, "tied", True),
            "architectures": [_architecture(head, kind)],
        }
        if albert:
            shared = {"num_hidden_groups": config.groups, "inner_group_num": config.group_layers}
            facts |= {"embedding_size": config.narrow, **shared}
        if kind == "roberta":
            facts["pad_token_id"] = config.first_position - 1
        if isinstance(head, Classes | Tags):
            labels = head.labels
            facts["id2label"] = {str(number): label for number, label in enumerate(labels)}
            facts["label2id"] = {label: number for number, label in enumerate(labels)}
            if head.dropout is not None:
                facts["classifier_dropout_prob" if albert else "classifier_dropout"] = head.dropout
        if isinstance(head, Classes):
            facts["problem_type"] = next(key for key, answer in ANSWERS.items() if answer == head.answer)
        return facts

    return out


def _architecture(head: Any, kind: str) -> str:
    return CLASS[kind] + next(name for name, part in HEADS.items() if isinstance(head, part))


def _check_fits(config: BertConfig, head: Any, kind: str) -> None:
    shared = (config.groups, config.group_layers, config.narrow)
    refuse(kind, {
        "model.groups, group_layers or narrow": (kind == "albert") != (0 not in shared),
        "model.types": config.types < 1,
        "model.first_position": (kind == "roberta") != (config.first_position > 0),
        "model.feed_forward": config.feed_forward not in ACTIVATIONS.values(),
        "head": (kind == "roberta" and isinstance(head, WordsAndPair)) or not isinstance(head, tuple(HEADS.values())),
        "head.twice": getattr(head, "twice", kind == "roberta") != (kind == "roberta"),
        "head.activation": isinstance(head, Words | WordsAndPair) and head.activation != _word_activation(config, kind),
        "head.epsilon": isinstance(head, Words | WordsAndPair) and head.epsilon != config.norm.epsilon,
    })  # fmt: skip


def _word_activation(config: BertConfig, kind: str) -> Any:
    """Of the head for words: RoBERTa's own, else that of the layers."""
    layers = config.feed_forward
    if kind == "roberta":
        return "gelu"
    return "gelu-tanh" if getattr(layers, "approximate", "none") == "tanh" else layers.name


LAYER = {
    "around_attention.outside": "attention.output.LayerNorm",
    "around_feed_forward.outside": "output.LayerNorm",
    "attention.output": "attention.output.dense",
    "feed_forward.expand": "intermediate.dense",
    "feed_forward.contract": "output.dense",
}
ALBERT_LAYER = {
    "around_attention.outside": "attention.LayerNorm",
    "around_feed_forward.outside": "full_layer_layer_norm",
    "attention.output": "attention.dense",
    "feed_forward.expand": "ffn",
    "feed_forward.contract": "ffn_output",
}


def _layer(ours: str, theirs: str, names: dict[str, str], attention: str, width: int) -> list[Entry]:
    maps = [
        joined(f"{ours}attention.qkv.{end}", {f"{theirs}{attention}{role}.{end}": width for role in roles})
        for end in ("weight", "bias")
        for roles in (("query", "key", "value"),)
    ]
    return maps + [entry for own, name in names.items() for entry in both(ours + own, theirs + name)]


def table(kind: str) -> Callable[[BertConfig, tuple[int, ...], Any], Table]:
    prefix = f"{kind}."

    def of(config: BertConfig, vocabularies: tuple[int, ...], head: Any) -> Table:
        entries = [
            same("encoder.embed.table.weight", f"{prefix}embeddings.word_embeddings.weight"),
            same("encoder.embed.position.table.weight", f"{prefix}embeddings.position_embeddings.weight"),
            same("encoder.embed.types.weight", f"{prefix}embeddings.token_type_embeddings.weight"),
            *both("encoder.embed.norm", f"{prefix}embeddings.LayerNorm"),
        ]
        if kind == "albert":
            entries += both("encoder.embed.widen", f"{prefix}encoder.embedding_hidden_mapping_in")
            for group in range(config.groups):
                for inner in range(config.group_layers):
                    ours = f"encoder.encoder.layers.{group * config.group_layers + inner}."
                    theirs = f"{prefix}encoder.albert_layer_groups.{group}.albert_layers.{inner}."
                    entries += _layer(ours, theirs, ALBERT_LAYER, "attention.", config.width)
        else:
            theirs = f"{prefix}encoder.layer.{{n}}."
            one = _layer("encoder.encoder.layers.{n}.", theirs, LAYER, "attention.self.", config.width)
            entries += layered(config.layers, one)
        own, copies, useless = _head(head, kind)
        masks = (r"embeddings\.position_ids$", r"embeddings\.token_type_ids$")
        return Table((*entries, *own), prefix, copies, (*masks, *useless), OLD_ENDINGS)

    return of


# Where each keeps the map for the first token, the words' map, norm and output, and the head for pairs.
PLACES = {
    "bert": ("bert.pooler.dense", "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
             "cls.predictions", "cls.seq_relationship"),
    "roberta": ("roberta.pooler.dense", "lm_head.dense", "lm_head.layer_norm", "lm_head", ""),
    "albert": ("albert.pooler", "predictions.dense", "predictions.LayerNorm", "predictions",
               "sop_classifier.classifier"),
}  # fmt: skip


def _head(head: Any, kind: str) -> tuple[list[Entry], dict[str, str], list[str]]:
    """Entries of the head, second names of its tied weights, and heads that its checkpoints carry without need."""
    pooler, map_, norm, words, pair = PLACES[kind]
    first = both("head.first.layer.map", pooler)
    idle = ["^" + name.replace(".", r"\.") + r"\." for name in (pooler, pair) if name]
    if isinstance(head, Words | WordsAndPair):
        entries = [*both("head.map", map_), *both("head.norm", norm)]
        if isinstance(head, WordsAndPair):
            entries, idle = [*entries, *first, *both("head.pair", pair)], []
        if not head.tied:  # the bias beside the output is then not used
            output = [same("head.output.weight", f"{words}.decoder.weight"),
                      same("head.bias_V", f"{words}.decoder.bias")]  # fmt: skip
            return [*entries, *output], {}, [*idle, "^" + words.replace(".", r"\.") + r"\.bias$"]
        table_name = f"{kind}.embeddings.word_embeddings.weight"
        copies = {f"{words}.decoder.weight": table_name, f"{words}.decoder.bias": f"{words}.bias"}
        return [*entries, same("head.bias_V", f"{words}.bias")], copies, idle
    if isinstance(head, Classes) and kind == "roberta":
        own = [*both("head.first.layer.map", "classifier.dense"), *both("head.labels", "classifier.out_proj")]
        return own, {}, idle
    if isinstance(head, Classes):
        return [*first, *both("head.labels", "classifier")], {}, []
    if isinstance(head, Tags):
        return both("head.labels", "classifier"), {}, idle
    return first if head.first else [], {}, []


USUAL = {
    "bert": Usual({"unknown": "[UNK]", "pad": "[PAD]", "mask": "[MASK]", "first": "[CLS]", "separator": "[SEP]"}),
    "roberta": Usual(
        {"start": "<s>", "end": "</s>", "unknown": "<unk>", "pad": "<pad>", "mask": "<mask>", "first": "<s>",
         "separator": "</s>"},
        enclosed=True,
    ),
    "albert": Usual(),
}  # fmt: skip
BERT, ROBERTA, ALBERT = (
    Foreign(
        kind, "bert", _architectures(kind), config_in, config_out(kind), table(kind), one_vocabulary, settle,
        usual=USUAL[kind],
    )
    for kind in CLASS
)  # fmt: skip

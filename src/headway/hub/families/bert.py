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
from headway.hub.families.foreign import Foreign, Keys, Usual, one_vocabulary
from headway.hub.names import Entry, Table, joined, layered, same
from headway.hub.sentence_folder import declared_vectors
from headway.models import parts
from headway.models.bert import BertConfig, MaskedWords, Task, TextLabels, TokenLabels, Vectors, WordsAndPair

ACTIVATIONS: dict[str, parts.Gelu | parts.Relu] = {
    "gelu": parts.Gelu(),
    "gelu_new": parts.Gelu(approximate="tanh"),
    "gelu_pytorch_tanh": parts.Gelu(approximate="tanh"),
    "relu": parts.Relu(),
}
ANSWERS = {"single_label_classification": "one", "multi_label_classification": "several", "regression": "number"}
HEADS = {"Model": Vectors, "ForMaskedLM": MaskedWords, "ForPreTraining": WordsAndPair,
         "ForSequenceClassification": TextLabels, "ForTokenClassification": TokenLabels}  # fmt: skip
CLASS = {"bert": "Bert", "roberta": "Roberta", "albert": "Albert"}
OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}  # of a norm


def _architectures(kind: str) -> tuple[str, ...]:
    return tuple(CLASS[kind] + head for head in HEADS if (kind, head) != ("roberta", "ForPreTraining"))


def config_in(facts: dict[str, Any]) -> BertConfig:
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
        task=_task(keys, kind),
    )
    keys.done()
    return config


def _task(keys: Keys, kind: str) -> Task:
    asked = keys.take("architectures") or [CLASS[kind] + "Model"]
    head = next(name.removeprefix(CLASS[kind]) for name in asked if name in _architectures(kind))
    tied = keys.flag("tie_word_embeddings", True)
    # An own choice; without one that of the layers, but for ALBERT, whose own is not.
    key, usual = ("classifier_dropout_prob", 0.1) if kind == "albert" else ("classifier_dropout", None)
    dropout = keys.take(key, usual, (int, float))
    if head == "ForMaskedLM":
        return MaskedWords(tied, "gelu" if kind == "roberta" else None)
    if head == "ForPreTraining":
        return WordsAndPair(tied)
    if head == "ForSequenceClassification":
        return TextLabels(_labels(keys), _answer(keys), dropout, twice=kind == "roberta")
    return TokenLabels(_labels(keys), dropout) if head == "ForTokenClassification" else Vectors(first=True)


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


def settle(config: BertConfig, folder: Path, names: Collection[str]) -> BertConfig:
    """What else the folder says: how vectors are made of the last layer, whether there is a map for the first token."""
    if not isinstance(config.task, Vectors):
        return config
    first = any("pooler" in name for name in names)
    return replace(config, task=replace(declared_vectors(folder), first=first))


def config_out(kind: str) -> Callable[[BertConfig, tuple[int, ...]], dict[str, Any]]:
    """Theirs; what the family has no word for is named."""

    def out(config: BertConfig, vocabularies: tuple[int, ...]) -> dict[str, Any]:
        _check_fits(config, kind)
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
            "tie_word_embeddings": getattr(config.task, "tied", True),
            "architectures": [_architecture(config.task, kind)],
        }
        if albert:
            shared = {"num_hidden_groups": config.groups, "inner_group_num": config.group_layers}
            facts |= {"embedding_size": config.narrow, **shared}
        if kind == "roberta":
            facts["pad_token_id"] = config.first_position - 1
        if isinstance(config.task, TextLabels | TokenLabels):
            labels = config.task.labels
            facts["id2label"] = {str(number): label for number, label in enumerate(labels)}
            facts["label2id"] = {label: number for number, label in enumerate(labels)}
            if config.task.dropout is not None:
                facts["classifier_dropout_prob" if albert else "classifier_dropout"] = config.task.dropout
        if isinstance(config.task, TextLabels):
            facts["problem_type"] = next(key for key, answer in ANSWERS.items() if answer == config.task.answer)
        return facts

    return out


def _architecture(task: Task, kind: str) -> str:
    return CLASS[kind] + next(head for head, part in HEADS.items() if isinstance(task, part))


def _check_fits(config: BertConfig, kind: str) -> None:
    shared = (config.groups, config.group_layers, config.narrow)
    in_the_way = {
        "groups, group_layers or narrow": (kind == "albert") != (0 not in shared),
        "types": config.types < 1,
        "first_position": (kind == "roberta") != (config.first_position > 0),
        "feed_forward": config.feed_forward not in ACTIVATIONS.values(),
        "task": kind == "roberta" and isinstance(config.task, WordsAndPair),
        "task.twice": getattr(config.task, "twice", kind == "roberta") != (kind == "roberta"),
        "task.activation": isinstance(config.task, MaskedWords) and config.task.activation != _word_activation(kind),
    }
    if found := [key for key, is_so in in_the_way.items() if is_so]:
        raise InputError(f"{kind} cannot hold this model: model.{found[0]} stands in the way")


def _word_activation(kind: str) -> str | None:
    return "gelu" if kind == "roberta" else None


def _both(ours: str, theirs: str) -> list[Entry]:
    return [same(f"{ours}.{end}", f"{theirs}.{end}") for end in ("weight", "bias")]


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
    return maps + [entry for own, name in names.items() for entry in _both(ours + own, theirs + name)]


def table(kind: str) -> Callable[[BertConfig, tuple[int, ...]], Table]:
    prefix = f"{kind}."

    def of(config: BertConfig, vocabularies: tuple[int, ...]) -> Table:
        entries = [
            same("embed.table.weight", f"{prefix}embeddings.word_embeddings.weight"),
            same("embed.position.table.weight", f"{prefix}embeddings.position_embeddings.weight"),
            same("embed.types.weight", f"{prefix}embeddings.token_type_embeddings.weight"),
            *_both("embed.norm", f"{prefix}embeddings.LayerNorm"),
        ]
        if kind == "albert":
            entries += _both("embed.widen", f"{prefix}encoder.embedding_hidden_mapping_in")
            for group in range(config.groups):
                for inner in range(config.group_layers):
                    ours = f"encoder.layers.{group * config.group_layers + inner}."
                    theirs = f"{prefix}encoder.albert_layer_groups.{group}.albert_layers.{inner}."
                    entries += _layer(ours, theirs, ALBERT_LAYER, "attention.", config.width)
        else:
            theirs = f"{prefix}encoder.layer.{{n}}."
            one = _layer("encoder.layers.{n}.", theirs, LAYER, "attention.self.", config.width)
            entries += layered(config.layers, one)
        head, copies, useless = _head(config.task, kind)
        masks = (r"embeddings\.position_ids$", r"embeddings\.token_type_ids$")
        return Table((*entries, *head), prefix, copies, (*masks, *useless), OLD_ENDINGS)

    return of


# Where each keeps the map for the first token, the words' map, norm and output, and the head for pairs.
PLACES = {
    "bert": ("bert.pooler.dense", "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
             "cls.predictions", "cls.seq_relationship"),
    "roberta": ("roberta.pooler.dense", "lm_head.dense", "lm_head.layer_norm", "lm_head", ""),
    "albert": ("albert.pooler", "predictions.dense", "predictions.LayerNorm", "predictions",
               "sop_classifier.classifier"),
}  # fmt: skip


def _head(task: Task, kind: str) -> tuple[list[Entry], dict[str, str], list[str]]:
    """Entries of the head, second names of its tied weights, and heads that its checkpoints carry without need."""
    pooler, map_, norm, words, pair = PLACES[kind]
    first = _both("task.first.layer.map", pooler)
    idle = ["^" + name.replace(".", r"\.") + r"\." for name in (pooler, pair) if name]
    if isinstance(task, MaskedWords | WordsAndPair):
        ours = "task." if isinstance(task, MaskedWords) else "task.words."
        entries = [*_both(f"{ours}map", map_), *_both(f"{ours}norm", norm)]
        if isinstance(task, WordsAndPair):
            entries, idle = [*entries, *first, *_both("task.pair", pair)], []
        if not task.tied:  # the bias beside the output is then not used
            output = [same(f"{ours}output.weight", f"{words}.decoder.weight"),
                      same(f"{ours}bias_V", f"{words}.decoder.bias")]  # fmt: skip
            return [*entries, *output], {}, [*idle, "^" + words.replace(".", r"\.") + r"\.bias$"]
        table_name = f"{kind}.embeddings.word_embeddings.weight"
        copies = {f"{words}.decoder.weight": table_name, f"{words}.decoder.bias": f"{words}.bias"}
        return [*entries, same(f"{ours}bias_V", f"{words}.bias")], copies, idle
    if isinstance(task, TextLabels) and kind == "roberta":
        own = [*_both("task.first.layer.map", "classifier.dense"), *_both("task.labels", "classifier.out_proj")]
        return own, {}, idle
    if isinstance(task, TextLabels):
        return [*first, *_both("task.labels", "classifier")], {}, []
    if isinstance(task, TokenLabels):
        return _both("task.labels", "classifier"), {}, idle
    return first if task.first else [], {}, []


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

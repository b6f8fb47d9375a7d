"""What encoders in the Hugging Face format have in common: one model, and above it a head for each architecture."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from headway.errors import InputError
from headway.hub.config_keys import Fields, Keys, NoCounterpart, misfit
from headway.hub.families.foreign import Foreign, Usual
from headway.hub.names import Table
from headway.hub.sentence_folder import declared_vectors
from headway.models.head import Map
from headway.models.heads import Classes, LinearClasses, MultipleChoice, Vectors, Words
from headway.models.token_heads import Tags

ANSWERS = {"single_label_classification": "one", "multi_label_classification": "several", "regression": "number"}
TABLE = "encoder.embed.table"
MUST: dict[str, Any] = {"position_embedding_type": "absolute", "is_decoder": False}


@dataclass(frozen=True)
class Row:
    """The head of one architecture. read: it, by the keys and headway's config. names: of its weights. dropout: the key
    of its rate ("": it has none). write: further keys, by the head."""

    part: type
    read: Callable[[Keys, Any], Any]
    names: Mapping[str, str] = field(default_factory=dict)
    dropout: str = ""
    write: Callable[[Any], dict[str, Any]] = lambda head: {}


@dataclass(frozen=True)
class Kin:
    """A model_type. name: how its classes begin; rows: how they end, each with its head. prefix: of the names of all
    weights below the head, which `names` has. carried: weights that files have without need, as patterns. number: how a
    layer's number is written, by the config."""

    kind: str
    name: str
    prefix: str
    names: Mapping[str, str]
    rows: Mapping[str, Row]
    carried: tuple[str, ...] = ()
    number: Callable[[Any, int], str] = lambda config, layer: str(layer)

    @property
    def architectures(self) -> dict[str, Row]:
        return {self.name + ending: row for ending, row in self.rows.items()}


# How the heads are read.


def activation_of(config: Any) -> Any:
    """That of the layers."""
    tanh = getattr(config.feed_forward, "approximate", "none") == "tanh"
    return "gelu-tanh" if tanh else config.feed_forward.name


def words(part: type = Words, activation: str = "") -> Callable[[Keys, Any], Any]:
    """`activation`: without one that of the layers."""
    return lambda keys, config: part(
        keys.flag("tie_word_embeddings", True), activation or activation_of(config), config.norm.epsilon
    )


def classes(twice: bool = False, hidden: Map = Map()) -> Callable[[Keys, Any], Any]:  # noqa: B008
    def read(keys: Keys, config: Any) -> Any:
        answer, labels = keys.choice("problem_type", "single_label_classification", ANSWERS), labels_in(keys)
        if answer == "one" and len(labels) == 1:
            answer = "several"  # the only label is true or not: a softmax over one would always say 1
        return Classes(labels, answer, twice=twice, map=hidden)

    return read


def tags(keys: Keys, config: Any) -> Tags:
    return Tags(labels_in(keys))


def choice_of(hidden: Map = Map()) -> Callable[[Keys, Any], Any]:  # noqa: B008
    return lambda keys, config: MultipleChoice(map=hidden)


def labels_in(keys: Keys) -> tuple[str, ...]:
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


# Of a whole family.


def head_in(kin: Kin, keys: Keys, config: Any) -> Any:
    asked = keys.take("architectures") or [f"{kin.name}Model", *kin.architectures]
    row = next(kin.architectures[name] for name in asked if name in kin.architectures)
    keys.flag("tie_word_embeddings", True)
    head = row.read(keys, config)
    if row.dropout:  # without a rate that of the layers
        head = replace(head, dropout=keys.take(row.dropout, None, int, float))
    return head


def head_out(kin: Kin, head: Any, config: Any) -> dict[str, Any]:
    architecture, row = next((one for one in kin.architectures.items() if type(head) is one[1].part), ("", None))
    if row is None:
        raise NoCounterpart("head")
    facts: dict[str, Any] = {"tie_word_embeddings": getattr(head, "tied", True), "architectures": [architecture]}
    if issubclass(row.part, Classes | Tags | LinearClasses):
        facts["id2label"] = {str(number): label for number, label in enumerate(head.labels)}
        facts["label2id"] = {label: number for number, label in enumerate(head.labels)}
    if row.dropout and head.dropout is not None:
        facts[row.dropout] = head.dropout
    if row.part is Classes:
        facts["problem_type"] = next(key for key, answer in ANSWERS.items() if answer == head.answer)
    facts |= row.write(head)
    read_back = head if isinstance(head, Vectors) else head_in(kin, Keys(facts), config)
    if fault := misfit(head, read_back, {"head.dropout"}, "head"):
        raise NoCounterpart(fault)
    return facts


def settle(config: Any, head: Any, folder: Path, names: Collection[str]) -> tuple[Any, Any]:
    """Other files of the folder: how vectors are pooled from the last layer, whether the first token has a map."""
    if isinstance(head, Vectors):
        head = replace(declared_vectors(folder), first=head.first and any("pooler" in name for name in names))
    return config, head


def names(kin: Kin, config: Any, head: Any) -> Table:
    row = next(row for row in kin.rows.values() if type(head) is row.part)
    found, useless, copies = {**kin.names, **row.names}, list(kin.carried), {}
    if isinstance(head, Words):
        output, bias = found["head.output"], found["head.bias_V"]
        beside = bias != f"{output}.bias"  # they keep it twice
        if head.tied:
            copies = {f"{output}.weight": f"{found[TABLE]}.weight"} | ({f"{output}.bias": bias} if beside else {})
        elif beside:
            found["head.bias_V"] = f"{output}.bias"
            useless.append(f"^{bias}$")  # beside that of the output it is not used
    endings = {".gamma": ".weight", ".beta": ".bias"}  # of a norm, in old files
    number = partial(kin.number, config)
    return Table(found, prefix=kin.prefix, copies=copies, useless=tuple(useless), endings=endings, number=number)


def foreign(
    kin: Kin, base: Any, fields: Fields, usual: Usual, defaults: Mapping[str, Any] | None = None,
    must: Mapping[str, Any] = MUST, ignored: tuple[str, ...] = (),
) -> Foreign:  # fmt: skip
    return Foreign(
        kin.kind, tuple(kin.architectures), base, fields, partial(names, kin), defaults or {}, usual=usual, must=must,
        ignored=ignored, settle=settle, head_in=partial(head_in, kin), head_out=partial(head_out, kin),
    )  # fmt: skip

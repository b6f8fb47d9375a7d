"""The keys of a config.json as fields of headway's config: one table for each family, used in both directions.

    "layers": size("n_layer", 12)
    "norm.epsilon": number("layer_norm_epsilon", 1e-5)

Every key is used, checked, known to change nothing, or off. Any other may change what the model computes: it is
refused, unless they are `unknown_allowed`. What headway's config has and no key can say is refused by name.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from operator import attrgetter
from typing import Any, TypeVar

from headway.errors import InputError, Notice, nearest, refuse

T = TypeVar("T")
KINDS = {int: "whole number", float: "number", list: "list", dict: "object"}
# Keys that change nothing in what a model computes: names and dates, defaults for training and generation, what to
# return. Every family has them.
HARMLESS = frozenset({
    "_attn_implementation", "_attn_implementation_autoset", "_attn_implementation_internal", "_commit_hash",
    "_model_name_or_path", "_name_or_path", "_num_labels", "architectures", "auto_map", "bad_words_ids",
    "begin_suppress_tokens", "bos_token_id", "chunk_size_feed_forward", "condition_on_chain",
    "cross_attention_hidden_size", "decoder_start_token_id", "directionality", "diversity_penalty", "do_sample",
    "dtype", "early_stopping", "encoder_no_repeat_ngram_size", "eos_token_id", "exponential_decay_length_penalty",
    "finetuning_task", "forced_bos_token_id", "forced_eos_token_id", "gradient_checkpointing", "id2label",
    "initializer_factor", "initializer_range", "is_decoder", "is_encoder_decoder", "is_llama_config", "label2id",
    "length_penalty", "max_length", "min_length", "model_type", "no_repeat_ngram_size", "num_beam_groups", "num_beams",
    "num_labels", "num_return_sequences", "output_attentions", "output_hidden_states", "output_past", "output_scores",
    "pad_token_id", "prefix", "problem_type", "remove_invalid_values", "repetition_penalty", "return_dict",
    "return_dict_in_generate", "sep_token_id", "suppress_tokens", "task_specific_params", "temperature",
    "tf_legacy_loss", "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript", "transformers_version",
    "typical_p", "unk_token_id", "use_bfloat16", "use_cache", "vocab_size",
})  # fmt: skip
# Names of programs, and settings of BERT's first program that no other has read.
HARMLESS_NAMES = re.compile(
    r"(transformers|torch|peft|trl|unsloth|sentence_transformers|bitsandbytes)_version|unsloth_.*|pooler_.*"
)
# Keys that every family may have, with the one value at which they change nothing.
OFF: dict[str, tuple[Any, ...]] = {
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "add_cross_attention": (False, None),
    "tie_encoder_decoder": (False, None),
}


LISTED = 4  # keys in one line
allow_unknown = False  # `--allow-unknown`


@contextmanager
def unknown_allowed() -> Iterator[None]:
    """Keys that headway does not know are named in a warning, and the model is opened."""
    global allow_unknown
    before, allow_unknown = allow_unknown, True
    try:
        yield
    finally:
        allow_unknown = before


class Keys:
    """A config.json, read key by key; `done` refuses keys that were not read. A default may be a function of it.
    `usual`: defaults of the family, which hold before those."""

    def __init__(
        self, facts: dict[str, Any], where: str = "config.json", usual: Mapping[str, Any] | None = None
    ) -> None:
        self.facts, self.where, self.usual, self.family = facts, where, usual or {}, facts.get("model_type")
        self.used: set[str] = set()

    def take(self, key: str, default: Any = None, *kinds: type) -> Any:
        """The key's value; `default` where it is not there or null."""
        self.used.add(key)
        usual = self.usual.get(key, default(self) if callable(default) else default)
        value = usual if self.facts.get(key) is None else self.facts[key]
        if value is not None and kinds and (not isinstance(value, kinds) or isinstance(value, bool)):
            raise InputError(f"{self.where}: {key} is {value!r}, which is no {KINDS[kinds[-1]]}")
        return value

    def size(self, key: str, default: Any = None, least: int = 1) -> int:
        value = self.take(key, default, int)
        refuse(value is None, f"{self.where} lacks the key '{key}'")
        refuse(value < least, f"{self.where}: {key} is {value}, it must be at least {least}")
        return int(value)

    def number(self, key: str, default: Any = None) -> Any:
        value = self.take(key, default, int, float)
        return None if value is None else float(value)

    def flag(self, key: str, default: Any) -> bool:
        value = self.take(key, default)
        refuse(not isinstance(value, bool), f"{self.where}: {key} is {value!r}, it must be true or false")
        return bool(value)

    def must(self, key: str, *allowed: Any) -> None:
        """A key that may only have these values, the first where it is not there."""
        value = self.take(key, allowed[0])
        if value not in allowed:
            choices = " or ".join(map(repr, allowed))
            raise InputError(f"{self.where}: {key} is {value!r}, headway's {self.family} has only {choices}")

    def choice(self, key: str, default: str, choices: Mapping[str, Any]) -> Any:
        value = self.take(key, default)
        if not isinstance(value, str) or value not in choices:
            raise InputError(f"{self.where}: headway has no {key} '{value}'{nearest(str(value), choices)}")
        return choices[value]

    def done(self) -> None:
        for key, allowed in OFF.items():
            if key in self.facts and key not in self.used and self.facts[key] not in allowed:
                raise InputError(f"{self.where}: {key} is {self.facts[key]!r}, which headway does not have")
        known = self.used | HARMLESS | OFF.keys()
        asked = [key for key, value in self.facts.items() if value and key not in known]
        unknown = sorted(key for key in asked if not HARMLESS_NAMES.fullmatch(key))
        listed = ", ".join(f"'{key}' ({self.facts[key]!r})" for key in unknown[:LISTED])
        listed += f" and {len(unknown) - LISTED} more" if len(unknown) > LISTED else ""
        fault = f"{self.where} has {listed}, which headway's {self.family} does not have"
        refuse(
            unknown and not allow_unknown,
            f"{fault}: it may change what the model computes, so the model is refused; --allow-unknown opens it",
        )
        if unknown:
            warnings.warn(f"{fault}: the model may compute something else than it was trained to", Notice, stacklevel=2)


class NoCounterpart(Exception):
    """The format cannot express a value. Its text: which one."""


@dataclass(frozen=True)
class Field:
    """A field of headway's config and its keys in config.json. write: of its value and the whole config."""

    read: Callable[[Keys], Any]
    write: Callable[[Any, Any], dict[str, Any]]


Fields = dict[str, Field]  # by the field's name, with dots for a field of a part


def size(key: str, default: Any = None, twin: str = "", least: int = 1) -> Field:
    """A whole number. `twin`: a second key that must have the same value. 0 is written as null."""

    def read(keys: Keys) -> int:
        value = keys.size(key, default, least)
        if twin:
            keys.must(twin, value)
        return value

    def write(value: int, config: Any) -> dict[str, Any]:
        if value < least:
            raise NoCounterpart
        return {name: value or None for name in (key, twin) if name}

    return Field(read, write)


def number(key: str, default: Any = None, also: str = "") -> Field:
    """Without a default it may be None, which is not written. `also`: a second key that is written."""
    names = [key, also] if also else [key]
    return Field(
        lambda keys: keys.number(key, default), lambda value, _: {} if value is None else dict.fromkeys(names, value)
    )


def flag(key: str, default: Any, yes: Any = True, no: Any = False) -> Field:
    """`yes`, `no`: headway's values for true and false."""

    def write(value: Any, config: Any) -> dict[str, Any]:
        if value not in (yes, no):
            raise NoCounterpart
        return {key: value == yes}

    return Field(lambda keys: yes if keys.flag(key, default) else no, write)


def choice(key: str, default: str, choices: Mapping[str, Any]) -> Field:
    """`choices`: headway's values by theirs; the first of equal ones is written."""

    def write(value: Any, config: Any) -> dict[str, Any]:
        for name, ours in choices.items():
            if ours == value:
                return {key: name}
        alike = next((ours for ours in choices.values() if type(ours) is type(value)), None)
        raise NoCounterpart(misfit(value, alike) if is_dataclass(value) and alike else "")

    return Field(lambda keys: keys.choice(key, default, choices), write)


def read_fields(base: T, table: Fields, keys: Keys) -> T:
    """`base` with the values of a config.json."""
    return _changed(base, {path: one.read(keys) for path, one in table.items()})


def _changed(value: T, values: dict[str, Any]) -> T:
    """All fields of a part at once: one may be valid only with another."""
    whole = {path: item for path, item in values.items() if "." not in path}
    for head in dict.fromkeys(path.partition(".")[0] for path in values.keys() - whole.keys()):
        inner = {path.removeprefix(f"{head}."): item for path, item in values.items() if path.startswith(f"{head}.")}
        whole[head] = _changed(whole.get(head, getattr(value, head)), inner)
    return replace(value, **whole)  # type: ignore[type-var]


def write_fields(config: Any, table: Fields) -> dict[str, Any]:
    """The keys of a config.json; a NoCounterpart names the field."""
    facts: dict[str, Any] = {}
    for path, one in table.items():
        value = attrgetter(path)(config)
        # Fields of a part that have keys of their own may have any value.
        inner = [other.removeprefix(f"{path}.") for other in table if other.startswith(f"{path}.")]
        plain = replace(value, **{name: getattr(type(value), name) for name in inner}) if inner else value
        try:
            said = one.write(plain, config)
            if any(facts.get(key, item) != item for key, item in said.items()):
                raise NoCounterpart  # a second field with the same key
            facts |= said
        except NoCounterpart as error:
            raise NoCounterpart(f"model.{path}{str(error) or _shown(value)}") from None
    return facts


def misfit(found: Any, wanted: Any, free: Collection[str] = (), at: str = "") -> str:
    """The first field of `found` that differs from that of `wanted`, but for those that are `free`; "" for none."""
    for name in (f.name for f in fields(found)):
        path, mine, other = f"{at}.{name}", getattr(found, name), getattr(wanted, name)
        if path in free or mine == other:
            continue
        if not is_dataclass(mine) or type(mine) is not type(other):
            return path + _shown(mine)
        if inside := misfit(mine, other, free, path):
            return inside
    return ""


def _shown(value: Any) -> str:
    return f"={str(value).lower() if isinstance(value, bool) else getattr(value, 'name', value)}"

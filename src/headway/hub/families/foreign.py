"""What the hub knows of one foreign family, and how its config.json is read: every key is used, checked or known to
change nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from headway.errors import InputError, nearest
from headway.hub.names import Table

# Keys that change nothing in what a model computes: names and dates, defaults for training and generation, what to
# return. Every family has them.
HARMLESS = frozenset({
    "_attn_implementation", "_attn_implementation_autoset", "_attn_implementation_internal", "_commit_hash",
    "_name_or_path", "architectures", "auto_map", "bad_words_ids", "begin_suppress_tokens", "bos_token_id",
    "chunk_size_feed_forward", "cross_attention_hidden_size", "decoder_start_token_id", "diversity_penalty",
    "do_sample", "dtype", "early_stopping", "encoder_no_repeat_ngram_size", "eos_token_id",
    "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id", "forced_eos_token_id",
    "gradient_checkpointing", "id2label", "initializer_factor", "initializer_range", "is_decoder",
    "is_encoder_decoder", "label2id", "length_penalty", "max_length", "min_length", "model_type",
    "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "output_attentions",
    "output_hidden_states", "output_past", "output_scores", "pad_token_id", "prefix", "problem_type",
    "remove_invalid_values", "repetition_penalty", "return_dict", "return_dict_in_generate", "sep_token_id",
    "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss", "tokenizer_class", "top_k", "top_p",
    "torch_dtype", "torchscript", "transformers_version", "typical_p", "unk_token_id", "use_bfloat16", "use_cache",
    "vocab_size",
})  # fmt: skip
# Keys that every family may have, with the one value at which they change nothing.
OFF: dict[str, tuple[Any, ...]] = {
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "add_cross_attention": (False, None),
    "tie_encoder_decoder": (False, None),
}


class Keys:
    """A config.json, read key by key; `done` refuses keys that were not read."""

    def __init__(self, facts: dict[str, Any], where: str = "config.json") -> None:
        self.facts, self.where = facts, where
        self.used: set[str] = set()

    def take(self, key: str, default: Any = None, kind: type | tuple[type, ...] = object) -> Any:
        """The key's value; `default` where it is not there or null."""
        self.used.add(key)
        value = self.facts.get(key)
        value = default if value is None else value
        if kind is float or kind == (float,):
            kind = (int, float)
        if value is not None and kind is not object and (not isinstance(value, kind) or isinstance(value, bool)):
            raise InputError(f"{self.where}: {key} is {value!r}, which is no {_name(kind)}")
        return value

    def size(self, key: str, default: int | None = None) -> int:
        value = self.take(key, default, int)
        if value is None:
            raise InputError(f"{self.where} lacks the key '{key}'")
        if value < 1:
            raise InputError(f"{self.where}: {key} is {value}, it must be at least 1")
        return int(value)

    def number(self, key: str, default: float) -> float:
        return float(self.take(key, default, (int, float)))

    def flag(self, key: str, default: bool) -> bool:
        value = self.take(key, default)
        if not isinstance(value, bool):
            raise InputError(f"{self.where}: {key} is {value!r}, it must be true or false")
        return value

    def must(self, key: str, *allowed: Any) -> None:
        """A key that may only have these values, the first where it is not there."""
        value = self.take(key, allowed[0])
        if value not in allowed:
            choices = " or ".join(map(repr, allowed))
            raise InputError(f"{self.where}: {key} is {value!r}, headway's {self._family} has only {choices}")

    def choice(self, key: str, default: str, choices: dict[str, Any]) -> Any:
        value = self.take(key, default)
        if value not in choices:
            raise InputError(f"{self.where}: headway has no {key} '{value}'{nearest(str(value), choices)}")
        return choices[value]

    def ignore(self, *keys: str) -> None:
        """Keys that change nothing in what this family computes."""
        self.used.update(keys)

    def done(self) -> None:
        for key, allowed in OFF.items():
            if key in self.facts and key not in self.used and self.facts[key] not in allowed:
                raise InputError(f"{self.where}: {key} is {self.facts[key]!r}, which headway does not have")
        known = self.used | HARMLESS | OFF.keys()
        unknown = sorted(key for key, value in self.facts.items() if key not in known and value is not None)
        if unknown:
            listed = ", ".join(f"'{key}' ({self.facts[key]!r})" for key in unknown[:4])
            raise InputError(
                f"{self.where} has {listed}, which headway's {self._family} does not have: it may change what the "
                "model computes, so the model is refused"
            )

    @property
    def _family(self) -> str:
        return str(self.facts.get("model_type"))


def _name(kind: type | tuple[type, ...]) -> str:
    names = {int: "whole number", float: "number", str: "text", list: "list", dict: "object"}
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return names.get(kinds[-1], kinds[-1].__name__)


@dataclass(frozen=True)
class Usual:
    """A family's tokenizer where no file of the folder describes it.

    specials: special tokens by role. frame: whether a text gets the start token before it and the end token after it,
    of families with SentencePiece files; None: the family has none. split: text is split at spaces before
    SentencePiece. sentinels: how many `<extra_id_…>` follow its tokens. enclosed: byte-level BPE puts `first` before a
    text and `separator` after it.
    """

    specials: Mapping[str, str] = field(default_factory=dict)
    frame: tuple[bool, bool] | None = None
    split: bool = False
    sentinels: int = 0
    enclosed: bool = False


@dataclass(frozen=True)
class Foreign:
    """One model_type of Hugging Face's.

    family: headway's that holds it. architectures: those that can be read, first the one that is written. config_in:
    headway's config of a config.json, with the head of an encoder. config_out: the reverse, of config, sizes and head,
    without the keys that every family has (model_type, architectures). table: weight names, of the same. vocabularies:
    the sizes in config.json. settle: config and head completed by the folder's other files and its weights' names.
    constants: tables of a formula that are stored like weights. seq2seq: a target is decoded by the folder's settings.
    """

    model_type: str
    family: str
    architectures: tuple[str, ...]
    config_in: Callable[[dict[str, Any]], Any]
    config_out: Callable[..., dict[str, Any]]
    table: Callable[..., Table]
    vocabularies: Callable[[dict[str, Any]], tuple[int, ...]]
    settle: Callable[[Any, Any, Path, Collection[str]], tuple[Any, Any]] | None = None
    constants: Callable[[Any], dict[str, Tensor]] | None = None
    usual: Usual = Usual()
    seq2seq: bool = False

    def model_in(self, facts: dict[str, Any]) -> tuple[Any, Any]:
        """Our config and, of an encoder, the head."""
        found = self.config_in(facts)
        return found if isinstance(found, tuple) else (found, None)


def refuse(model_type: str, faults: dict[str, bool]) -> None:
    """Raise where a choice of the model has no counterpart in the family."""
    if found := [choice for choice, is_so in faults.items() if is_so]:
        raise InputError(f"{model_type} cannot hold this model: {found[0]} has no counterpart there")


def one_vocabulary(facts: dict[str, Any]) -> tuple[int, ...]:
    return (Keys(facts).size("vocab_size"),)

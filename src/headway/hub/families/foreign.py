"""What the hub knows of one foreign family: tables of the keys in its config.json and of its weights' names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from headway.errors import InputError
from headway.hub.config_keys import Fields, Keys, NoCounterpart, misfit, read_fields, write_fields
from headway.hub.decoding import search_in
from headway.hub.names import Table
from headway.models import parts

SHARED = "share_encoder_decoder_embeddings"
SIZES = {"num_channels": 3}  # of what a model reads, where config.json does not say it
# Feed-forward layers of one activation, of families whose config.json names it.
ACTIVATIONS = {
    "gelu": parts.Gelu(),
    "gelu_new": parts.Gelu(approximate="tanh"),
    "gelu_pytorch_tanh": parts.Gelu(approximate="tanh"),
    "relu": parts.Relu(),
}


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

    architectures: those that can be read, first the one that is written. base: headway's config with the choices that
    the family always has; fields: those that its config.json has keys for; defaults: of keys that are missing. must:
    keys with the one value that headway has; ignored: keys that change nothing. names: of the weights, by config and
    head. head_in: the head of an encoder, by its keys and the config; head_out: the keys of any head. settle: config
    and head completed by the folder's other files and its weights' names. constants: tables of a formula, stored
    like weights. seq2seq: a target is decoded by the folder's settings. languages: a target begins with the token of
    its language, which these must say. size_key: of the size of what it reads; size_keys: of several such sizes.
    processors: of a model that reads no text, the configs of its processors by the folder, headway's config and those
    sizes; task: its task by the head (None:
    the family's). channels: of what a model reads that writes text; the size is then that of its vocabulary. search:
    settings of generation by the folder's.
    """

    model_type: str
    architectures: tuple[str, ...]
    base: Any
    fields: Fields
    names: Callable[[Any, Any], Table]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    must: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    head_in: Callable[[Keys, Any], Any] = lambda keys, config: None
    head_out: Callable[[Any, Any], dict[str, Any]] = lambda head, config: {}
    settle: Callable[[Any, Any, Path, Collection[str]], tuple[Any, Any]] | None = None
    constants: Callable[[Any], dict[str, Tensor]] | None = None
    usual: Usual = Usual()
    seq2seq: bool = False
    languages: bool = False
    size_key: str = "vocab_size"
    size_keys: tuple[str, ...] = ()
    processors: Callable[..., dict[str, Any]] | None = None
    task: Callable[[Any], str] | None = None
    channels: tuple[int, ...] = ()
    search: Callable[[dict[str, Any], str], dict[str, Any]] = search_in

    @property
    def family(self) -> str:
        """headway's that holds it."""
        return str(self.base.name)

    def model_in(self, facts: dict[str, Any]) -> tuple[Any, Any]:
        """Our config of a config.json and, of an encoder, the head."""
        keys = Keys(facts, usual=self.defaults)
        keys.used.update(self.ignored)
        for key, value in self.must.items():
            keys.must(key, value)
        config = read_fields(self.base, self.fields, keys)
        head = self.head_in(keys, config)
        keys.done()
        return config, head

    def vocabularies(self, facts: dict[str, Any]) -> tuple[int, ...]:
        """The sizes in config.json."""
        if self.size_keys:
            return tuple(Keys(facts, usual=self.defaults).size(key) for key in self.size_keys)
        source = Keys(facts, usual={**SIZES, **self.defaults}).size(self.size_key)
        if self.channels:
            return *self.channels, source
        if facts.get(SHARED, True):
            return (source,) * (2 if self.seq2seq else 1)
        return source, Keys(facts).size("decoder_vocab_size", source)

    def config_out(self, config: Any, sizes: tuple[int, ...], head: Any = None) -> dict[str, Any]:
        """The keys of config.json; a choice without a counterpart is refused by name."""
        try:
            if fault := misfit(config, self.base, {f"model.{path}" for path in self.fields}, "model"):
                raise NoCounterpart(fault)
            written = dict(zip(self.size_keys or (self.size_key,), sizes[len(self.channels) :], strict=False))
            facts = write_fields(config, self.fields) | written | self.head_out(head, config)
        except NoCounterpart as fault:
            raise InputError(f"{self.model_type} cannot hold this model: {fault} has no counterpart there") from None
        facts |= {"is_encoder_decoder": True} if self.seq2seq else {}
        return facts | ({"decoder_vocab_size": sizes[1]} if SHARED in facts else {})

    def table(self, ours: Collection[str], config: Any, sizes: tuple[int, ...], head: Any = None) -> Table:
        """The names of the weights of headway's model, whose parameters are `ours`."""
        heads = getattr(config, "heads", 1)
        shared = getattr(config, "shared_heads", 0) or heads
        shares = (heads, shared, shared)
        return replace(self.names(config, head), ours=ours, vocabulary=sizes[len(self.channels)], shares=shares)

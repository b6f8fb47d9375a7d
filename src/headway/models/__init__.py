"""Systems: one file a family. `FAMILIES` is the one place where a family's name becomes a class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Union

import torch
from torch import Tensor

from headway.batch import TextInputs
from headway.models import bert, gpt, recurrent, rnn_seq2seq, transformer, vit
from headway.models.bert import Bert, BertConfig
from headway.models.gpt import GPT, GPTConfig
from headway.models.heads import Headed
from headway.models.llama import Llama, LlamaConfig
from headway.models.neural_ngram import NeuralNGram, NeuralNGramConfig
from headway.models.ngram import NGram, NGramConfig
from headway.models.recurrent import Recurrent, RecurrentConfig
from headway.models.rnn_seq2seq import RnnSeq2Seq, RnnSeq2SeqConfig
from headway.models.rung import Rung, RungConfig
from headway.models.skip_gram import SkipGram, SkipGramConfig, blank_pairs
from headway.models.t5 import T5, T5Config
from headway.models.transformer import Transformer, TransformerConfig
from headway.models.vit import ViT, ViTConfig


def blank_ids(config: Any, sizes: Sequence[int], batch: int, *lengths: int) -> tuple[Tensor, ...]:
    """Rows of ids for each length."""
    return tuple(torch.zeros(batch, length, dtype=torch.long) for length in lengths)


def blank_texts(config: Any, sizes: Sequence[int], batch: int, length: int) -> tuple[TextInputs]:
    """Texts that an encoder reads whole."""
    return (TextInputs(*blank_ids(config, sizes, batch, length)),)


class Family(NamedTuple):
    """A model is built of its config and the sizes of the processors that it `takes`.

    task: that of a checkpoint whose card names none; with a head, the head's task. sizes: configs by name.
    role: how it is called: `steps` (language models and sequence-to-sequence models), `encodes`, `scores` (counted
    models), `vectors`. learns: how its weights are found: by `gradients`, by `counting`, or by `rows` of its tables.
    example: the inputs of a forward pass, for a config, the sizes, a batch size and a length for each vocabulary.
    sized: a phrase for those sizes, and the setting of a run that they are from.
    """

    config: Any
    model: Any
    task: str = "language"
    takes: tuple[str, ...] = ("text",)
    sizes: dict[str, Any] = {}
    role: str = "steps"
    learns: str = "gradients"
    example: Callable[..., tuple[Any, ...]] = blank_ids
    sized: tuple[str, str] = ("a vocabulary of {}", "data.text.size")

    @property
    def has_source(self) -> bool:
        return "source" in self.takes

    @property
    def steps(self) -> bool:
        """Whether it reads token after token and passes a state on."""
        return self.role == "steps"


PAIR = ("source", "target")
FAMILIES = {
    "transformer": Family(TransformerConfig, Transformer, "translation", PAIR, transformer.SIZES),
    "bert": Family(BertConfig, Bert, "embedding", sizes=bert.SIZES, role="encodes", example=blank_texts),
    "gpt": Family(GPTConfig, GPT, sizes=gpt.SIZES),
    "llama": Family(LlamaConfig, Llama),
    "neural-ngram": Family(NeuralNGramConfig, NeuralNGram),
    "ngram": Family(NGramConfig, NGram, role="scores", learns="counting"),
    "recurrent": Family(RecurrentConfig, Recurrent, sizes=recurrent.SIZES),
    "rnn-seq2seq": Family(RnnSeq2SeqConfig, RnnSeq2Seq, "translation", PAIR, rnn_seq2seq.SIZES),
    "rung": Family(RungConfig, Rung),
    "t5": Family(T5Config, T5, "translation", PAIR),
    "skip-gram": Family(SkipGramConfig, SkipGram, "word-vectors", role="vectors", learns="rows", example=blank_pairs),
    "vit": Family(
        ViTConfig, ViT, "image-classification", ("image",), vit.SIZES, "encodes", example=vit.blank, sized=vit.SIZED
    ),
}

ModelConfig: Any = Union[tuple(family.config for family in FAMILIES.values())]  # noqa: UP007


def build(family: str, config: Any, sizes: Sequence[int], head: Any = None) -> Any:
    """A model, its weights drawn anew; with a head, an encoder below it."""
    model = FAMILIES[family].model(config, *sizes)
    return model if head is None else Headed(model, head)

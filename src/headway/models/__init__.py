"""Systems: one file a family. `FAMILIES` is the one place where a family's name becomes a class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headway.models.bert import Bert, BertConfig
from headway.models.gpt import GPT, GPTConfig
from headway.models.llama import Llama, LlamaConfig
from headway.models.neural_ngram import NeuralNGram, NeuralNGramConfig
from headway.models.ngram import NGram, NGramConfig
from headway.models.recurrent import Recurrent, RecurrentConfig
from headway.models.rung import Rung, RungConfig
from headway.models.skip_gram import SkipGram, SkipGramConfig, blank_pairs
from headway.models.steps import StepModel
from headway.models.t5 import T5, T5Config
from headway.models.transformer import Transformer, TransformerConfig


def blank_ids(config: Any, batch: int, *lengths: int) -> tuple[Tensor, ...]:
    """Rows of ids for each length."""
    return tuple(torch.zeros(batch, length, dtype=torch.long) for length in lengths)


class Family(NamedTuple):
    """A model is built of its config and its vocabularies' sizes: source and target, or the one of a text.

    `use` is what one does with its folder. `example`: the inputs of a forward pass, for a config, a batch size and a
    length for each vocabulary."""

    config: Any
    model: Any
    vocabularies: int = 1
    use: str = "headway generate FOLDER --prompt 'Once upon a time'"
    example: Callable[..., tuple[Tensor, ...]] = blank_ids

    @property
    def has_source(self) -> bool:
        return self.vocabularies == 2

    @property
    def steps(self) -> bool:
        """Whether it reads token after token and passes a state on."""
        return issubclass(self.model, StepModel)


FAMILIES = {
    "transformer": Family(TransformerConfig, Transformer, 2, "headway translate FOLDER < text"),
    "bert": Family(BertConfig, Bert, use="headway embed, fill or classify FOLDER --text TEXT, by its task"),
    "gpt": Family(GPTConfig, GPT),
    "llama": Family(LlamaConfig, Llama),
    "neural-ngram": Family(NeuralNGramConfig, NeuralNGram),
    "ngram": Family(NGramConfig, NGram),
    "recurrent": Family(RecurrentConfig, Recurrent),
    "rung": Family(RungConfig, Rung),
    "t5": Family(T5Config, T5, 2, "headway translate FOLDER < text"),
    "skip-gram": Family(SkipGramConfig, SkipGram, use="headway neighbours FOLDER WORD", example=blank_pairs),
}

ModelConfig = (
    TransformerConfig
    | BertConfig
    | GPTConfig
    | LlamaConfig
    | NeuralNGramConfig
    | NGramConfig
    | RecurrentConfig
    | RungConfig
    | SkipGramConfig
    | T5Config
)

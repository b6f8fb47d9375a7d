"""Systems: one file a family. `FAMILIES` is the one place where a family's name becomes a class."""

from __future__ import annotations

from typing import Any, NamedTuple

from headway.models.gpt import GPT, GPTConfig
from headway.models.neural_ngram import NeuralNGram, NeuralNGramConfig
from headway.models.ngram import NGram, NGramConfig
from headway.models.recurrent import Recurrent, RecurrentConfig
from headway.models.rung import Rung, RungConfig
from headway.models.skip_gram import SkipGram, SkipGramConfig
from headway.models.transformer import Transformer, TransformerConfig


class Family(NamedTuple):
    """A model is built of its config and its vocabularies' sizes: source and target, or the one of a text.

    `use` is what one does with its folder."""

    config: Any
    model: Any
    vocabularies: int = 1
    use: str = "headway generate FOLDER --prompt 'Once upon a time'"


FAMILIES = {
    "transformer": Family(TransformerConfig, Transformer, 2, "headway translate FOLDER < text"),
    "gpt": Family(GPTConfig, GPT),
    "neural-ngram": Family(NeuralNGramConfig, NeuralNGram),
    "ngram": Family(NGramConfig, NGram),
    "recurrent": Family(RecurrentConfig, Recurrent),
    "rung": Family(RungConfig, Rung),
    "skip-gram": Family(SkipGramConfig, SkipGram, use="headway neighbours FOLDER WORD"),
}

ModelConfig = (
    TransformerConfig | GPTConfig | NeuralNGramConfig | NGramConfig | RecurrentConfig | RungConfig | SkipGramConfig
)

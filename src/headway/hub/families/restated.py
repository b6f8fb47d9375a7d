"""The same model in other words: what a format cannot say as it stands, it often can say as an equal model.

Each function takes a config and its weights by name, and gives others that compute the same function. D width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headway.errors import refuse
from headway.models import build, parts
from headway.models.gpt import GPTConfig
from headway.models.transformer import TransformerConfig
from headway.nn.block import INTO_SUM
from headway.nn.position import sinusoid

Weights = dict[str, Tensor]
# Names whose second axis is the stream between the layers; those whose first is are in `INTO_SUM`.
INSIDE = ("qkv.bias", "query.bias", "key_value.bias", "expand.bias")  # of what a sublayer computes for itself
READS = ("table.weight", "qkv.weight", "cross.query.weight", "key_value.weight", "expand.weight", "head.weight")


def halved(config: TransformerConfig, weights: Weights) -> tuple[TransformerConfig, Weights]:
    """Sines first: the width's columns 0, 2, 4 … 1, 3, 5 … in every weight that reads or writes the stream.

    A product is a sum over the width, and a norm a sum and a factor for each column: neither knows their order.
    """
    if config.position != parts.Sinusoidal():
        return config, weights
    columns_D = torch.cat([torch.arange(first, config.width, 2) for first in (0, 1)])

    def moved(name: str, weight: Tensor) -> Tensor:
        if name.endswith(READS):
            return weight.index_select(1, columns_D)
        if name.endswith(INTO_SUM) or (weight.dim() == 1 and not name.endswith(INSIDE)):
            return weight.index_select(0, columns_D)
        return weight

    position = replace(config.position, order="halves")
    return replace(config, position=position), {name: moved(name, weight) for name, weight in weights.items()}


def completed(family: str, config: Any, vocabularies: tuple[int, ...], weights: Weights) -> Weights:
    """With zeros for every weight that only this config has: biases."""
    with torch.device("meta"):
        model = build(family, config, vocabularies)
    return weights | {
        name: torch.zeros(weight.shape) for name, weight in model.named_parameters() if name not in weights
    }


def translator(config: TransformerConfig, sizes: tuple[int, ...], weights: Weights) -> tuple[Any, Weights]:
    """Sines first, logits with a bias: as Marian and Pegasus are. A head of its own keeps its bias beside its columns,
    which they have no place for."""
    refuse(config.copying, "Marian and Pegasus have no head that copies: model.copying")
    config, weights = halved(config, weights)
    if not config.output_bias and config.embeddings in ("shared", "tied"):
        config = replace(config, output_bias=True)
        weights = completed("transformer", config, sizes, weights)
    return config, weights


def gpt(config: GPTConfig, sizes: tuple[int, ...], weights: Weights) -> tuple[Any, Weights]:
    """Every map with a bias; sinusoids as a table that could have been learned."""
    config = replace(config, word_dropout=0.0, shared_heads=config.shared_heads % config.heads)
    if type(config.position) is parts.Sinusoidal and config.position.order == "pairs":
        table_PD = sinusoid(torch.arange(config.max_length), config.width, config.position.base).float()
        weights = weights | {"embed.position.table.weight": table_PD}
        config = replace(config, position=parts.Learned())
    if not config.bias and not isinstance(config.feed_forward, parts.Gated):
        config = replace(config, bias=True)
        weights = completed("gpt", config, sizes, weights)
    return config, weights


def unchanged(config: Any, sizes: tuple[int, ...], weights: Weights) -> tuple[Any, Weights]:
    return config, weights

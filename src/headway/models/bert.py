"""The encoder alone (Devlin et al. 2019, "BERT"): every token from those on both its sides.

RoBERTa (Liu et al. 2019) counts positions from another row and has one type; ALBERT (Lan et al. 2020) has a narrow
embedding and uses few layers many times over; MPNet (Song et al. 2020) has a bias of distances in every layer beside
its positions; BigBird (Zaheer et al. 2020) sees blocks of a long text. All are sizes of one config; what stands on the
last layer is a head (`headway.models.heads`).

B batch, T length, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, final

from torch import nn

from headway.models import parts
from headway.models.protocols import Encoded
from headway.models.text_encoder import STD, TextEncoder
from headway.nn.embedding import TypedEmbedding, token_table
from headway.nn.position import Learned


@dataclass(frozen=True)
class BertConfig:
    """`types`: of token (0: none). `first_position`: the row of the first token in the table of positions, which has
    `max_length` rows from there on. `narrow`: the embedding's width (0: the layers'). `distance`: what is
    added to the scores of every layer. `pattern`: what a token sees of the text.

    groups, group_layers: only so many groups of so many layers are there, each used as often as it takes to be passed
    `layers` groups (0: every layer is its own).
    """

    name: ClassVar[str] = "bert"
    layers: int = 12
    width: int = 768
    inner: int = 3072
    heads: int = 12
    narrow: int = 0
    groups: int = 0
    group_layers: int = 1
    types: int = 2
    first_position: int = 0
    max_length: int = 512
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm: parts.PostNorm = field(default_factory=lambda: parts.PostNorm(1e-12))
    feed_forward: parts.Gelu | parts.Relu = field(default_factory=parts.Gelu)
    distance: parts.NoPosition | parts.RelativeBias = field(default_factory=parts.NoPosition)
    pattern: parts.Whole | parts.Blocks = field(default_factory=parts.Whole)


SIZES = {
    "mini": BertConfig(4, 256, 1024, 4),
    "minilm": BertConfig(6, 384, 1536, 12),
    "base": BertConfig(),
    "large": BertConfig(24, 1024, 4096, 16),
}


@final
class Bert(TextEncoder):
    """The last of a stack of blocks that see the whole text."""

    def __init__(self, config: BertConfig, vocabulary: int) -> None:
        super().__init__(config)
        if config.groups and config.layers % config.groups:
            raise ValueError(f"{config.layers} layers cannot share {config.groups} groups evenly")
        narrow = config.narrow or config.width
        table = token_table(vocabulary, narrow, STD)
        self.embed = TypedEmbedding(
            table, Learned(narrow, config.first_position + config.max_length), config.types,
            nn.LayerNorm(narrow, config.norm.epsilon), config.dropout,
            nn.Linear(narrow, config.width) if config.narrow else None, config.first_position,
        )  # fmt: skip
        self.distance = config.distance.build(parts.Room(config.width, config.heads, config.max_length, both_ways=True))
        self.encoder = parts.stack(config, (config.groups or config.layers) * config.group_layers)
        self.takes_positions = config.pattern == parts.Whole() and config.distance == parts.NoPosition()
        self.draw(self)

    def encode(self, inputs: Any) -> Encoded:
        """Rows are padded on the right."""
        x_BTD = self.embedded(inputs)
        rules = partial(self.config.pattern.rules, x_BTD.shape[1], self.training)
        return Encoded(
            self.encoder.encode(x_BTD, inputs.lengths_B, self.distance, self._order(), rules), inputs.lengths_B
        )

    def _order(self) -> list[int]:
        """Which layer comes when: every group stands for as many in a row."""
        groups, size = self.config.groups or self.config.layers, self.config.group_layers
        at = [layer * groups // self.config.layers for layer in range(self.config.layers)]
        return [group * size + inner for group in at for inner in range(size)]

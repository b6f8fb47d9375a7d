"""What BERT, DeBERTa and ModernBERT have in common: an embedding with types, and how weights are drawn.

B batch, T length, D width.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from headway.models.protocols import Encodes
from headway.nn.block import draw_normal
from headway.nn.embedding import TypedEmbedding

STD = 0.02  # of every weight at the start (Devlin et al. 2019, as released)


class TextEncoder(Encodes):
    """Abstract. Reads a text or a pair of texts whole."""

    embed: TypedEmbedding

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config, self.context = config, config.max_length
        self.width, self.dropout = config.width, config.dropout

    @property
    def table(self) -> nn.Embedding:
        return self.embed.table

    def draw(self, part: nn.Module) -> None:
        draw_normal(part, STD, but=self.table.weight)

    def embedded(self, inputs: Any) -> Tensor:
        types_BT = None if self.embed.types is None else inputs.types_BT
        if types_BT is not None:
            types_BT = types_BT.clamp(max=self.config.types - 1)  # a tokenizer may know more types than the model
        x_BTD: Tensor = self.embed(inputs.ids_BT, types_BT, inputs.positions_BT)
        return x_BTD

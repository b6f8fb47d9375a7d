"""How a model is called. Generation, training and evaluation know these protocols, and no model's insides.

B sources, R rows, T length, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from headway.nn.embedding import Embedded

__all__ = ["Embedded", "Encoded", "Encodes", "Scores", "Steps", "Terms"]

Terms = dict[str, tuple[Tensor, float]]  # the sum of each loss term and its weight; the batch has its count


@dataclass(frozen=True, eq=False)
class Encoded:
    """What an encoder gives: its last layer, the rows' lengths (None: no row is padded), and every layer's output where
    the model keeps them."""

    x_BTD: Tensor
    lengths_B: Tensor | None = None
    layers: tuple[Tensor, ...] = ()


class Encodes(Protocol):
    """Reads its inputs whole. `inputs` is read by attribute: `ids_BT` and `lengths_B` where they are text."""

    width: int
    context: int | None

    def encode(self, inputs: Any) -> Encoded: ...


class Scores(Protocol):
    """The least that a language model has."""

    def score(self, ids_BT: Tensor, segments_BT: Tensor | None = None) -> Tensor:
        """log p(x_t | x_<t) of every token, 0 for the first of a row, which is given."""


class Steps(Protocol):
    """A language model, or a sequence-to-sequence model: rows are read any number of tokens at a time, and after each
    token the model gives the logits of the next. `headway.models.steps` says what each call promises."""

    vocabulary: int
    context: int | None
    tracks: ClassVar[dict[str, tuple[str, str]]]
    capturable: ClassVar[bool]

    @property
    def output_weight(self) -> Tensor: ...
    def start(self, inputs: Any, rows: int, device: torch.device, room: int | None = None) -> Any: ...
    def embed(
        self, ids_RT: Tensor, state: Any, segments_RT: Tensor | None = None, lengths_R: Tensor | None = None
    ) -> Embedded: ...
    def hidden(self, embedded: Embedded, state: Any) -> tuple[Tensor, Any]: ...
    def head(self, hidden_RTD: Tensor, state: Any = None) -> Tensor: ...
    def read(
        self, ids_RT: Tensor, state: Any = None, segments_RT: Tensor | None = None, lengths_R: Tensor | None = None
    ) -> tuple[Tensor, Any]: ...
    def logits(
        self, ids_RT: Tensor, state: Any = None, segments_RT: Tensor | None = None, lengths_R: Tensor | None = None
    ) -> tuple[Tensor, Any]: ...

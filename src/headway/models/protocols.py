"""The two ways in which a model is stepped. Generation and training know these, and no model's insides."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class Stream(Protocol):
    """What a language model carries between steps."""

    def reorder(self, rows_R: Tensor) -> None: ...
    def keep(self, rows_R: Tensor) -> None: ...
    def repeat(self, group: int) -> None: ...
    def insert(self, other: Any) -> Any: ...
    def fork(self) -> Any: ...


class State(Protocol):
    """What an encoder-decoder does; `headway.nn.state` says what each call promises."""

    @property
    def source_length(self) -> int: ...
    def reorder(self, rows_R: Tensor) -> None: ...
    def widen(self, group: int) -> None: ...
    def select(self, sources_B: Tensor, parents_R: Tensor | None = None) -> None: ...
    def insert(self, other: Any) -> Any: ...
    def fork(self) -> Any: ...
    def steady(self, capacity: int, source_length: int) -> Any: ...
    def load(self, other: Any) -> None: ...
    def homes(self) -> list[Tensor]: ...
    def settle(self, homes: list[Tensor]) -> None: ...


class Seq2Seq(Protocol):
    """A source is encoded once; the target is decoded from its state, any number of tokens at a time."""

    def encode(self, source_BS: Tensor, lengths_B: Tensor | None = None, room: int | None = None) -> Any:
        """A fresh state. `room` asks for caches of that fixed size; without it they grow."""

    def hidden(self, ids_RT: Tensor, state: Any) -> tuple[Tensor, Any]: ...

    def head(self, hidden_RTD: Tensor) -> Tensor: ...

    def decode(self, ids_RT: Tensor, state: Any) -> tuple[Tensor, Any]:
        """head(hidden(ids))."""


class Scores(Protocol):
    """The common door of language models."""

    def score(self, ids_BT: Tensor, segments_BT: Tensor | None = None) -> Tensor:
        """log p(x_t | x_<t) of every token, 0 for the first of a row, which is given."""


class LanguageModel(Scores, Protocol):
    """A stream is read any number of tokens at a time; after each the model says what may come next.

    `headway.models.language` says what each call promises.
    """

    vocabulary: int
    context: int | None

    def start(self, rows: int, device: torch.device, room: int | None = None) -> Any: ...
    def hidden(
        self, ids_BT: Tensor, state: Any = None, segments_BT: Tensor | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, Any]: ...
    def head(self, hidden_BTD: Tensor) -> Tensor: ...
    def scored(
        self, ids_BT: Tensor, state: Any = None, segments_BT: Tensor | None = None
    ) -> tuple[Tensor, Any]: ...  # fmt: skip

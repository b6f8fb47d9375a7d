"""Heads: the last part of a model, on top of an encoder. Any encoder takes any head (`Headed`).

A head's config is a frozen dataclass with a `name`; `build` makes the module for an encoder. The module gives logits,
the loss terms of a batch, and the answers that its task reads.

B batch, T length, D width, V vocabulary, L labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.batch import IGNORED
from headway.models.crf import Crf
from headway.models.head import Head
from headway.models.protocols import Encoded, Terms
from headway.nn import embedding, tap
from headway.nn.dropout import Dropout
from headway.nn.gelu import gelu
from headway.nn.pooling import FirstToken, Pooling

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


@dataclass(frozen=True)
class Vectors:
    """The last layer. `first`: beside it, a map of the first token's vector. `pooling`: how a text's vector is made of
    its tokens' (None: not known), `unit`: of length 1, `longest`: of at most so many tokens (0: as the model)."""

    name: ClassVar[str] = "vectors"
    task: ClassVar[str] = "embedding"
    first: bool = False
    pooling: Pooling | None = None
    unit: bool = False
    longest: int = 0

    def build(self, encoder: Any) -> Head:
        return VectorsHead(encoder.width if self.first else None)


class VectorsHead(Head):
    does = "gives vectors (headway embed)"

    def __init__(self, width: int | None) -> None:
        super().__init__()
        self.first = None if width is None else FirstToken(width)

    def forward(self, encoded: Encoded) -> Any:
        return encoded.x_BTD if self.first is None else (encoded.x_BTD, self.first(encoded.x_BTD))


@dataclass(frozen=True)
class Words:
    """A word for every position (Devlin et al. 2019, 3.1). `tied`: by the embedding's own table."""

    name: ClassVar[str] = "words"
    task: ClassVar[str] = "masked-words"
    tied: bool = True
    activation: Literal["gelu", "gelu-tanh", "relu"] = "gelu"
    epsilon: float = 1e-12

    def build(self, encoder: Any) -> Head:
        return WordsHead(encoder, self)


class WordsHead(Head):
    """Logits norm(f(hW))Eᵀ + b: the word at each position; E is the embedding's own table."""

    axes = ("row", "target", "vocabulary")
    does = "fills gaps (headway fill)"

    def __init__(self, encoder: Any, config: Words) -> None:
        super().__init__()
        table: nn.Embedding = encoder.table
        narrow, self.activation = table.embedding_dim, ACTIVATIONS[config.activation]
        self.map, self.norm = nn.Linear(encoder.width, narrow), nn.LayerNorm(narrow, config.epsilon)
        self.output = embedding.Head(narrow, table.num_embeddings, table if config.tied else None)
        self.bias_V = nn.Parameter(torch.zeros(table.num_embeddings))

    def forward(self, encoded: Encoded) -> Any:
        return self.words(encoded.x_BTD)

    def words(self, hidden_BTD: Tensor) -> Tensor:
        logits_BTV: Tensor = self.output(self.norm(self.activation(self.map(hidden_BTD))))
        return logits_BTV + self.bias_V


@dataclass(frozen=True)
class WordsAndPair(Words):
    """Pre-training's two tasks: words, and whether the texts of a pair are in their order."""

    name: ClassVar[str] = "words-and-pair"

    def build(self, encoder: Any) -> Head:
        return WordsAndPairHead(encoder, self)


class WordsAndPairHead(WordsHead):
    """The words, and two logits for the order of the texts of a pair (Devlin et al. 2019, 3.1; Lan et al. 2020, 3.1).
    The axes are those of the words."""

    def __init__(self, encoder: Any, config: WordsAndPair) -> None:
        super().__init__(encoder, config)
        self.first, self.pair = FirstToken(encoder.width), nn.Linear(encoder.width, 2)

    def forward(self, encoded: Encoded) -> Any:
        return self.words(encoded.x_BTD), self.pair(self.first(encoded.x_BTD))


def _cross_entropy(logits_NL: Tensor, labels_N: Tensor, smoothing: float) -> Terms:
    """Σ −log p(label), smoothed in `loss`."""
    wide_NL = logits_NL.to(torch.promote_types(logits_NL.dtype, torch.float32))
    sums = partial(F.cross_entropy, wide_NL, labels_N, ignore_index=IGNORED, reduction="sum")
    nll = sums()
    return {"loss": (sums(label_smoothing=smoothing) if smoothing else nll, 1.0), "nll": (nll, 0.0)}


@dataclass(frozen=True)
class Classes:
    """A label of the text. `answer`: one of them, any number of them, or a number for each. `dropout`: None for that of
    the encoder; `twice`: before the first map too."""

    name: ClassVar[str] = "classes"
    task: ClassVar[str] = "classification"
    labels: tuple[str, ...] = ("0", "1")
    answer: Literal["one", "several", "number"] = "one"
    dropout: float | None = None
    twice: bool = False

    def build(self, encoder: Any) -> Head:
        dropout = encoder.dropout if self.dropout is None else self.dropout
        return ClassesHead(encoder.width, len(self.labels), dropout, self.twice, self.answer)


class ClassesHead(Head):
    """tanh(h₁W + b)C + c: a logit for each label of the text."""

    axes = ("row", "label")
    does = "labels texts (headway predict)"

    def __init__(self, width: int, labels: int, dropout: float, twice: bool, answer: str) -> None:
        super().__init__()
        self.first, self.labels, self.answer = FirstToken(width), nn.Linear(width, labels), answer
        self.before, self.dropout = Dropout(dropout if twice else 0.0), Dropout(dropout)

    def forward(self, encoded: Encoded) -> Tensor:
        logits_BL: Tensor = self.labels(self.dropout(self.first(self.before(encoded.x_BTD[:, :1]))))
        return logits_BL

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        return _cross_entropy(self(encoded), batch.labels_B, smoothing)

    def classes(self, encoded: Encoded) -> Tensor:
        logits_BL = self(encoded).float()
        shares = {"one": lambda: logits_BL.softmax(-1), "several": logits_BL.sigmoid, "number": lambda: logits_BL}
        found_BL: Tensor = shares[self.answer]()
        return found_BL


@dataclass(frozen=True)
class Tags:
    """A label of every token."""

    name: ClassVar[str] = "tags"
    task: ClassVar[str] = "tagging"
    labels: tuple[str, ...] = ("0", "1")
    dropout: float | None = None

    def build(self, encoder: Any) -> Head:
        dropout = encoder.dropout if self.dropout is None else self.dropout
        return TagsHead(encoder.width, len(self.labels), dropout)


class TagsHead(Head):
    """hC + c: a logit for each label of each token."""

    axes = ("row", "target", "label")
    does = "labels words (headway predict)"

    def __init__(self, width: int, labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout, self.labels = Dropout(dropout), nn.Linear(width, labels)

    def forward(self, encoded: Encoded) -> Tensor:
        logits_BTL: Tensor = self.labels(self.dropout(encoded.x_BTD))
        return logits_BTL

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        return _cross_entropy(self(encoded).flatten(0, 1), batch.labels_BT.flatten(), smoothing)

    def tags(self, encoded: Encoded, starts_BT: Tensor) -> tuple[Tensor, Tensor]:
        share_BT, label_BT = self(encoded).float().softmax(-1).max(-1)
        return label_BT, share_BT


HEADS: dict[str, Any] = {head.name: head for head in (Vectors, Words, WordsAndPair, Classes, Tags, Crf)}
HeadConfig: Any = Union[tuple(HEADS.values())]  # noqa: UP007


class Headed(nn.Module):
    """head(encoder(x)). In traces and in settings the parts of the encoder keep their own names (`wraps`)."""

    wraps: ClassVar[str] = "encoder"

    def __init__(self, encoder: Any, config: Any) -> None:
        super().__init__()
        self.encoder, self.head_config = encoder, config
        self.head: Head = config.build(encoder)
        encoder.draw(self.head)

    @property
    def config(self) -> Any:
        return self.encoder.config

    @property
    def tracks(self) -> dict[str, tuple[str, str]]:
        tracks: dict[str, tuple[str, str]] = self.encoder.tracks
        return tracks

    @property
    def context(self) -> int | None:
        context: int | None = self.encoder.context
        return context

    def encode(self, inputs: Any) -> Encoded:
        encoded: Encoded = self.encoder.encode(inputs)
        return encoded

    def forward(self, inputs: Any) -> Any:
        answer = self.head(self.encode(inputs))
        if tap.recording() and self.head.axes:
            tap.save(self, "logits", answer[0] if isinstance(answer, tuple) else answer, self.head.axes)
        return answer

"""Heads for labels of a whole text, picture or recording: one of them, several, or a number for each.

B batch, D width, L labels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from headway.errors import refuse
from headway.models.head import (
    Head,
    HeadChoice,
    Map,
    absolute_error,
    binary_cross_entropy,
    cross_entropy,
    own_dropout,
    squared_error,
)
from headway.models.protocols import Encoded, Encodes, Terms
from headway.nn.feed_forward import BoundedLinear
from headway.nn.pooling import AttentionPooling, FirstToken, OverTime


class LabelsHead(Head):
    """Abstract. A logit for each label of the text. answer: see `Classes`."""

    axes = ("row", "label")
    answer: str = "one"
    errors: str = "squared"

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        return self.terms(self(encoded), batch, smoothing)

    def terms(self, logits_BL: Tensor, batch: Any, smoothing: float = 0.0) -> Terms:
        if self.answer == "one":
            each = (cross_entropy(logits_BL, labels_B, smoothing, weights_B) for labels_B, weights_B in batch.answers())
            first, *more = each
            return first | {"loss": (sum((terms["loss"][0] for terms in more), first["loss"][0]), 1.0)}
        number = absolute_error if self.errors == "absolute" else squared_error
        return {"several": binary_cross_entropy, "number": number}[self.answer](logits_BL, batch)

    def classes(self, encoded: Encoded) -> Tensor:
        logits_BL = self(encoded).float()
        shares = {"one": lambda: logits_BL.softmax(-1), "several": logits_BL.sigmoid, "number": lambda: logits_BL}
        return shares[self.answer]()


class ClassesHead(LabelsHead):
    """tanh(h₁W + b)C + c."""

    does = "labels texts (headway predict)"

    def __init__(self, encoder: Encodes, config: Classes) -> None:
        super().__init__()
        self.dropout, self.answer = own_dropout(encoder, config), config.answer
        before = self.dropout if config.twice else None
        self.first = FirstToken(encoder.width, config.map.build(encoder.width), config.pooling, before)
        self.labels = nn.Linear(encoder.width, len(config.labels))

    def forward(self, encoded: Encoded) -> Tensor:
        return self.labels(self.dropout(self.first(encoded.x_BTD, encoded.lengths_B)))


@dataclass(frozen=True)
class Classes(HeadChoice):
    """A label of the text. `answer`: one of them, any number of them, or a number for each. `dropout`: None for that of
    the encoder; `twice`: before the first map too. `pooling`: what stands for the text, the first token or the mean of
    all; `map`: the hidden layer."""

    name = "classes"
    task = "classification"
    whole = True
    module = ClassesHead
    labels: tuple[str, ...] = ("0", "1")
    answer: Literal["one", "several", "number"] = "one"
    dropout: float | None = None
    twice: bool = False
    pooling: Literal["first", "mean"] = "first"
    map: Map = field(default_factory=Map)


class LinearClassesHead(ClassesHead):
    """zC + c with z the text's vector, no row of C longer than a bound: no hidden layer (Kim 2014, 2.1)."""

    def __init__(self, encoder: Encodes, config: LinearClasses) -> None:
        Head.__init__(self)
        self.dropout, self.answer, self.errors = own_dropout(encoder, config), config.answer, config.errors
        pooling = config.pooling
        self.pool = AttentionPooling(encoder.width, plain=True) if pooling == "attention" else OverTime(pooling)
        self.labels = BoundedLinear(encoder.width, len(config.labels), config.bound)

    def forward(self, encoded: Encoded) -> Tensor:
        return self.labels(self.dropout(self.pool(encoded.x_BTD, encoded.lengths_B)))


@dataclass(frozen=True)
class LinearClasses(HeadChoice):
    """A label of the text by one map of its vector. `pooling`: what stands for the text, with `attention` a mean by
    learned weights; an encoder that gives a single vector needs none. `bound`: the most that the L2 norm of a label's
    weights may be (0: any). `errors`: what is minimised of a number."""

    name = "linear-classes"
    task = "classification"
    whole = True
    module: ClassVar[Any] = LinearClassesHead
    labels: tuple[str, ...] = ("0", "1")
    answer: Literal["one", "several", "number"] = "one"
    dropout: float | None = None
    pooling: Literal["first", "last", "mean", "max", "sum", "attention"] = "first"
    bound: float = 0.0
    errors: Literal["squared", "absolute"] = "squared"

    def __post_init__(self) -> None:
        refuse(not self.bound >= 0, f"head.bound must be 0 (none) or more, not {self.bound}")


class DistilledClassesHead(LinearClassesHead):
    """The mean of the logits of the first token and of those of the second, which learned from a teacher (Touvron et
    al. 2021, 4)."""

    def __init__(self, encoder: Encodes, config: DistilledClasses) -> None:
        super().__init__(encoder, config)
        self.distilled = nn.Linear(encoder.width, len(config.labels))

    def forward(self, encoded: Encoded) -> Tensor:
        return (super().forward(encoded) + self.distilled(self.dropout(encoded.x_BTD[:, 1]))) / 2


@dataclass(frozen=True)
class DistilledClasses(LinearClasses):
    """A label of a picture by DeiT's two tokens."""

    name = "distilled-classes"
    module = DistilledClassesHead


class TwoTokensHead(LinearClassesHead):
    """norm((h₁ + h₂)/2)C + c: DeiT's two tokens, as the Audio Spectrogram Transformer uses them (Gong et al. 2021)."""

    def __init__(self, encoder: Encodes, config: TwoTokens) -> None:
        super().__init__(encoder, config)
        self.norm = nn.LayerNorm(encoder.width, config.epsilon)

    def forward(self, encoded: Encoded) -> Tensor:
        logits_BL: Tensor = self.labels(self.dropout(self.norm((encoded.x_BTD[:, 0] + encoded.x_BTD[:, 1]) / 2)))
        return logits_BL


@dataclass(frozen=True)
class TwoTokens(LinearClasses):
    """A label of a recording by the mean of two tokens. `epsilon`: of its norm."""

    name = "two-tokens"
    module = TwoTokensHead
    epsilon: float = 1e-12

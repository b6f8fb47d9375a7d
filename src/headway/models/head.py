"""What every head is, and what heads share.

N texts or tokens, L labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.batch import IGNORED
from headway.errors import InputError
from headway.models.protocols import Encoded, Encodes, Terms
from headway.nn.dropout import Dropout
from headway.nn.feed_forward import MapLayer, gelu

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "tanh": torch.tanh,
}


class Head(nn.Module):
    """Abstract. A method that a head does not have raises an error that says what the model does instead.

    axes: of the logits, as a trace names them; none where there are no logits. capturable: whether `losses` runs the
    same kernels for every batch of a shape.
    """

    axes: ClassVar[tuple[str, ...]] = ()
    capturable: ClassVar[bool] = True
    does: ClassVar[str] = ""

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        raise InputError(f"a model that {self.does} is not trained from this data")

    def words(self, hidden_BTD: Tensor) -> Tensor:
        """Logits of the word at each position."""
        raise InputError(f"this model fills no gaps: it {self.does}")

    def classes(self, encoded: Encoded) -> Tensor:
        """The probability of each label of the text, or a number for each."""
        raise InputError(f"this model has no labels for a text: it {self.does}")

    def tags(self, encoded: Encoded, starts_BT: Tensor) -> tuple[Tensor, Tensor]:
        """The label of each token and its probability. Only those of `starts_BT` are read: the first token of each
        word."""
        raise InputError(f"this model has no labels for words: it {self.does}")

    def spans(self, encoded: Encoded) -> tuple[Tensor, Tensor]:
        """Logits of the token that an answer begins with, and of the one that it ends with, each (B, T)."""
        raise InputError(f"this model finds no answers in a text: it {self.does}")

    def pixels(self, encoded: Encoded) -> Tensor:
        """The probability of each label at every pixel, (B, L, H, W)."""
        raise InputError(f"this model has no labels for pixels: it {self.does}")

    def boxes(self, encoded: Encoded) -> tuple[Tensor, Tensor]:
        """Of every query the probability of each label, (B, Q, L + 1) with "nothing" last, and its box, (B, Q, 4):
        left, top, right and bottom as shares of the picture."""
        raise InputError(f"this model finds no objects: it {self.does}")

    def objects(self, encoded: Encoded) -> tuple[Tensor, Tensor, Tensor]:
        """As `boxes`, and of every query the logits of its mask, (B, Q, R, C): of a grid over the picture."""
        raise InputError(f"this model finds no masks of objects: it {self.does}")

    def actions(self, encoded: Encoded) -> Tensor:
        """Of every step the probability of each choice, or the numbers of the action, (B, T, C, A): those of the step,
        and of C − 1 behind it."""
        raise InputError(f"this model does not act: it {self.does}")

    def choices(self, encoded: Encoded) -> Tensor:
        """A logit for each text, (B,): how well it fits among the choices that it is one of."""
        raise InputError(f"this model chooses among no texts: it {self.does}")


class HeadChoice:
    """Abstract. A head's config."""

    name: ClassVar[str]
    task: ClassVar[str]
    module: ClassVar[Any]  # a `Head`, made of an encoder and this config
    whole: ClassVar[bool] = False  # whether one vector for all of a text is enough for it
    shared: ClassVar[tuple[str, ...]] = ("head.first.",)  # weights that it takes over from a model with another head

    def of_labels(self, labels: tuple[str, ...], ids: Sequence[Sequence[int]]) -> Any:
        """The config for these labels. `ids`: the tokens that each is written with."""
        return replace(self, labels=labels)  # type: ignore[type-var]


def cross_entropy(logits_NL: Tensor, labels_N: Tensor, smoothing: float, weights_N: Tensor | None = None) -> Terms:
    """Σ −log p(label); in `loss` smoothed, and each term times its weight."""
    wide_NL = logits_NL.to(torch.promote_types(logits_NL.dtype, torch.float32))
    sums = partial(F.cross_entropy, wide_NL, labels_N, ignore_index=IGNORED, reduction="sum")
    nll = sums()
    if weights_N is not None:
        loss = (sums(label_smoothing=smoothing, reduction="none") * weights_N).sum()
    else:
        loss = sums(label_smoothing=smoothing) if smoothing else nll
    return {"loss": (loss, 1.0), "nll": (nll, 0.0)}


def binary_cross_entropy(logits_BL: Tensor, batch: Any) -> Terms:
    """Σ −log p(target) of every label of its own, a mean over labels; in `loss` each times its weight."""
    wide_BL = logits_BL.to(torch.promote_types(logits_BL.dtype, torch.float32))
    each_BL = F.binary_cross_entropy_with_logits(wide_BL, batch.targets_BL.to(wide_BL.dtype), reduction="none")
    return _of_rows(each_BL, batch)


def squared_error(logits_BL: Tensor, batch: Any) -> Terms:
    """Σ (number − target)², a mean over numbers."""
    wide_BL = logits_BL.to(torch.promote_types(logits_BL.dtype, torch.float32))
    return _of_rows((wide_BL - batch.targets_BL.to(wide_BL.dtype)).square(), batch)


def absolute_error(logits_BL: Tensor, batch: Any) -> Terms:
    """Σ |number − target|, a mean over numbers."""
    wide_BL = logits_BL.to(torch.promote_types(logits_BL.dtype, torch.float32))
    return _of_rows((wide_BL - batch.targets_BL.to(wide_BL.dtype)).abs(), batch)


def _of_rows(each_BL: Tensor, batch: Any) -> Terms:
    weights_BL = batch.weights_BL.to(each_BL.dtype)
    there_BL = (weights_BL > 0).to(each_BL.dtype)
    return {"loss": ((each_BL * weights_BL).mean(-1).sum(), 1.0), "nll": ((each_BL * there_BL).mean(-1).sum(), 0.0)}


def right(logits_NL: Tensor, labels_N: Tensor) -> Tensor:
    """How many labels have the largest logit."""
    return (logits_NL.argmax(-1) == labels_N).float().sum()


def own_dropout(encoder: Encodes, config: Any) -> Dropout:
    """A head's own rate, or that of the encoder."""
    return Dropout(encoder.dropout if config.dropout is None else config.dropout)


@dataclass(frozen=True)
class Map:
    """A head's hidden layer, norm(f(xW + b)). `epsilon`: of its norm (None: it has none)."""

    activation: Literal["tanh", "gelu", "gelu-tanh", "relu"] = "tanh"
    bias: bool = True
    epsilon: float | None = None
    norm_bias: bool = True

    def build(self, width: int) -> nn.Module:
        norm = None if self.epsilon is None else nn.LayerNorm(width, self.epsilon, bias=self.norm_bias)
        return MapLayer(width, ACTIVATIONS[self.activation], norm, self.bias)

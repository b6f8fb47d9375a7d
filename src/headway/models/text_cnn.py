"""Convolutional encoders of a text: Kim's (2014), Kalchbrenner et al.'s (2014), bigrams; of its words: neighbours.

    c_t = relu(W x_{t:t+w−1} + b),   z = [max_t c_t, for every window w]         Kim: windows of several sizes

What stands between words and vector is a slot (`model.composition`): `windows`, `dynamic` or `bigrams` give a text one
vector, `neighbours` gives every word one. A head reads them (`headway.models.heads`).

B batch, T length, D width of words, M maps, Z width of the vector.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import refuse
from headway.models.configs import letters
from headway.models.letters import Letters, NoLetters
from headway.models.protocols import Encoded, Encodes
from headway.nn import tap
from headway.nn.convolution import Convolution, FoldedRows
from headway.nn.pooling import AttentionPooling, OverTime, Pooling, dynamic_k, k_max

SPREAD, FILTERS = 0.25, 0.01  # of word vectors at the start (Kim 2014, 3.2), of filters (his program)


class WindowsOfWords(nn.Module):
    """[pool_t f(W_w x_{t:t+w−1} + b_w), for each window w]."""

    def __init__(self, width: int, choice: Windows) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            Convolution(width, choice.maps, size, choice.padding) for size in choice.sizes
        )
        for convolution in self.convolutions:
            nn.init.uniform_(convolution.map.weight, -FILTERS, FILTERS)  # type: ignore[union-attr, arg-type]
            nn.init.zeros_(convolution.map.bias)  # type: ignore[union-attr, arg-type]
        self.pools = nn.ModuleList(_pool(choice.pooling, choice.maps) for _ in choice.sizes)
        self.width = choice.maps * len(choice.sizes)

    def forward(self, x_BTD: Tensor, lengths_B: Tensor | None) -> Tensor:
        found = []
        for convolution, pool in zip(self.convolutions, self.pools, strict=True):
            y_BTM, kept_B = convolution(x_BTD, lengths_B)
            found.append(pool(F.relu(y_BTM), kept_B))
        return torch.cat(found, -1)


def _pool(how: Literal["max", "mean", "attention"], width: int) -> nn.Module:
    kinds: dict[str, Pooling] = {"max": "max", "mean": "mean"}
    return OverTime(kinds[how]) if how in kinds else AttentionPooling(width)


class DynamicPooling(nn.Module):
    """Layers of a wide convolution along each row of the sentence matrix, folding, dynamic k-max pooling and tanh."""

    def __init__(self, width: int, choice: Dynamic) -> None:
        super().__init__()
        self.top, rows, maps = choice.top, width, 1
        self.convolutions, self.biases = nn.ModuleList(), nn.ParameterList()
        for window, above in zip(choice.windows, choice.maps, strict=True):
            self.convolutions.append(FoldedRows(rows, maps, above, window))
            rows, maps = rows // 2, above
            self.biases.append(torch.zeros(rows * maps))
        self.width = choice.top * rows * maps

    def forward(self, x_BTD: Tensor, lengths_B: Tensor | None) -> Tensor:
        layers, words, kept_B = len(self.convolutions), x_BTD.shape[1], lengths_B
        for number, (convolution, bias_M) in enumerate(zip(self.convolutions, self.biases, strict=True), 1):
            x_BTD, there_B = convolution(x_BTD, kept_B)
            most = dynamic_k(words, number, layers, self.top)
            keep_B = None if lengths_B is None else dynamic_k(lengths_B, number, layers, self.top)
            x_BTD = torch.tanh(k_max(x_BTD, most, keep_B, there_B) + bias_M)
            kept_B = None if keep_B is None or there_B is None else torch.minimum(keep_B, there_B)
        return x_BTD.flatten(1)


class BigramLayers(nn.Module):
    """p_t = tanh(W [x_t; x_{t+1}] + b): every two neighbours become one vector, and so on, layer by layer; the largest
    number of each feature stands for the text."""

    def __init__(self, width: int, choice: Bigrams) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Convolution(width, width, 2) for _ in range(choice.layers))
        self.pool, self.width = _pool(choice.pooling, width), width

    def forward(self, x_BTD: Tensor, lengths_B: Tensor | None) -> Tensor:
        for layer in self.layers:
            x_BTD, lengths_B = layer(x_BTD, lengths_B)
            x_BTD = torch.tanh(x_BTD)
        pooled_BD: Tensor = self.pool(x_BTD, lengths_B)
        return pooled_BD


class NeighboursOfWords(nn.Module):
    """c_t = relu(W x_{t−l:t+l} + b), layer upon layer: a vector for every word (Collobert et al. 2011, 3.3)."""

    def __init__(self, width: int, choice: Neighbours) -> None:
        super().__init__()
        below = [width, *[choice.maps] * (len(choice.sizes) - 1)]
        self.layers = nn.ModuleList(
            Convolution(inputs, choice.maps, size, "same") for inputs, size in zip(below, choice.sizes, strict=True)
        )
        self.width = choice.maps

    def forward(self, x_BTD: Tensor, lengths_B: Tensor | None) -> Tensor:
        for layer in self.layers:
            x_BTD = F.relu(layer(x_BTD, lengths_B)[0])
        return x_BTD


@dataclass(frozen=True)
class Windows:
    """Kim's: so many `maps` of windows of each of the `sizes`."""

    name: ClassVar[str] = "windows"
    per_token: ClassVar[bool] = False
    sizes: tuple[int, ...] = (3, 4, 5)
    maps: int = 100
    pooling: Literal["max", "mean", "attention"] = "max"
    padding: Literal["wide", "narrow", "same"] = "wide"

    def __post_init__(self) -> None:
        wrong = not self.sizes or min(self.sizes) < 1
        refuse(wrong, f"model.composition.sizes must be numbers of words from 1 on, not {self.sizes}")
        refuse(self.maps < 1, f"model.composition.maps must be at least 1, not {self.maps}")

    def build(self, width: int) -> nn.Module:
        return WindowsOfWords(width, self)


@dataclass(frozen=True)
class Dynamic:
    """Kalchbrenner et al.'s: a window and a number of maps for each layer; `top`: the numbers of each feature that the
    last layer keeps. The sizes are theirs for SST-2, with `model.width` 48."""

    name: ClassVar[str] = "dynamic"
    per_token: ClassVar[bool] = False
    windows: tuple[int, ...] = (7, 5)
    maps: tuple[int, ...] = (6, 14)
    top: int = 4

    def __post_init__(self) -> None:
        refuse(
            not self.windows or len(self.windows) != len(self.maps),
            f"model.composition needs a window and a number of maps for each layer, not {self.windows} and {self.maps}",
        )
        least = min(*self.windows, *self.maps, self.top)
        refuse(least < 1, f"model.composition: windows, maps and top must be at least 1, not {least}")

    def build(self, width: int) -> nn.Module:
        folds = 2 ** len(self.windows)
        refuse(width % folds, f"model.width {width} is not a multiple of {folds}: every layer folds pairs of rows")
        return DynamicPooling(width, self)


@dataclass(frozen=True)
class Bigrams:
    """The lecture's: after l layers a vector knows l + 1 words."""

    name: ClassVar[str] = "bigrams"
    per_token: ClassVar[bool] = False
    layers: int = 2
    pooling: Literal["max", "mean", "attention"] = "max"

    def __post_init__(self) -> None:
        refuse(self.layers < 1, f"model.composition.layers must be at least 1, not {self.layers}")

    def build(self, width: int) -> nn.Module:
        return BigramLayers(width, self)


@dataclass(frozen=True)
class Neighbours:
    """Collobert et al.'s: a layer with so many `maps` for each of the `sizes`. The only one that gives every word a
    vector, for labels of words."""

    name: ClassVar[str] = "neighbours"
    per_token: ClassVar[bool] = True
    sizes: tuple[int, ...] = (3, 3)
    maps: int = 300

    def __post_init__(self) -> None:
        wrong = not self.sizes or min(self.sizes) < 1
        refuse(wrong, f"model.composition.sizes must be numbers of words from 1 on, not {self.sizes}")
        refuse(self.maps < 1, f"model.composition.maps must be at least 1, not {self.maps}")

    def build(self, width: int) -> nn.Module:
        return NeighboursOfWords(width, self)


@dataclass(frozen=True)
class TextCnnConfig:
    """`vectors`: of words: `tuned` learn (random ones, or those of --init FILE), `static` stay as they were read,
    `both` are two channels, which the same filters read (Kim 2014, 3.1). `dropout`: of the text's vector. `letters`:
    what is read of a word beside its vector."""

    name: ClassVar[str] = "text-cnn"
    width: int = 300
    composition: Windows | Dynamic | Bigrams | Neighbours = field(default_factory=Windows)
    vectors: Literal["tuned", "static", "both"] = "tuned"
    dropout: float = 0.5
    max_length: int = 512
    letters: Letters = field(default_factory=NoLetters)


@final
class TextCnn(Encodes):
    """composition(E[words]): one vector of a text, or one of every word."""

    def __init__(self, config: TextCnnConfig, vocabulary: int) -> None:
        super().__init__()
        self.config, self.context, self.dropout = config, config.max_length, config.dropout
        kinds = ("tuned", "static") if config.vectors == "both" else (config.vectors,)
        self.embed = nn.ModuleDict({kind: nn.Embedding(vocabulary, config.width) for kind in kinds})
        for kind, table in self.embed.items():
            for weight in table.parameters():
                nn.init.uniform_(weight, -SPREAD, SPREAD).requires_grad_(kind == "tuned")
        self.spelling, self.letters = config.letters.build(), letters(config)
        self.composition = config.composition.build(config.width + self.spelling.width)
        self.per_token = config.composition.per_token
        self.width = int(self.composition.width)  # type: ignore[arg-type]

    @property
    def table(self) -> nn.Embedding:
        return next(iter(self.embed.values()))  # type: ignore[return-value]

    def encode(self, inputs: Any) -> Encoded:
        # A filter adds what it finds in the channels: it may as well read their sum.
        words_BTD = torch.stack([table(inputs.ids_BT) for table in self.embed.values()]).sum(0)
        words_BTD = self.spelling(tap.save(self.embed, "tokens", words_BTD), inputs.letters_BTC)
        found = self.composition(words_BTD, inputs.lengths_B)
        return Encoded(found, inputs.lengths_B) if self.per_token else Encoded(found[:, None])

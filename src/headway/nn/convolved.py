"""A convolutional encoder of a source for a recurrent decoder (Gehring et al. 2016).

    h_0 = W e (where the widths differ),   h_l = tanh(conv(h_{l−1}) + h_{l−1})

e has positions, since a convolution knows only the order of the few tokens in its window.

B batch, S source length, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headway.nn.convolution import Convolution
from headway.nn.directed import MappedStart, Read
from headway.nn.pooling import pool


class ResidualConvolution(nn.Module):
    """tanh(conv(h) + h), over as many tokens as before."""

    def __init__(self, width: int, window: int, dropout: nn.Module) -> None:
        super().__init__()
        self.convolution, self.dropout = Convolution(width, width, window, "same"), dropout

    def forward(self, h_BSD: Tensor, lengths_B: Tensor | None) -> Tensor:
        y_BSD, _ = self.convolution(self.dropout(h_BSD), lengths_B)
        return torch.tanh(y_BSD + h_BSD)


class ConvolvedStack(nn.Module):
    """Layers of convolutions in sequence; there is no state behind the last token."""

    def __init__(self, inputs: int, width: int, layers: list[ResidualConvolution]) -> None:
        super().__init__()
        self.widen = nn.Identity() if inputs == width else nn.Linear(inputs, width)
        self.layers = nn.ModuleList(layers)

    def forward(self, x_BSD: Tensor, lengths_B: Tensor | None) -> Read:
        h_BSD = self.widen(x_BSD)
        for layer in self.layers:
            h_BSD = layer(h_BSD, lengths_B)
        return Read(h_BSD, lengths_B, ())


class MeanStart(MappedStart):
    """tanh(W_0 · mean_s h_s) for every part of every layer's state."""

    def __init__(self, inputs: int, parts: list[int], width: int) -> None:
        super().__init__(("forwards",), inputs, parts, width)

    def _last(self, read: Read) -> Tensor:
        # A row of padding alone has no token of its own; its first place stands in.
        lengths_B = None if read.lengths_B is None else read.lengths_B.clamp(min=1)
        return pool(read.x_BSD, lengths_B, "mean")

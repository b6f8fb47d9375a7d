"""A residual network (He et al. 2016) as the front end of a model of pictures.

B batch, C channels, H height, W width, T places, D width of the vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn.patches import PictureEmbedding
from headway.nn.position import Position

NARROWER = 4  # the middle of a bottleneck has so many times fewer channels


class FrozenNorm(nn.Module):
    """(x − μ)/√(σ² + ε) · γ + β, all four as they were found elsewhere: a batch norm that no longer learns, as
    detectors have it, whose batches are small."""

    def __init__(self, channels: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        ones_C, zeros_C = torch.ones(channels), torch.zeros(channels)
        self.weight, self.bias = (nn.Parameter(value_C, requires_grad=False) for value_C in (ones_C, zeros_C))
        self.running_mean, self.running_var = (
            nn.Parameter(value_C.clone(), requires_grad=False) for value_C in (zeros_C, ones_C)
        )

    def forward(self, x_BCHW: Tensor) -> Tensor:
        scale_C = self.weight * (self.running_var + self.epsilon).rsqrt()
        shift_C = self.bias - self.running_mean * scale_C
        return x_BCHW * scale_C[:, None, None] + shift_C[:, None, None]


class NormedConvolution(nn.Module):
    """norm(w * x), every `step` pixels."""

    def __init__(self, channels: int, to: int, size: int, step: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, to, size, step, size // 2, bias=False)
        nn.init.kaiming_normal_(self.convolution.weight, mode="fan_out")
        self.norm = FrozenNorm(to)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        found_BCHW: Tensor = self.norm(self.convolution(x_BCHW))
        return found_BCHW


class ResidualConvolutions(nn.Module):
    """relu(f(x) + x), f of convolutions with ReLU between them; x is convolved itself where the shape changes."""

    def __init__(self, parts: Sequence[NormedConvolution], shortcut: NormedConvolution | None) -> None:
        super().__init__()
        self.parts, self.shortcut = nn.ModuleList(parts), shortcut

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y_BCHW = x_BCHW
        for number, part in enumerate(self.parts):
            y_BCHW = part(F.relu(y_BCHW) if number else y_BCHW)
        return F.relu(y_BCHW + (x_BCHW if self.shortcut is None else self.shortcut(x_BCHW)))


def basic(channels: int, to: int, step: int) -> list[NormedConvolution]:
    """Two convolutions of 3 × 3."""
    return [NormedConvolution(channels, to, 3, step), NormedConvolution(to, to, 3)]


def bottleneck(channels: int, to: int, step: int) -> list[NormedConvolution]:
    """One of 3 × 3 among fewer channels, between two of 1 × 1."""
    narrow = to // NARROWER
    return [
        NormedConvolution(channels, narrow, 1), NormedConvolution(narrow, narrow, 3, step),
        NormedConvolution(narrow, to, 1),
    ]  # fmt: skip


KINDS = {"basic": basic, "bottleneck": bottleneck}


class ResNetEmbedding(PictureEmbedding):
    """zᵗ = W·resnet(x)ᵗ: a convolution of 7 × 7, the largest of 3 × 3 places, and stages of residual layers, of which
    each but the first halves height and width."""

    def __init__(
        self, channels: int, first: int, widths: Sequence[int], depths: Sequence[int], kind: str, width: int,
        position: Position, dropout: float,
    ) -> None:  # fmt: skip
        super().__init__(width, position, dropout, before=0)
        self.first = NormedConvolution(channels, first, 7, 2)
        stages: dict[str, nn.Module] = {}
        before = first
        for number, (to, depth) in enumerate(zip(widths, depths, strict=True)):
            layers = []
            for at in range(depth):
                step = 2 if number and not at else 1
                changes = before != to or step > 1
                shortcut = NormedConvolution(before, to, 1, step) if changes else None
                layers.append(ResidualConvolutions(KINDS[kind](before, to, step), shortcut))
                before = to
            stages[f"stage{number + 1}"] = nn.Sequential(*layers)
        self.stages, self.map = nn.ModuleDict(stages), nn.Conv2d(before, width, 1)
        self.channels = (*widths[:-1], width)

    def seen(self, pixels_BCHW: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        x_BCHW = self.first(pixels_BCHW.to(self.map.weight.dtype))
        x_BCHW = F.max_pool2d(F.relu(x_BCHW), 3, 2, 1)
        maps = []
        for stage in self.stages.values():
            x_BCHW = stage(x_BCHW)
            maps.append(x_BCHW)
        found_BDHW: Tensor = self.map(x_BCHW)
        return found_BDHW.flatten(2).mT, (*maps[:-1], found_BDHW)

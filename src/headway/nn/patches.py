"""From pixels to vectors: the front ends of models of pictures.

B batch, C channels, H height, W width, P patch size, T patches, D width of the vectors, K tokens before the patches.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn import tap
from headway.nn.dropout import Dropout
from headway.nn.position import Position

HIDDEN = 64  # channels between the layers of a convolutional front end


def patches(pixels_BCHW: Tensor, size: int) -> Tensor:
    """(B, T, C·P·P): squares of `size` pixels, row by row; each holds its channels one after the other."""
    return F.pixel_unshuffle(pixels_BCHW, size).flatten(2).mT.contiguous()


class PictureEmbedding(nn.Module):
    """Abstract. dropout([class; z¹; …; zᵀ] + positions) (Dosovitskiy et al. 2021, eq. 1): zᵗ is the vector of a place
    in the picture, `class` a learned vector whose last layer stands for the whole.

    before: how many learned vectors stand before the places: none, the class, or that and the one which learns from a
    teacher (Touvron et al. 2021).
    """

    def __init__(self, width: int, position: Position, dropout: float, before: int = 1) -> None:
        super().__init__()
        self.position, self.dropout = position, Dropout(dropout)
        learned = [nn.Parameter(torch.empty(width).normal_(std=0.02)) for _ in range(before)]
        self.class_D, self.distilled_D = [*learned, None, None][:2]

    channels: tuple[int, ...] = ()  # of the maps that `with_maps` gives

    def forward(self, pixels_BCHW: Tensor) -> Tensor:
        return self.with_maps(pixels_BCHW)[0]

    def with_maps(self, pixels_BCHW: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The tokens, and the feature maps (B, C, H, W) that the places were made of, the finest first: the last is the
        grid of the places themselves. None where there is no map but that grid."""
        places_BTD, maps = self.seen(pixels_BCHW)
        before = [vector_D for vector_D in (self.class_D, self.distilled_D) if vector_D is not None]
        first = [vector_D.expand(len(places_BTD), 1, -1) for vector_D in before]
        tokens_BTD = torch.cat([*first, places_BTD], 1)
        x_BTD: Tensor = self.dropout(self.position.add(tokens_BTD))
        if tap.recording():
            tap.save(self, "tokens", tokens_BTD)
            tap.save(self, "hidden", x_BTD)
        return x_BTD, maps

    def seen(self, pixels_BCHW: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The places, and the maps of `with_maps`."""
        return self.places(pixels_BCHW), ()

    def places(self, pixels_BCHW: Tensor) -> Tensor:
        """A vector for each place of a grid over the picture, row by row."""
        raise NotImplementedError


class PatchEmbedding(PictureEmbedding):
    """zᵗ = xᵗE, of a patch as a vector."""

    def __init__(
        self, channels: int, size: int, width: int, position: Position, dropout: float, before: int = 1
    ) -> None:
        super().__init__(width, position, dropout, before)
        self.size, self.map = size, nn.Linear(channels * size * size, width)
        nn.init.xavier_uniform_(self.map.weight.flatten(1).detach())

    def places(self, pixels_BCHW: Tensor) -> Tensor:
        vectors_BTD: Tensor = self.map(patches(pixels_BCHW.to(self.map.weight.dtype), self.size))
        return vectors_BTD


class OverlappingEmbedding(PictureEmbedding):
    """zᵗ = xᵗE, of a patch every `step` pixels: neighbours share some (Gong et al. 2021, 2.1)."""

    def __init__(
        self, channels: int, size: int, step: int, width: int, position: Position, dropout: float, before: int = 1
    ) -> None:
        super().__init__(width, position, dropout, before)
        self.map = nn.Conv2d(channels, width, size, step)
        nn.init.xavier_uniform_(self.map.weight.flatten(1).detach())

    def places(self, pixels_BCHW: Tensor) -> Tensor:
        vectors_BDHW: Tensor = self.map(pixels_BCHW.to(self.map.weight.dtype))
        return vectors_BDHW.flatten(2).mT


class ConvolutionalEmbedding(PictureEmbedding):
    """Convolutions of 3 × 3, each with ReLU and the largest of 3 × 3 places, every second one in both directions
    (Hassani et al. 2021, eq. 1): places overlap, and each layer halves height and width."""

    def __init__(
        self, channels: int, layers: int, width: int, position: Position, dropout: float, before: int = 1
    ) -> None:
        super().__init__(width, position, dropout, before)
        widths = [channels, *[HIDDEN] * (layers - 1), width]
        self.layers = nn.ModuleList(
            nn.Conv2d(first, second, 3, padding=1, bias=False)
            for first, second in zip(widths, widths[1:], strict=False)
        )
        for layer in self.layers:
            nn.init.kaiming_normal_(layer.weight)  # type: ignore[arg-type]
        self.channels = tuple(widths[1:])

    def seen(self, pixels_BCHW: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        x_BDHW = pixels_BCHW.to(self.layers[0].weight.dtype)  # type: ignore[arg-type]
        maps = []
        for layer in self.layers:
            x_BDHW = F.max_pool2d(F.relu(layer(x_BDHW)), 3, 2, 1)
            maps.append(x_BDHW)
        return x_BDHW.flatten(2).mT, tuple(maps)


class FrameEmbedding(PictureEmbedding):
    """Two convolutions over the frames of a spectrogram, whose bands are their channels; the second takes every second
    frame (Radford et al. 2022, 2.2). Each band has weights of its own: what a pitch is, need not be learned."""

    def __init__(self, bands: int, width: int, position: Position, dropout: float, before: int = 1) -> None:
        super().__init__(width, position, dropout, before)
        self.first = nn.Conv1d(bands, width, 3, padding=1)
        self.second = nn.Conv1d(width, width, 3, stride=2, padding=1)

    def places(self, pixels_BCHW: Tensor) -> Tensor:
        bands_BMT = pixels_BCHW[:, 0].to(self.first.weight.dtype)
        found_BDT: Tensor = F.gelu(self.second(F.gelu(self.first(bands_BMT))))
        return found_BDT.mT


def resized_grid(table_PD: Tensor, before: int, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """A learned table of positions on a grid of `old` rows and columns for a `new` one, between its places by bicubic
    interpolation (Dosovitskiy et al. 2021, 3.2); the first `before` rows are of no place and stay."""
    first, rest_PD = table_PD[:before], table_PD[before:]
    grid_1DHW = rest_PD.float().view(1, *old, -1).permute(0, 3, 1, 2)
    new_1DHW = F.interpolate(grid_1DHW, size=new, mode="bicubic", align_corners=False)
    return torch.cat([first, new_1DHW.flatten(2)[0].mT.to(table_PD.dtype)])

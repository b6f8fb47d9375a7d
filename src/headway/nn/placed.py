"""Attention whose queries and keys are told in every layer where they are: the blocks of DETR.

B batch, T queries, S keys, H heads, D width, K head width.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from headway.nn import tap
from headway.nn.attention import MultiHead, _merge, _projection, _split, scaled_dot
from headway.nn.residual import Residual
from headway.nn.view import SEE_ALL


class PlacedAttention(MultiHead):
    """attend((x + p)W^Q, (y + r)W^K, yW^V) by heads (Carion et al. 2020, A.3): p and r are where queries and keys are,
    and the values do not carry it."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__(width, heads, dropout, None, scaled_dot)
        self.query, self.key, self.value, self.output = (_projection(width, [width]) for _ in range(4))

    def forward(self, x_BTD: Tensor, at_TD: Tensor, y_BSD: Tensor, from_SD: Tensor) -> Tensor:
        q_BTD, k_BSD, v_BSD = self.query(x_BTD + at_TD), self.key(y_BSD + from_SD), self.value(y_BSD)
        q_BHTK, k_BHSK, v_BHSK = (_split(part, self.heads) for part in (q_BTD, k_BSD, v_BSD))
        return self.out(_merge(self.mix(q_BHTK, k_BHSK, v_BHSK, SEE_ALL)))


class PlacedBlock(nn.Module):
    """Self-attention, attention on a source where there is one (`cross`), then the feed-forward network."""

    def __init__(
        self, attention: PlacedAttention, feed_forward: nn.Module, residual: Callable[[], Residual],
        cross: PlacedAttention | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.attention, self.cross, self.feed_forward = attention, cross, feed_forward
        self.around_attention, self.around_cross = residual(), None if cross is None else residual()
        self.around_feed_forward = residual()

    def forward(
        self, x_BTD: Tensor, at_TD: Tensor, source_BSD: Tensor | None = None, from_SD: Tensor | None = None
    ) -> Tensor:
        x_BTD = self.around_attention(x_BTD, lambda x: self.attention(x, at_TD, x, at_TD))
        cross = self.cross
        if cross is not None and self.around_cross is not None:
            x_BTD = self.around_cross(x_BTD, lambda x: cross(x, at_TD, source_BSD, from_SD))
        x_BTD = self.around_feed_forward(x_BTD, self.feed_forward)
        return tap.save(self, "hidden", x_BTD)


class PlacedStack(nn.Module):
    """Blocks in sequence, and a final norm where pre-norm needs one."""

    def __init__(self, layers: nn.ModuleList, final: nn.Module) -> None:
        super().__init__()
        self.layers, self.final = layers, final

    def forward(self, x_BTD: Tensor, at_TD: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            tap.at_layer(number)
            x_BTD = layer(x_BTD, at_TD)
        tap.at_layer(None)
        return tap.save(self, "hidden", self.final(x_BTD))


def place(shares_N: Tensor, width: int, turns: float, base: float) -> Tensor:
    """`sinusoid` of 2π·turns times where something is along a side, from 0 to 1."""
    pair = torch.arange(0, width, 2, dtype=torch.float64, device=shares_N.device)
    angle = shares_N[..., None] * (2 * math.pi * turns * base ** (-pair / width)).to(shares_N.dtype)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


class ScaledGrid(nn.Module):
    """[place(r/R); place(c/C)] for row r of R and column c of C, counted from 1: where something is relative to the
    whole picture (Carion et al. 2020, A.4)."""

    table_PD: Tensor

    def __init__(self, width: int, rows: int, columns: int, turns: float = 1.0, base: float = 10_000.0) -> None:
        super().__init__()
        row_P = torch.arange(1, rows + 1).repeat_interleave(columns).double() / (rows + 1e-6)
        column_P = torch.arange(1, columns + 1).repeat(rows).double() / (columns + 1e-6)
        both = [place(share_P, width // 2, turns, base) for share_P in (row_P, column_P)]
        self.register_buffer("table_PD", torch.cat(both, -1), persistent=False)

    def forward(self) -> Tensor:
        return self.table_PD


class LearnedQueries(nn.Module):
    """A learned vector for each query, which says all that it looks for (Carion et al. 2020, 3.2)."""

    def __init__(self, queries: int, width: int) -> None:
        super().__init__()
        self.queries_QD = nn.Parameter(torch.randn(queries, width))

    def start(self, rows: int) -> Tensor:
        """What is added to the logits of the first boxes."""
        return self.queries_QD.new_zeros(rows, len(self.queries_QD), 4)

    def at(self, boxes_BQ4: Tensor) -> Tensor:
        """Where the queries are, as attention takes it."""
        return self.queries_QD

    def follow(self, boxes_BQ4: Tensor, better_BQ4: Tensor) -> Tensor:
        """What the next layer starts from."""
        return boxes_BQ4


class AnchorQueries(nn.Module):
    """A learned box for each query, which every layer moves on (Liu et al. 2022, "DAB-DETR"): a query is where its box
    is, so that it finds what is near. Boxes are logits of middle, width and height."""

    def __init__(self, queries: int, width: int, sides: tuple[int, int], turns: float, base: float) -> None:
        super().__init__()
        self.width, self.turns, self.base = width, turns, base
        self.offset = tuple(0.5 / side for side in sides)  # the grid counts the ends of places, not their middles
        middle_Q2 = torch.rand(queries, 2) * 0.8 + 0.1
        self.anchors_Q4 = nn.Parameter(torch.cat([middle_Q2, torch.full((queries, 2), 0.25)], 1).logit())
        self.map = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width))

    def start(self, rows: int) -> Tensor:
        return self.anchors_Q4.expand(rows, -1, -1)

    def at(self, boxes_BQ4: Tensor) -> Tensor:
        precise = torch.promote_types(boxes_BQ4.dtype, torch.float32)  # angles need more digits than bfloat16 has
        x, y, wide, high = boxes_BQ4.to(precise).sigmoid().unbind(-1)
        shares = (y + self.offset[0], x + self.offset[1], high, wide)
        parts = [place(share_BQ, self.width // 2, self.turns, self.base) for share_BQ in shares]
        both_BQD, all_BQD = (torch.cat(some, -1).to(boxes_BQ4.dtype) for some in (parts[:2], parts))
        found_BQD: Tensor = both_BQD + self.map(all_BQD)
        return found_BQD

    def follow(self, boxes_BQ4: Tensor, better_BQ4: Tensor) -> Tensor:
        return better_BQ4.detach()

"""Mixtures of experts: several feed-forward networks, of which each token uses a few.

N tokens, D width, F inner width, E experts, C chosen experts.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn.feed_forward import Activation, GatedMLP


class Experts(nn.Module):
    """Σ_e g_e(x)·f_e(x) over the C experts with the largest softmax(xR)_e, f_e a gated network (Shazeer et al. 2017,
    eq. 2; Jiang et al. 2024, 2.1).

    `normalized`: the g of the chosen ones sum to 1, as if the softmax were over them alone; else they stay as they are.
    """

    def __init__(
        self, width: int, inner: int, experts: int, chosen: int, normalized: bool = True,
        activation: Activation = F.silu,
    ) -> None:  # fmt: skip
        super().__init__()
        if not 1 <= chosen <= experts:
            raise ValueError(f"{chosen} of {experts} experts cannot be chosen")
        self.chosen, self.normalized, self.activation = chosen, normalized, activation
        self.router = nn.Linear(width, experts, bias=False)
        self.expand_EFD = nn.Parameter(torch.empty(experts, 2 * inner, width))  # gate above value
        self.contract_EDF = nn.Parameter(torch.empty(experts, width, inner))
        for weight in (self.expand_EFD, self.contract_EDF):
            for matrix in weight.data:
                nn.init.xavier_uniform_(matrix)

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_ND = x_BTD.flatten(0, -2)
        share_NC, chosen_NC = self.route(x_ND)
        y_ND = torch.zeros_like(x_ND)
        for number, (expand_FD, contract_DF) in enumerate(zip(self.expand_EFD, self.contract_EDF, strict=True)):
            token_M, place_M = (chosen_NC == number).nonzero(as_tuple=True)
            gate_MF, value_MF = F.linear(x_ND[token_M], expand_FD).chunk(2, dim=-1)
            y_MD = F.linear(self.activation(gate_MF) * value_MF, contract_DF)
            y_ND = y_ND.index_add(0, token_M, y_MD * share_NC[token_M, place_M, None])
        return y_ND.view_as(x_BTD)

    def route(self, x_ND: Tensor) -> tuple[Tensor, Tensor]:
        """The share of each chosen expert, and its number."""
        wide = torch.promote_types(x_ND.dtype, torch.float32)
        share_NC, chosen_NC = self.router(x_ND).softmax(-1, dtype=wide).topk(self.chosen)
        if self.normalized:
            share_NC = share_NC / share_NC.sum(-1, keepdim=True)
        return share_NC.to(x_ND.dtype), chosen_NC


class SharedExperts(Experts):
    """Σ_e g_e(x)·f_e(x) + σ(xs)·f(x): beside the chosen experts one that every token uses (Qwen Team 2024)."""

    def __init__(
        self, width: int, inner: int, experts: int, chosen: int, normalized: bool, activation: Activation, shared: int
    ) -> None:
        """`shared`: the inner width of the one that every token uses."""
        super().__init__(width, inner, experts, chosen, normalized, activation)
        self.always, self.share = GatedMLP(width, shared, activation), nn.Linear(width, 1, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return super().forward(x_BTD) + self.share(x_BTD).sigmoid() * self.always(x_BTD)

"""Copying: a head that says a word of its vocabulary, or points at one of the source (See et al. 2017, 2.2).

B sources, R rows, T target length, S source length, D width, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn import tap


@final
class Copying(nn.Module):
    """log p(y),  p(y) = g·softmax(head(h))(y) + (1 − g)·Σ_{i: x_i = y} a_i,

    g = σ(w·h + b) and a = softmax(Wh·k_i/√D) with k the keys of the last layer's attention to the source."""

    def __init__(self, head: nn.Module, width: int) -> None:
        super().__init__()
        self.head, self.query, self.gate = head, nn.Linear(width, width, bias=False), nn.Linear(width, 1)
        nn.init.xavier_uniform_(self.query.weight)
        nn.init.normal_(self.gate.weight, std=width**-0.5)
        nn.init.zeros_(self.gate.bias)

    def forward(self, hidden_RTD: Tensor, state: Any) -> Tensor:
        said_RTV = self.head(hidden_RTD, state)
        wide = torch.promote_types(said_RTV.dtype, torch.float32)
        own_RTV = said_RTV.to(wide).log_softmax(-1)
        points_RTS, gate_RT1 = self.points(hidden_RTD, state).to(wide), self.gate(hidden_RTD).to(wide)
        tap.save(self, "copied", points_RTS, ("row", "target", "source"))
        ids_RS = state["source_ids"][0].tensors[0].repeat_interleave(state.group, 0)
        places_RTS = ids_RS[:, None].expand_as(points_RTS)
        copied_RTV = torch.zeros_like(own_RTV).scatter_add(-1, places_RTS, points_RTS)
        # The logarithm of 0 has no gradient: what is not in the source has the least positive number there.
        least = torch.finfo(wide).tiny
        return torch.logaddexp(
            F.logsigmoid(gate_RT1) + own_RTV, F.logsigmoid(-gate_RT1) + copied_RTV.clamp(min=least).log()
        )

    def points(self, hidden_RTD: Tensor, state: Any) -> Tensor:
        """(R, T, S): how much each word of the source is pointed at."""
        k_BSD = state["memories"][-1].k_BHSK.transpose(1, 2).flatten(2)
        q_BND = self.query(hidden_RTD).view(len(k_BSD), -1, hidden_RTD.shape[-1])
        score_BNS = q_BND @ k_BSD.mT / math.sqrt(k_BSD.shape[-1])
        for lengths in state["source_lengths"]:
            inside_BS = torch.arange(k_BSD.shape[1], device=k_BSD.device) < lengths.tensors[0][:, None]
            score_BNS = score_BNS.masked_fill(~inside_BS[:, None], torch.finfo(score_BNS.dtype).min)
        return score_BNS.softmax(-1).view(*hidden_RTD.shape[:2], -1)

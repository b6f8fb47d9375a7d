"""Selective state spaces: a recurrence whose step depends on what it reads (Gu and Dao 2023).

B batch, R rows, T length, D width, I inner width, N numbers of a state, C taps of the convolution.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn.slots import Values


class Selected(Values):
    """What one layer carries on: the last C − 1 inputs of the convolution, and the state (R, I, N)."""

    @classmethod
    def start(cls, rows: int, inner: int, taps: int, states: int, like: Tensor) -> Selected:
        wide = torch.promote_types(like.dtype, torch.float32)
        return cls(like.new_zeros(rows, taps - 1, inner), like.new_zeros(rows, inner, states, dtype=wide))


class SelectiveStates(nn.Module):
    """h_t = exp(Δ_t A) h_{t−1} + Δ_t B_t u_t, y_t = C_t h_t + D u_t, out = (y ⊙ silu(z))W_o (Gu and Dao 2023, alg. 2).

    [u z] = xW, u then passes a short causal convolution and silu; Δ, B and C are linear in it.
    Step by step: the readable form of what a kernel would do as a scan.
    """

    reach: ClassVar = math.inf

    def __init__(
        self, width: int, inner: int, states: int, taps: int, rank: int, bias: bool = False, taps_bias: bool = True
    ) -> None:
        super().__init__()
        self.inner, self.states, self.taps, self.rank = inner, states, taps, rank
        self.expand, self.output = nn.Linear(width, 2 * inner, bias), nn.Linear(inner, width, bias)
        self.near = nn.Conv1d(inner, inner, taps, groups=inner, bias=taps_bias)
        self.select, self.step = nn.Linear(inner, rank + 2 * states, bias=False), nn.Linear(rank, inner)
        self.log_rate_IN = nn.Parameter(torch.log(torch.arange(1.0, states + 1)).repeat(inner, 1))
        self.pass_I = nn.Parameter(torch.ones(inner))
        # Steps between 0.001 and 0.1 at the start: the bias is the inverse of softplus of one.
        size_I = torch.exp(nn.init.uniform_(torch.empty(inner), math.log(0.001), math.log(0.1)))
        self.step.bias.data = size_I + torch.log(-torch.expm1(-size_I))

    def start(self, rows: int, like: Tensor) -> Selected:
        return Selected.start(rows, self.inner, self.taps, self.states, like)

    def forward(
        self, x_BTD: Tensor, slot: Selected, lengths_B: Tensor | None = None, segments_BT: Tensor | None = None
    ) -> Tensor:
        """`lengths_B`: rows are padded on the right; the slot is then behind each row's own last token. `segments_BT`:
        tells packed texts apart, of which the first continues the slot's."""
        u_BTI, gate_BTI = self.expand(x_BTD).chunk(2, dim=-1)
        before_BCI, state_BIN = slot.tensors
        all_BSI = torch.cat([before_BCI, u_BTI], dim=1)
        u_BTI = F.silu(self.convolved(all_BSI, segments_BT))
        y_BTI, state_BIN = self.scanned(u_BTI, state_BIN, lengths_B, segments_BT)
        slot.tensors = (self._latest(all_BSI, lengths_B), state_BIN)
        return self.output(y_BTI.to(x_BTD.dtype) * F.silu(gate_BTI))

    def convolved(self, all_BSI: Tensor, segments_BT: Tensor | None = None) -> Tensor:
        """Σ_c w_c u_{t−c} for each inner number alone, over the tokens of the same text."""
        near_BTIC = all_BSI.unfold(1, self.taps, 1)
        if segments_BT is not None:
            first_BC = segments_BT[:, :1].expand(-1, self.taps - 1)
            near_BTC = torch.cat([first_BC, segments_BT], 1).unfold(1, self.taps, 1)
            near_BTIC = near_BTIC * (near_BTC == segments_BT[..., None])[:, :, None]
        y_BTI = (near_BTIC * self.near.weight[:, 0]).sum(-1)
        return y_BTI if self.near.bias is None else y_BTI + self.near.bias

    def scanned(
        self, u_BTI: Tensor, state_BIN: Tensor, lengths_B: Tensor | None, segments_BT: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        step_BTR, b_BTN, c_BTN = self.select(u_BTI).split([self.rank, self.states, self.states], dim=-1)
        step_BTI = F.softplus(self.step(step_BTR)).to(state_BIN.dtype)
        rate_IN = -torch.exp(self.log_rate_IN.to(state_BIN.dtype))
        u_BTI, b_BTN, c_BTN = (part.to(state_BIN.dtype) for part in (u_BTI, b_BTN, c_BTN))
        found: list[Tensor] = []
        for t in range(u_BTI.shape[1]):
            if segments_BT is not None and t:
                same_B = segments_BT[:, t] == segments_BT[:, t - 1]
                state_BIN = state_BIN * same_B[:, None, None]
            kept_BIN = torch.exp(step_BTI[:, t, :, None] * rate_IN)
            new_BIN = kept_BIN * state_BIN + (step_BTI[:, t] * u_BTI[:, t])[..., None] * b_BTN[:, t, None]
            found.append((new_BIN @ c_BTN[:, t, :, None])[..., 0])
            inside = None if lengths_B is None else (t < lengths_B)[:, None, None]
            state_BIN = new_BIN if inside is None else torch.where(inside, new_BIN, state_BIN)
        return torch.stack(found, 1) + u_BTI * self.pass_I.to(u_BTI.dtype), state_BIN

    def _latest(self, all_BSI: Tensor, lengths_B: Tensor | None) -> Tensor:
        """The last C − 1 inputs of each row."""
        kept = self.taps - 1
        if lengths_B is None:
            return all_BSI[:, all_BSI.shape[1] - kept :]
        last_BC = lengths_B[:, None] + torch.arange(kept, device=all_BSI.device)
        return all_BSI.gather(1, last_BC[..., None].expand(-1, -1, self.inner))


class StateSpaceBlock(nn.Module):
    """x + mix(norm(x)): a layer without attention and without a feed-forward network."""

    def __init__(self, mix: SelectiveStates, norm: nn.Module) -> None:
        super().__init__()
        self.mix, self.before = mix, norm

    def forward(
        self, x_BTD: Tensor, slot: Selected, lengths_B: Tensor | None = None, segments_BT: Tensor | None = None
    ) -> Tensor:
        mixed_BTD: Tensor = self.mix(self.before(x_BTD), slot, lengths_B, segments_BT)
        return x_BTD + mixed_BTD

"""The last few tokens of each row: all that a model with a finite horizon remembers.

B batch, R rows, T length, N tokens that are remembered.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BLANK = 0  # stands where there is no token yet: the id of padding, which no text holds


@dataclass
class Recent:
    """The last N ids of each row, the latest last; BLANK before the first."""

    ids_RN: Tensor

    @classmethod
    def start(cls, rows: int, tokens: int, device: torch.device) -> Recent:
        return cls(torch.full((rows, tokens), BLANK, device=device))

    def read(self, ids_RT: Tensor, lengths_R: Tensor | None = None) -> Tensor:
        """(R, T, N): after each new token, that token and the N − 1 before it. Rows that are padded on the right
        go on from their own last token."""
        tokens = self.ids_RN.shape[1]
        all_RS = torch.cat([self.ids_RN, ids_RT], 1)
        if lengths_R is None:
            self.ids_RN = all_RS[:, all_RS.shape[1] - tokens :]
        else:
            last_RN = lengths_R[:, None] + torch.arange(tokens, device=all_RS.device)
            self.ids_RN = all_RS.gather(1, last_RN)
        return all_RS.unfold(1, tokens, 1)[:, 1:]

    def reorder(self, rows_R: Tensor) -> None:
        """Row r goes on from row rows_R[r]."""
        self.ids_RN = self.ids_RN.index_select(0, rows_R)

    def keep(self, rows_R: Tensor) -> None:
        """Only these rows, in this order."""
        self.reorder(rows_R)

    def repeat(self, group: int) -> None:
        """Every row `group` times, side by side."""
        self.ids_RN = self.ids_RN.repeat_interleave(group, 0)

    def insert(self, other: Recent) -> Recent:
        """This state's rows, then the other's."""
        return Recent(torch.cat([self.ids_RN, other.ids_RN]))

    def fork(self) -> Recent:
        """A copy whose steps leave this state alone; no step writes into the ids."""
        return Recent(self.ids_RN)

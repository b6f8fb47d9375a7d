"""The last few tokens of each row: all that a model with a finite horizon remembers.

R rows, T length, N tokens that are remembered.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headway.nn.slots import Values

BLANK = 0  # stands where there is no token yet: the id of padding, which no text holds


class Recent(Values):
    """The last N ids of each row, the latest last; BLANK before the first."""

    @classmethod
    def start(cls, rows: int, tokens: int, device: torch.device) -> Recent:
        return cls(torch.full((rows, tokens), BLANK, device=device))

    def read(self, ids_RT: Tensor, lengths_R: Tensor | None = None) -> Tensor:
        """(R, T, N): after each new token, that token and the N − 1 before it. Rows that are padded on the right
        continue from their own last token."""
        (ids_RN,) = self.tensors
        tokens = ids_RN.shape[1]
        all_RS = torch.cat([ids_RN, ids_RT], 1)
        if lengths_R is None:
            self.tensors = (all_RS[:, all_RS.shape[1] - tokens :],)
        else:
            last_RN = lengths_R[:, None] + torch.arange(tokens, device=all_RS.device)
            self.tensors = (all_RS.gather(1, last_RN),)
        return all_RS.unfold(1, tokens, 1)[:, 1:]

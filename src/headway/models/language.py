"""What every language model has, whatever it remembers of the past.

B batch, T length, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.models.steps import StepModel
from headway.nn.embedding import Head, JoinedHead

LOGITS_AT_ONCE = 2**24  # that scoring holds


class NextTokenModel(StepModel):
    """Abstract. p(x_t | x_<t) = softmax(head(hidden(embed(x_<t))))."""

    tracks: ClassVar[dict[str, tuple[str, str]]] = {"": ("tokens", "tokens")}
    output: Head | JoinedHead

    @property
    def output_weight(self) -> Tensor:
        return self.output.weight

    def head(self, hidden_RTD: Tensor, state: Any = None) -> Tensor:
        return self.output(hidden_RTD)[..., : self.vocabulary]

    def forward(self, ids_BT: Tensor, state: Any = None, segments_BT: Tensor | None = None) -> tuple[Tensor, Any]:
        return self.logits(ids_BT, state, segments_BT)

    def scored(
        self, ids_BT: Tensor, state: Any = None, segments_BT: Tensor | None = None
    ) -> tuple[Tensor, Any]:  # fmt: skip
        """log p(x_t | x_<t) of every token, 0 for the first of a row, which is given; the state has then read all but
        the last. The logits are never whole."""
        segments_BT = None if segments_BT is None else segments_BT[:, :-1]
        hidden_BTD, state = self.read(ids_BT[:, :-1], state, segments_BT)
        hidden_ND = hidden_BTD.flatten(0, 1)
        wide = torch.promote_types(hidden_ND.dtype, torch.float32)
        rows = max(1, LOGITS_AT_ONCE // self.vocabulary)
        parts = zip(hidden_ND.split(rows), ids_BT[:, 1:].flatten()[:, None].split(rows), strict=True)
        logp_N1 = torch.cat(
            [F.log_softmax(self.head(h_ND, state), -1, dtype=wide).gather(1, y_N1) for h_ND, y_N1 in parts]
        )
        return F.pad(logp_N1.view(len(ids_BT), -1), (1, 0)), state

    def score(self, ids_BT: Tensor, segments_BT: Tensor | None = None) -> Tensor:
        """`scored` of a text that is given whole."""
        return self.scored(ids_BT, None, segments_BT)[0]

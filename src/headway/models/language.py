"""What every language model has, whatever it remembers of the past.

B batch, T length, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn import tap
from headway.nn.embedding import Head, JoinedHead

LOGITS_AT_ONCE = 2**24  # that scoring holds


class NextTokenModel(nn.Module):
    """Abstract. p(x_t | x_<t) = softmax(head(hidden(x_<t))).

    `context` is the most tokens that it can read; None: any number. Of `output.weight` only the first `vocabulary`
    rows are tokens.
    """

    vocabulary: int
    context: int | None
    output: Head | JoinedHead

    def start(self, rows: int, device: torch.device, room: int | None = None) -> Any:
        """A state that has read nothing. `room` asks for memory of that fixed size, where a state grows; 0 for a text
        that is given whole."""
        raise NotImplementedError

    def hidden(
        self, ids_BT: Tensor, state: Any = None, segments_BT: Tensor | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """The last layer for the next T tokens of each row, and the state behind them.

        Packed documents are told apart by `segments_BT` (of a text that is given whole): none looks into another.
        `lengths_B`: rows are padded on the right; the state is then the one behind each row's own last token.
        """
        raise NotImplementedError

    def head(self, hidden_BTD: Tensor) -> Tensor:
        return self.output(hidden_BTD)[..., : self.vocabulary]

    def forward(self, ids_BT: Tensor, state: Any = None, segments_BT: Tensor | None = None) -> tuple[Tensor, Any]:
        hidden_BTD, state = self.hidden(ids_BT, state, segments_BT)
        logits_BTV = self.head(hidden_BTD)
        if tap.recording():
            tap.save(self, "logits", logits_BTV, ("row", "target", "vocabulary"))
        return logits_BTV, state

    def scored(
        self, ids_BT: Tensor, state: Any = None, segments_BT: Tensor | None = None
    ) -> tuple[Tensor, Any]:  # fmt: skip
        """log p(x_t | x_<t) of every token, 0 for the first of a row, which is given; the state has then read all but
        the last. The logits are never whole."""
        segments_BT = None if segments_BT is None else segments_BT[:, :-1]
        hidden_BTD, state = self.hidden(ids_BT[:, :-1], state, segments_BT)
        hidden_ND = hidden_BTD.flatten(0, 1)
        wide = torch.promote_types(hidden_ND.dtype, torch.float32)
        rows = max(1, LOGITS_AT_ONCE // self.vocabulary)
        pieces = zip(hidden_ND.split(rows), ids_BT[:, 1:].flatten()[:, None].split(rows), strict=True)
        logp_N1 = torch.cat([F.log_softmax(self.head(h_ND), -1, dtype=wide).gather(1, y_N1) for h_ND, y_N1 in pieces])
        return F.pad(logp_N1.view(len(ids_BT), -1), (1, 0)), state

    def score(self, ids_BT: Tensor, segments_BT: Tensor | None = None) -> Tensor:
        """`scored` of a text that is given whole."""
        # Nothing is kept for a second step.
        state = self.start(len(ids_BT), ids_BT.device, room=0)
        return self.scored(ids_BT, state, segments_BT)[0]

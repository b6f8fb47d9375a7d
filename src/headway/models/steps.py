"""What every model has that is stepped: language models and sequence-to-sequence models.

R rows, T length, D width, V vocabulary (V' with rows that only fill the head up).
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headway.models.protocols import Embedded
from headway.nn import tap


class StepModel(nn.Module):
    """Abstract. p(y_t | y_<t, x) = softmax(head(hidden(embed(y_<t)))), x the source where there is one.

    A call consumes the state that it is given, and returns the one behind what was read. `embed` and `head` are methods
    or parts that are called alike:

    embed(ids_RT, state, segments_RT=None, lengths_R=None) -> Embedded: the next T tokens of each row as what enters the
        first layer. `segments_RT` tells packed documents apart (of a text that is given whole): none looks into
        another. `lengths_R`: rows are padded on the right; the state is then the one behind each row's own last token.
    head(hidden_RTD, state=None): the logits of the next token, (R, T, V). Copy attention would read the state.
    """

    embed: Any
    head: Any
    carries: ClassVar[bool] = False  # whether a state of fixed size passes from one batch of a stream to the next

    vocabulary: int
    context: int | None  # the most tokens that a row may have; None: any number
    # Of each stack, or stack and part ("decoder.cross"; "": of all others), the tracks that it looks from and to.
    tracks: ClassVar[dict[str, tuple[str, str]]]

    capturable: ClassVar[bool] = True  # whether a step may be captured as a CUDA graph

    @property
    def output_weight(self) -> Tensor:
        """The head's (V', D); of its rows the first `vocabulary` are tokens."""
        raise NotImplementedError

    def start(self, inputs: Any, rows: int, device: torch.device, room: int | None = None) -> Any:
        """A state that has read no token. `inputs`: the sources, None for a language model; `rows`: how many rows, of a
        sequence-to-sequence model as many as sources. `room`: the caches are fixed at this size; None: they grow; 0:
        nothing is kept, for a text that is given whole."""
        raise NotImplementedError

    def hidden(self, embedded: Embedded, state: Any) -> tuple[Tensor, Any]:
        """The last layer, as the head takes it, and the state behind these tokens."""
        raise NotImplementedError

    def read(
        self, ids_RT: Tensor, state: Any = None, segments_RT: Tensor | None = None, lengths_R: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """hidden(embed(ids)). Without a state, of a text that is given whole."""
        state = state or self.start(None, len(ids_RT), ids_RT.device, room=0)
        return self.hidden(self.embed(ids_RT, state, segments_RT, lengths_R), state)

    def logits(
        self, ids_RT: Tensor, state: Any = None, segments_RT: Tensor | None = None, lengths_R: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """head(hidden(embed(ids)))."""
        hidden_RTD, state = self.read(ids_RT, state, segments_RT, lengths_R)
        logits_RTV = self.head(hidden_RTD, state)
        if tap.recording():
            tap.save(self, "logits", logits_RTV, ("row", "target", "vocabulary"))
        return logits_RTV, state

"""How a model is called. Generation, training and evaluation know these classes, and no model's insides.

B sources, R rows, T length, D width, V vocabulary (V' with rows that only fill the head up).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from headway.nn import tap
from headway.nn.embedding import Embedded

__all__ = ["Acts", "Embedded", "Encoded", "Encodes", "OfSteps", "Scores", "Steps", "Terms"]

Terms = dict[str, tuple[Tensor, float]]  # the sum of each loss term and its weight; the batch has its count
# Of each stack, or stack and part ("decoder.cross"; "": of all others), the tracks that it looks from and to.
Tracks = dict[str, tuple[str, str]]


class Scores(Protocol):
    """The least that a language model has."""

    def score(self, ids_BT: Tensor, segments_BT: Tensor | None = None) -> Tensor:
        """log p(x_t | x_<t) of every token, 0 for the first of a row, which is given."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """What an encoder gives: its last layer, the rows' lengths (None: no row is padded), every layer's output where the
    model keeps them, where each vector is, for a head that attends to them (None: the vectors say it), and the feature
    maps (B, C, H, W) below the first layer, the finest first, for a head that draws (none: its front end has none)."""

    x_BTD: Tensor
    lengths_B: Tensor | None = None
    layers: tuple[Tensor, ...] = ()
    at_TD: Tensor | None = None
    maps: tuple[Tensor, ...] = ()


class Encodes(nn.Module):
    """Abstract. Reads its inputs whole; a head (`headway.models.heads`) stands on the last layer.

    width: of the last layer. dropout: what a head takes unless it has its own. context: the most positions that it
    reads; None: any number. per_token: whether it gives a vector for every token, or a single one for the whole.
    letters: the most of each token that it reads (0: none). channels: of the feature maps that `encode` gives.
    takes_positions: whether it knows where tokens stand beside which others are left out.
    """

    config: Any = None
    width: int
    dropout: float
    context: int | None = None
    per_token: bool = True
    letters: int = 0
    channels: tuple[int, ...] = ()
    takes_positions: bool = False
    tracks: ClassVar[Tracks] = {"": ("tokens", "tokens")}

    @property
    def table(self) -> nn.Embedding:
        """The vectors of its vocabulary, for a head that shares them."""
        raise TypeError(f"{type(self).__name__} has no vocabulary whose vectors a head could share")

    def draw(self, part: nn.Module) -> None:
        """The first weights of a part, where the encoder has a rule for them; by default they stay as drawn."""

    def fit(self, weights: dict[str, Tensor], earlier: Any) -> dict[str, Tensor]:
        """The weights of an earlier model, whose config is `earlier`, made to fit where it can be done (positions of
        larger pictures)."""
        return weights

    def encode(self, inputs: Any) -> Encoded:
        """`inputs` is read by attribute: as `headway.batch.TextInputs` has them where they are text."""
        raise NotImplementedError

    def forward(self, inputs: Any) -> Encoded:
        return self.encode(inputs)


class OfSteps(Encodes):
    """Abstract. An encoder of trajectories: a vector for every step. step_tokens: what it has a place for, of each
    step. told: whether it reads the return that is wanted."""

    tracks: ClassVar[Tracks] = {"": ("steps", "steps")}
    step_tokens: tuple[str, ...] = ("state",)
    told: bool = False


class Acts(OfSteps):
    """Abstract. Its steps can be read as they come: those before are a row of numbers that it remembers. Without
    anything to remember, `encode` is all.

    memory: how many numbers. Its config says whether it `practises`, so learns by acting.
    """

    memory: int = 0

    def start(self, rows: int, device: torch.device) -> Tensor:
        """(R, M): before the first step of an episode."""
        return torch.zeros(rows, self.memory, device=device)

    def follow(self, inputs: Any, memory_RM: Tensor) -> tuple[Encoded, Tensor]:
        """The steps that come next, and what is remembered behind them."""
        return self.encode(inputs), memory_RM


class Steps(nn.Module):
    """Abstract. p(y_t | y_<t, x) = softmax(head(hidden(embed(y_<t)))), x the source where there is one: a language
    model, or a sequence-to-sequence model. Rows are read any number of tokens at a time.

    A call consumes the state that it is given, and returns the one behind what was read. `embed` and `head` are methods
    or parts that are called alike:

    embed(ids_RT, state, segments_RT=None, lengths_R=None) -> Embedded: the next T tokens of each row as what enters the
        first layer. `segments_RT` tells packed documents apart (of a text that is given whole): none looks into
        another. `lengths_R`: rows are padded on the right; the state is then the one behind each row's own last token.
    head(hidden_RTD, state=None): the logits of the next token, (R, T, V). Copy attention would read the state.
    """

    embed: Any
    head: Any
    context: int | None = None  # the most tokens that a row may have; None: any number
    tracks: ClassVar[Tracks]
    carries: ClassVar[bool] = False  # whether a state of fixed size passes from one batch of a stream to the next
    capturable: ClassVar[bool] = True  # whether a step may be captured as a CUDA graph
    small_kernels: ClassVar[bool] = False  # whether there is little to compile around kernels that are one already

    def __init__(self, config: Any, *vocabularies: int) -> None:
        """`vocabularies`: the sizes of what it reads and of what it writes, or the one of both."""
        super().__init__()
        self.config, self.vocabularies, self.vocabulary = config, vocabularies, vocabularies[-1]

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
        return tap.save(self, "logits", self.head(hidden_RTD, state), ("row", "target", "vocabulary")), state

"""What a model of speech may write next: tokens that are suppressed, and the order of timestamps.

The rules stand between the model's head and whatever chooses a token, so that sampling and beam search follow them
alike, and a log-probability is that among the tokens which are allowed (Radford et al. 2023, 4.5).

R rows, T tokens, S places, D width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from headway.batch import Batch, column
from headway.generate.rows import wide
from headway.models.protocols import Embedded, Encoded, Steps
from headway.nn.slots import Values
from headway.nn.state import State

NONE = -1  # no timestamp yet


@dataclass(frozen=True)
class Heard(Batch):
    """What an encoder made of some windows."""

    x_BSD: Tensor = column()


class HeardRow(NamedTuple):
    """One window, for a batch that is made of many."""

    x_SD: Tensor

    @property
    def size(self) -> int:
        """Nothing is left to be read."""
        return 0

    @staticmethod
    def join(rows: Sequence[HeardRow]) -> Heard:
        return Heard(torch.stack([row.x_SD for row in rows]))


@dataclass(frozen=True)
class Rules:
    """start, end: of a transcript. opening: how many tokens stand before its text, the start counted. never: ids that
    are not written, never_first: nor as the first of a text. first_time: the id of the timestamp of 0 seconds; None:
    there are no timestamps. latest_start: the greatest first timestamp, counted from there; None: any."""

    start: int
    end: int
    opening: int
    never: tuple[int, ...] = ()
    never_first: tuple[int, ...] = ()
    first_time: int | None = None
    latest_start: int | None = None

    @property
    def free(self) -> bool:
        """Whether all is allowed."""
        return self.first_time is None and not self.never and not self.never_first


class Said(Values):
    """Of each row the last id and the one before it, how many stand behind its start, and its last timestamp."""

    @classmethod
    def nothing(cls, rows: int, device: torch.device) -> Said:
        return cls(*(torch.full((rows,), NONE, device=device) for _ in range(4)))

    def read(self, ids_RT: Tensor, lengths_R: Tensor | None, rules: Rules) -> None:
        """Of a prompt token by token: it is read once."""
        for t, ids_R in enumerate(ids_RT.unbind(1)):
            new = self._next(ids_R, rules)
            if lengths_R is not None:
                there_R = lengths_R > t
                new = tuple(torch.where(there_R, one, old) for one, old in zip(new, self.tensors, strict=True))
            self.tensors = new

    def _next(self, ids_R: Tensor, rules: Rules) -> tuple[Tensor, ...]:
        last_R, _, behind_R, time_R = self.tensors
        if rules.first_time is not None:
            time_R = torch.where(ids_R >= rules.first_time, ids_R, time_R)
        starts_R = ids_R == rules.start
        # Copies: a room's tensors are written over one by one.
        return (
            ids_R.clone(),
            last_R.clone(),
            (behind_R + 1).masked_fill(starts_R, 0),
            time_R.masked_fill(starts_R, NONE),
        )


@final
class Ruled(Steps):
    """A model of speech that writes what the rules allow. It starts from windows that are encoded already (`Heard`)."""

    banned_V: Tensor
    banned_first_V: Tensor
    at_V: Tensor

    def __init__(self, model: Any, rules: Rules) -> None:
        super().__init__(model.config, *model.vocabularies)
        self.model, self.rules = model, rules
        self.context, self.tracks = model.context, model.tracks  # type: ignore[misc]
        device = next(model.parameters()).device
        for name, ids in (("banned_V", rules.never), ("banned_first_V", rules.never_first)):
            banned_V = torch.zeros(self.vocabulary, dtype=torch.bool)
            banned_V[[i for i in ids if 0 <= i < self.vocabulary]] = True
            self.register_buffer(name, banned_V.to(device), persistent=False)
        self.register_buffer("at_V", torch.arange(self.vocabulary, device=device), persistent=False)

    def start(self, inputs: Heard, rows: int, device: torch.device, room: int | None = None) -> State:
        state: State = self.model.remember(Encoded(inputs.x_BSD), room)
        return State({**state.slots, "said": [Said.nothing(rows, device)]}, state.clock, state.group)

    def embed(
        self, ids_RT: Tensor, state: State, segments_RT: Tensor | None = None, lengths_R: Tensor | None = None
    ) -> Embedded:
        if not self.rules.free:
            state["said"][0].read(ids_RT, lengths_R, self.rules)
        found: Embedded = self.model.embed(ids_RT, state, segments_RT, lengths_R)
        return found

    def hidden(self, embedded: Embedded, state: State) -> tuple[Tensor, State]:
        found: tuple[Tensor, State] = self.model.hidden(embedded, state)
        return found

    def head(self, hidden_RTD: Tensor, state: State) -> Tensor:
        """Of the last of these tokens."""
        logits_RTV: Tensor = self.model.head(hidden_RTD[:, -1:], state)
        if self.rules.free:
            return logits_RTV
        logits_RV = wide(logits_RTV[:, 0])
        return allowed(logits_RV, state["said"][0], self.rules, self.banned_V, self.banned_first_V, self.at_V)[:, None]


def allowed(
    logits_RV: Tensor, said: Said, rules: Rules, banned_V: Tensor, banned_first_V: Tensor, at_V: Tensor
) -> Tensor:
    """The logits with −∞ for what may not come next."""
    last_R, before_R, behind_R, time_R = said.tensors
    written_R1 = behind_R[:, None] - (rules.opening - 1)
    first_R1 = written_R1 == 0
    banned_RV = banned_V | (first_R1 & banned_first_V)
    if rules.first_time is None:
        return logits_RV.masked_fill(banned_RV, -math.inf)
    times = rules.first_time
    is_time_V = at_V >= times
    # Timestamps come in pairs: the end of a segment and the beginning of the next. Of the first there is one alone.
    after_time_R1 = (written_R1 >= 1) & (last_R[:, None] >= times)
    paired_R1 = (written_R1 < 2) | (before_R[:, None] >= times)
    half_R1 = after_time_R1 & ~paired_R1
    banned_RV = banned_RV | (after_time_R1 & paired_R1 & is_time_V) | (half_R1 & (at_V < rules.end))
    # They never go back; only the second of a pair may repeat the first.
    time_R1 = time_R[:, None]
    least_R1 = torch.where(time_R1 == NONE, times, time_R1 + (~half_R1).long())
    banned_RV = banned_RV | (is_time_V & (at_V < least_R1)) | (first_R1 & ~is_time_V)
    if rules.latest_start is not None:
        banned_RV = banned_RV | (first_R1 & (at_V > times + rules.latest_start))
    logits_RV = logits_RV.masked_fill(banned_RV, -math.inf)
    # A timestamp is due where all of them together are more probable than any other token.
    due_R1 = logits_RV[:, times:].logsumexp(-1, keepdim=True) > logits_RV[:, :times].amax(-1, keepdim=True)
    return logits_RV.masked_fill(due_R1 & ~is_time_V, -math.inf)

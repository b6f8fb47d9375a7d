"""One step of beam search, on the device from beginning to end.

N sources in flight, K beam, R = N·K rows, C candidates, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from headway.generate.search import Search
from headway.generate.top_k import best_continuations
from headway.models.protocols import Steps
from headway.text.symbols import Symbols

# Of every step: token of each beam, the beam it continues, its sum; then the sums of candidates that end here
# (−∞: does not end) and the beams that those continue.
Record = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def pack(records: list[Record]) -> Tensor:
    """What G steps have to say, (5, G, N, K), so that it is one copy to the host: float64 holds every token exactly."""
    return torch.stack([torch.stack(column).double() for column in zip(*records, strict=True)])


@dataclass
class Board:
    """Everything that a step reads and changes."""

    state: Any
    scores_NK: Tensor  # sum of log-probabilities of every beam
    last_NK: Tensor  # its newest token
    limits_N: Tensor  # the longest output of a source
    ages_N: Tensor  # and how long it is so far
    captured: bool = False
    parents_R: Tensor | None = None  # the reorder that the state still needs (see `settle`)

    @staticmethod
    def fresh(state: Any, start: int, beam: int, limits: list[int], device: torch.device) -> Board:
        state.widen(beam)
        scores_NK = torch.full((len(limits), beam), -math.inf, device=device)
        scores_NK[:, 0] = 0.0  # all beams start equal: only one may speak
        last_NK = torch.full((len(limits), beam), start, device=device)
        ages_N = torch.zeros(len(limits), dtype=torch.long, device=device)
        return Board(state, scores_NK, last_NK, torch.tensor(limits, device=device), ages_N)

    def tensors(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name.endswith(("_N", "_NK"))}

    def settle(self) -> None:
        """Bring the state's rows into the order that the last step chose."""
        if self.parents_R is not None:
            self.state.reorder(self.parents_R)
            self.parents_R = None

    def select(self, slots_N: Tensor) -> Board:
        """A board of these slots. One that a captured graph lives on stays as it is."""
        state = self.state.fork() if self.captured else self.state
        state.select(slots_N, self.parents_R)
        return Board(state, **{name: tensor[slots_N] for name, tensor in self.tensors().items()})

    def insert(self, other: Board) -> Board:
        mine, theirs = self.tensors(), other.tensors()
        joined: dict[str, Any] = {name: torch.cat([mine[name], theirs[name]]) for name in mine}
        return Board(self.state.insert(other.state), **joined)


def advance(model: Steps, search: Search, symbols: Symbols, board: Board) -> Record:
    """One token for every row. The state is left in the old order: who goes on says `settle` first."""
    end, never = symbols.end, symbols.never
    sources, beam = board.scores_NK.shape
    logits_RTV, board.state = model.logits(board.last_NK.view(-1, 1), board.state)
    # Twice the beam: even if every beam's best is its end, `beam` others go on. One more for each that is forbidden.
    count = min(2 * beam + (search.min_length > 0) + len(never), logits_RTV.shape[-1])
    values_RC, ids_RC, ends_R = best_continuations(logits_RTV[:, -1], count, end)
    if search.min_length:
        young_R = (board.ages_N < search.min_length).repeat_interleave(beam)
        values_RC = values_RC.masked_fill(young_R[:, None] & (ids_RC == end), -math.inf)
    for id in never:
        values_RC = values_RC.masked_fill(ids_RC == id, -math.inf)
    last_R1 = (board.ages_N >= board.limits_N).repeat_interleave(beam)[:, None]
    values_RC, ids_RC = _force_end(values_RC, ids_RC, ends_R, last_R1, end)
    width = values_RC.shape[1]
    totals_NC = (board.scores_NK[:, :, None] + values_RC.view(sources, beam, width)).flatten(1)
    totals_NC, at_NC = totals_NC.topk(min(2 * beam, beam * width))
    parents_NC = at_NC // width
    tokens_NC = ids_RC.view(sources, -1).gather(1, at_NC)
    ends_NC = tokens_NC == end
    # The first `beam` candidates that do not end, in order: ended ones are moved behind all others.
    order_NC = torch.arange(tokens_NC.shape[1], device=tokens_NC.device) + ends_NC * tokens_NC.shape[1]
    going_NK = order_NC.topk(beam, largest=False).indices
    board.scores_NK = totals_NC.gather(1, going_NK).masked_fill(ends_NC.gather(1, going_NK), -math.inf)
    board.last_NK = tokens_NC.gather(1, going_NK)
    parents_NK = parents_NC.gather(1, going_NK)
    if beam > 1:
        base_N1 = torch.arange(sources, device=tokens_NC.device)[:, None] * beam
        board.parents_R = (base_N1 + parents_NK).flatten()
    board.ages_N = board.ages_N + 1
    # Only ends among the first `beam` candidates count: a worse one would not have been kept either.
    ended_NK = totals_NC[:, :beam].masked_fill(~ends_NC[:, :beam], -math.inf)
    return board.last_NK, parents_NK, board.scores_NK, ended_NK, parents_NC[:, :beam]


def _force_end(values_RC: Tensor, ids_RC: Tensor, ends_R: Tensor, last_R1: Tensor, end: int) -> tuple[Tensor, Tensor]:
    """A row at its longest may only end."""
    first_C = torch.arange(values_RC.shape[1], device=values_RC.device) == 0
    only_RC = ends_R[:, None].masked_fill(~first_C, -math.inf)
    return torch.where(last_R1, only_RC, values_RC), ids_RC.masked_fill(last_R1 & first_C, end)

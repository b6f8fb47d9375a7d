"""One step of beam search, on the device from beginning to end.

N sources, K beam, R = N·K rows, C candidates, V vocabulary, G steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.generate.rows import Rows, wide
from headway.generate.search import Search
from headway.generate.top_k import best_continuations, top_k
from headway.models.protocols import Steps

# Of every step: token of each beam, the beam it continues, its sum; then the sums of candidates that end here
# (−∞: does not end) and the beams that those continue.
Record = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


class Ends(NamedTuple):
    """What ends a hypothesis: the first where it must end, any of the others where it may. `never`: ids that no
    hypothesis has. `cut`: a hypothesis at its longest need not end; it counts as it stands."""

    stops: tuple[int, ...]
    never: tuple[int, ...] = ()
    cut: bool = False


def pack(records: list[Record]) -> Tensor:
    """The records of G steps, (5, G, N, K), so that they are one copy to the host; float64 holds every id exactly."""
    return torch.stack([torch.stack(column).double() for column in zip(*records, strict=True)])


@dataclass
class BeamRows(Rows):
    """The rows of a source are its beam."""

    scores_NK: Tensor  # sum of log-probabilities of every hypothesis
    last_NK: Tensor  # its newest token
    limits_N: Tensor  # the longest output of a source
    ages_N: Tensor  # and how long it is so far


def advance(
    model: Steps, rows: BeamRows, search: Search, ends: Ends, allowed_RV: Tensor | None = None
) -> Record:  # fmt: skip
    """One token for every hypothesis; the state is then in the order of the new ones. `allowed_RV`: the tokens that a
    constraint leaves to each."""
    end, never = ends.stops[0], ends.never
    sources, beam = rows.scores_NK.shape
    assert rows.state is not None
    logits_RTV, rows.state = model.logits(rows.last_NK.reshape(-1, 1), rows.state)
    # Twice the beam: even if every hypothesis ends best, `beam` others continue. One more for each that is forbidden.
    more = len(never) + len(ends.stops) - 1 + (search.min_length > 0)
    values_RC, ids_RC, ends_R = _candidates(logits_RTV[:, -1], 2 * beam + more, end, allowed_RV)
    if search.min_length:
        young_R1 = (rows.ages_N < search.min_length).repeat_interleave(beam)[:, None]
        values_RC = values_RC.masked_fill(young_R1 & _among(ids_RC, ends.stops), -math.inf)
    for id in never:
        values_RC = values_RC.masked_fill(ids_RC == id, -math.inf)
    last_R1 = (rows.ages_N >= rows.limits_N).repeat_interleave(beam)[:, None]
    ends_R = torch.zeros_like(ends_R) if ends.cut else ends_R
    values_RC, ids_RC = _force_end(values_RC, ids_RC, ends_R, last_R1, end)
    width = values_RC.shape[1]
    totals_NC = (rows.scores_NK[:, :, None] + values_RC.view(sources, beam, width)).flatten(1)
    totals_NC, at_NC = totals_NC.topk(min(2 * beam, beam * width))
    parents_NC = at_NC // width
    tokens_NC = ids_RC.view(sources, -1).gather(1, at_NC)
    ends_NC = _among(tokens_NC, ends.stops)
    # The first `beam` candidates that do not end, in order: ended ones are moved behind all others.
    order_NC = torch.arange(tokens_NC.shape[1], device=tokens_NC.device) + ends_NC * tokens_NC.shape[1]
    open_NK = order_NC.topk(beam, largest=False).indices
    rows.scores_NK = totals_NC.gather(1, open_NK).masked_fill(ends_NC.gather(1, open_NK), -math.inf)
    rows.last_NK = tokens_NC.gather(1, open_NK)
    parents_NK = parents_NC.gather(1, open_NK)
    if beam > 1:
        base_N1 = torch.arange(sources, device=tokens_NC.device)[:, None] * beam
        rows.state.reorder((base_N1 + parents_NK).flatten())
    rows.ages_N = rows.ages_N + 1
    # Only ends among the first `beam` candidates count: a worse one would not have been kept either.
    ended_NK = totals_NC[:, :beam].masked_fill(~ends_NC[:, :beam], -math.inf)
    return rows.last_NK, parents_NK, rows.scores_NK, ended_NK, parents_NC[:, :beam]


def _candidates(logits_RV: Tensor, count: int, end: int, allowed_RV: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    count = min(count, logits_RV.shape[-1])
    if allowed_RV is None:
        return best_continuations(logits_RV, count, end)
    logp_RV = F.log_softmax(wide(logits_RV), -1).masked_fill(~allowed_RV, -math.inf)
    return *top_k(logp_RV, count), logp_RV[:, end]


def _among(ids: Tensor, some: tuple[int, ...]) -> Tensor:
    found = ids == some[0]
    for id in some[1:]:
        found = found | (ids == id)
    return found


def _force_end(values_RC: Tensor, ids_RC: Tensor, ends_R: Tensor, last_R1: Tensor, end: int) -> tuple[Tensor, Tensor]:
    """A row at its longest may only end."""
    first_C = torch.arange(values_RC.shape[1], device=values_RC.device) == 0
    only_RC = ends_R[:, None].masked_fill(~first_C, -math.inf)
    return torch.where(last_R1, only_RC, values_RC), ids_RC.masked_fill(last_R1 & first_C, end)

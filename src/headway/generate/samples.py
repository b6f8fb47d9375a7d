"""One step of sampled rows, on the device from beginning to end: the next token of every row.

R rows, L room for ids, V vocabulary, A alternatives, G rows of one group (of records: steps), S numbers of a record,
T tokens fed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.fast import sampling as kernels
from headway.fast.jit import available
from headway.generate import noise
from headway.generate.chain import Greedy, Link, Past, apply
from headway.generate.rows import Rows, wide
from headway.generate.top_k import top_k
from headway.models.protocols import Steps

# A chain, and the rows that it is for: None for all.
Group = tuple[Sequence[Link], Tensor | None]
# A token, its log-probability, and the likeliest tokens with theirs.
Step = tuple[int, float, tuple[tuple[int, float], ...]]


@dataclass
class SampleRows(Rows):
    """The state has read all of a row but its last token."""

    ids_RL: Tensor
    lengths_R: Tensor
    prompts_R: Tensor
    streams_R: Tensor  # where each row's noise starts
    newest_R: Tensor  # the last id of each row

    def past(self, longest: int) -> Past:
        return Past(self.ids_RL[:, :longest], self.lengths_R, self.prompts_R)

    def append(self, tokens_R: Tensor) -> None:
        """A token behind every row; where there is none (−1), any stands in. A row that is done is stepped until the
        host has read so; it stays inside its room."""
        self.newest_R = tokens_R.clamp(min=0)
        self.ids_RL.scatter_(1, self.lengths_R[:, None], self.newest_R[:, None])
        self.lengths_R = (self.lengths_R + 1).clamp(max=self.ids_RL.shape[1] - 1)


def unpack(packed_GRS: Tensor) -> list[list[Step]]:
    """Of each step, of each row."""
    return [[_step(*row) for row in step] for step in packed_GRS.tolist()]


def _step(token: float, logp: float, *top: float) -> Step:
    # A tuple: the empty one is a single object, where a list for every token would have Python's collector look through
    # all that there is (0.1 s and more with a large library loaded).
    if not top:
        return int(token), logp, ()
    ids, values = top[: len(top) // 2], top[len(top) // 2 :]
    return int(token), logp, tuple((int(i), value) for i, value in zip(ids, values, strict=True))


@dataclass(frozen=True, eq=False)
class Outputs:
    """The records of a few captured steps, at addresses that stay."""

    packed_GRS: Tensor
    turns_R: Tensor  # where each row's next one is written

    @staticmethod
    def blank(steps: int, rows: int, top: int, device: torch.device) -> Outputs:
        packed_GRS = torch.zeros(steps, rows, 2 + 2 * top, dtype=torch.float64, device=device)
        return Outputs(packed_GRS, torch.zeros(rows, dtype=torch.long, device=device))

    @property
    def top(self) -> int:
        """How many of the likeliest tokens are recorded."""
        return self.packed_GRS.shape[2] // 2 - 1


@dataclass(frozen=True, eq=False)
class Chosen:
    """A token of each row (None: its likeliest), and at least one of the likeliest with their log-probabilities."""

    logits_RV: Tensor
    tokens_R: Tensor | None
    ids_RA: Tensor
    logps_RA: Tensor

    def record(self, top: int) -> tuple[Tensor, Tensor]:
        """The tokens, −1 where there is none, and the step's record (R, S): the token, its log-probability, then the
        most likely tokens and theirs, so that a step is one copy to the host. float64 holds every id exactly."""
        best_R, logps_R = self.ids_RA[:, 0], self.logps_RA[:, 0]
        if self.tokens_R is None:
            tokens_R = best_R.where(logps_R > -math.inf, -1)  # NaN is not larger
        else:
            tokens_R = self.tokens_R
            # log p(v) = z(v) − z(best) + log p(best)
            apart_R2 = wide(self.logits_RV.gather(1, torch.stack([tokens_R.clamp(min=0), best_R], 1)))
            logps_R = apart_R2[:, 0] - apart_R2[:, 1] + logps_R
        parts = [tokens_R[:, None], logps_R[:, None], *((self.ids_RA, self.logps_RA) if top else ())]
        return tokens_R, torch.cat([part.double() for part in parts], 1)


def predict(model: Steps, rows: SampleRows, context: int, longest: int) -> Tensor:
    """The logits of every row's next token. Rows without a state have `context` tokens or more: of each the last
    `context` are read, as a text that begins there."""
    if rows.state is None:
        hidden_RTD, state = model.read(rows.past(longest).tail(context))
    else:
        hidden_RTD, state = model.read(rows.newest_R[:, None], rows.state)
        rows.state = state
    return model.head(hidden_RTD[:, -1:], state)[:, 0]


def write(rows: SampleRows, groups: Sequence[Group], logits_RV: Tensor, *, longest: int, top: int) -> Tensor:
    """Choose a token for every row, put it behind the others and return the record."""
    tokens_R, record_RS = choose(rows, groups, logits_RV, longest=longest, top=top).record(top)
    rows.append(tokens_R)
    return record_RS


def note(rows: SampleRows, groups: Sequence[Group], logits_RV: Tensor, outputs: Outputs) -> None:
    """`write` at addresses that stay: in place, and the record into the outputs."""
    chosen = choose(rows, groups, logits_RV, longest=rows.ids_RL.shape[1], top=outputs.top)
    if available(logits_RV):
        kernels.note(
            *(logits_RV, chosen.tokens_R, chosen.ids_RA, chosen.logps_RA),
            *(rows.ids_RL, rows.newest_R, rows.lengths_R, outputs.packed_GRS, outputs.turns_R),
        )
    else:
        readable_note(rows, chosen, outputs)


def readable_note(rows: SampleRows, chosen: Chosen, outputs: Outputs) -> None:
    newest_R, lengths_R = rows.newest_R, rows.lengths_R
    tokens_R, record_RS = chosen.record(outputs.top)
    rows.append(tokens_R)
    rows.newest_R, rows.lengths_R = newest_R.copy_(rows.newest_R), lengths_R.copy_(rows.lengths_R)
    packed_1RS = record_RS[None]
    outputs.packed_GRS.scatter_(0, outputs.turns_R[None, :, None].expand_as(packed_1RS), packed_1RS)
    outputs.turns_R.add_(1)


def choose(rows: SampleRows, groups: Sequence[Group], logits_RV: Tensor, *, longest: int, top: int) -> Chosen:
    """A token for every row by its chain, and the `top` likeliest."""
    greedy = len(groups) == 1 and list(groups[0][0]) == [Greedy()]
    tokens_R = None if greedy else _drawn(groups, wide(logits_RV), rows, longest)
    return Chosen(logits_RV, tokens_R, *likeliest(logits_RV, max(1, min(top, logits_RV.shape[1]))))


def likeliest(logits_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ids of the `count` largest logits of each row, best first and of equal ones at the top the first, and
    log softmax there, which is not built for the others."""
    if available(logits_RV):
        logps_RA, ids_RA, _ = kernels.continuations(logits_RV, count, end=0)
        return ids_RA, logps_RA
    wide_RV = wide(logits_RV)
    values_RA, ids_RA = wide_RV.max(-1, keepdim=True) if count == 1 else top_k(wide_RV, count)
    return ids_RA, values_RA - wide_RV.logsumexp(-1, keepdim=True)


def _drawn(groups: Sequence[Group], logits_RV: Tensor, rows: SampleRows, longest: int) -> Tensor:
    """A token of each row through its own chain; −1 where it leaves none, or logits are NaN."""
    past, written_R = rows.past(longest), rows.lengths_R - rows.prompts_R
    links, rows_G = groups[0]
    if rows_G is None:
        return _draw(links, logits_RV, past, rows.streams_R, written_R)
    tokens_R = torch.zeros_like(rows.lengths_R)
    for links, rows_G in groups:
        assert rows_G is not None
        tokens_R[rows_G] = _draw(links, logits_RV[rows_G], past.rows(rows_G), rows.streams_R[rows_G], written_R[rows_G])
    return tokens_R


def _draw(links: Sequence[Link], logits_RV: Tensor, past: Past, streams_R: Tensor, written_R: Tensor) -> Tensor:
    if links and links[-1] == Greedy():
        # What is left then is one token: no sum over the others would change that.
        best_R, tokens_R = apply(links[:-1], logits_RV, past).max(-1)
        return tokens_R.where(best_R.isfinite(), -1)
    uniforms = kernels.uniforms if available(logits_RV) else noise.uniforms
    return noise.draw(apply(links, logits_RV, past), uniforms(streams_R, written_R))

"""One step of streams, on the device from beginning to end: the next token of every row.

R rows, L room for ids, V vocabulary, A alternatives, G rows of one group (of records: steps), S numbers of a record,
T tokens fed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.fast import sampling as kernels
from headway.fast.jit import available
from headway.generate import noise
from headway.generate.chain import Greedy, Link, Past, apply
from headway.generate.top_k import top_k
from headway.models.protocols import Steps

# A chain, and the rows that it is for: None for all.
Group = tuple[Sequence[Link], Tensor | None]
# A token, its log-probability, and the likeliest tokens with theirs.
Said = tuple[int, float, tuple[tuple[int, float], ...]]


@dataclass
class Sheet:
    """Everything that a step reads and changes. The state has read all of a row but its last token."""

    state: Any  # None: rows are read anew at each step (see `advance`)
    ids_RL: Tensor
    lengths_R: Tensor
    prompts_R: Tensor
    streams_R: Tensor  # where each row's noise starts
    newest_R: Tensor  # the last id of each row

    captured: bool = False  # a graph lives on these tensors: they are written to, never replaced

    def tensors(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if "_R" in f.name}

    def past(self, longest: int) -> Past:
        return Past(self.ids_RL[:, :longest], self.lengths_R, self.prompts_R)

    def append(self, tokens_R: Tensor) -> None:
        """A token behind every row; where there is none (−1), any stands in."""
        self.newest_R = tokens_R.clamp(min=0)
        self.ids_RL.scatter_(1, self.lengths_R[:, None], self.newest_R[:, None])
        self.lengths_R = self.lengths_R + 1

    def select(self, rows_R: Tensor) -> Sheet:
        """Only these rows, in this order."""
        state = self.state
        if state is not None:
            state = state.fork() if self.captured else state
            state.keep(rows_R)
        return Sheet(state, **{name: tensor.index_select(0, rows_R) for name, tensor in self.tensors().items()})

    def move_out(self) -> None:
        """From room that somebody else needs into tensors of its own."""
        own = self.select(torch.arange(len(self.lengths_R), device=self.lengths_R.device))
        for f in fields(self):
            setattr(self, f.name, getattr(own, f.name))

    def without_state(self, rows_R: Tensor) -> Sheet:
        """A copy of these rows, to be read anew."""
        return Sheet(None, **{name: tensor.index_select(0, rows_R) for name, tensor in self.tensors().items()})

    def insert(self, other: Sheet) -> Sheet:
        state = self.state
        if state is not None and other.state is not None:
            state = state.insert(other.state)
        width = max(self.ids_RL.shape[1], other.ids_RL.shape[1])
        for sheet in (self, other):
            sheet.ids_RL = F.pad(sheet.ids_RL, (0, width - sheet.ids_RL.shape[1]))
        mine, theirs = self.tensors(), other.tensors()
        joined: dict[str, Any] = {name: torch.cat([mine[name], theirs[name]]) for name in mine}
        return Sheet(state, **joined)

    @property
    def may_stay(self) -> bool:
        """Whether its state can be given room at addresses that stay."""
        return getattr(self.state, "may_stay", False)

    def steady(self, rows: int, width: int) -> Sheet:
        """Room for as many rows and ids at addresses that stay."""
        state: Any = self.state
        room = {name: tensor.new_zeros(rows, *tensor.shape[1:]) for name, tensor in self.tensors().items()}
        room["ids_RL"] = self.ids_RL.new_zeros(rows, width)
        return Sheet(state.steady_rows(rows), **room, captured=True)

    def load(self, other: Sheet) -> None:
        """Copy another sheet into this room: its rows become the first ones."""
        state: Any = self.state
        state.load(other.state)
        for name, tensor in other.tensors().items():
            home = getattr(self, name)[: len(tensor)]
            (home[:, : tensor.shape[1]] if tensor.dim() == 2 else home).copy_(tensor)


@dataclass(frozen=True, eq=False)
class Record:
    """What steps have to say of each row, in one tensor, so that it is one copy to the host."""

    packed: Tensor  # (R, ·) of one step, (G, R, ·) of several; float64 holds every id exactly

    @staticmethod
    def of(tokens_R: Tensor, logps_R: Tensor, top: tuple[Tensor, Tensor] | None) -> Record:
        """The token, its log-probability, then the most likely tokens and theirs."""
        parts = [tokens_R[:, None], logps_R[:, None], *(top or ())]
        return Record(torch.cat([part.double() for part in parts], 1))

    def read(self) -> list[list[Said]]:
        """Of each step, of each row. Waits for the device."""
        steps = self.packed if self.packed.dim() == 3 else self.packed[None]
        return [[_said(*row) for row in step] for step in steps.tolist()]


@dataclass(frozen=True, eq=False)
class Notebook:
    """The records of a few steps, at addresses that stay."""

    packed_GRS: Tensor
    turns_R: Tensor  # where each row's next one is written

    @staticmethod
    def blank(steps: int, rows: int, top: int, device: torch.device) -> Notebook:
        packed_GRS = torch.zeros(steps, rows, 2 + 2 * top, dtype=torch.float64, device=device)
        return Notebook(packed_GRS, torch.zeros(rows, dtype=torch.long, device=device))

    @property
    def top(self) -> int:
        """How many of the likeliest tokens are told."""
        return self.packed_GRS.shape[2] // 2 - 1


def _said(token: float, logp: float, *top: float) -> Said:
    if not top:  # mostly, and this is called for every token
        return int(token), logp, ()
    ids, values = top[: len(top) // 2], top[len(top) // 2 :]
    return int(token), logp, tuple((int(i), value) for i, value in zip(ids, values, strict=True))


@dataclass(frozen=True, eq=False)
class Chosen:
    """A token of each row (None: its likeliest), and at least one of the likeliest with their log-probabilities."""

    logits_RV: Tensor
    tokens_R: Tensor | None
    ids_RA: Tensor
    logps_RA: Tensor

    def told(self, top: int) -> tuple[Tensor, Record]:
        """The tokens, −1 where there is none, and what there is to say of them."""
        best_R, logps_R = self.ids_RA[:, 0], self.logps_RA[:, 0]
        if self.tokens_R is None:
            tokens_R = best_R.where(logps_R > -math.inf, -1)  # NaN is not larger
        else:
            tokens_R = self.tokens_R
            # log p(v) = z(v) − z(best) + log p(best)
            apart_R2 = _wide(self.logits_RV.gather(1, torch.stack([tokens_R.clamp(min=0), best_R], 1)))
            logps_R = apart_R2[:, 0] - apart_R2[:, 1] + logps_R
        return tokens_R, Record.of(tokens_R, logps_R, (self.ids_RA, self.logps_RA) if top else None)


def advance(model: Steps, sheet: Sheet, groups: Sequence[Group], *, context: int, longest: int, top: int) -> Record:
    """One token for every row. `longest` bounds the lengths, before the step."""
    return write(sheet, groups, foretell(model, sheet, context, longest), longest=longest, top=top)


def foretell(model: Steps, sheet: Sheet, context: int, longest: int) -> Tensor:
    """The logits of every row's next token. A sheet without a state has only rows of `context` tokens or more: of
    each the last `context` are read, as a text that begins there."""
    if sheet.state is None:
        hidden_RTD, state = model.read(sheet.past(longest).tail(context))
    else:
        hidden_RTD, state = model.read(sheet.newest_R[:, None], sheet.state)
        sheet.state = state
    return model.head(hidden_RTD[:, -1:], state)[:, 0]


def write(sheet: Sheet, groups: Sequence[Group], logits_RV: Tensor, *, longest: int, top: int) -> Record:
    """Choose a token for every row, put it behind the others and say what was chosen."""
    tokens_R, record = choose(sheet, groups, logits_RV, longest=longest, top=top).told(top)
    sheet.append(tokens_R)
    return record


def note(sheet: Sheet, groups: Sequence[Group], logits_RV: Tensor, notebook: Notebook) -> None:
    """`write` at addresses that stay: in place, and what there is to say into the notebook. A row that is done goes
    along until the host has read so; it stays inside its room."""
    chosen = choose(sheet, groups, logits_RV, longest=sheet.ids_RL.shape[1], top=notebook.top)
    if available(logits_RV):
        kernels.note(
            *(logits_RV, chosen.tokens_R, chosen.ids_RA, chosen.logps_RA),
            *(sheet.ids_RL, sheet.newest_R, sheet.lengths_R, notebook.packed_GRS, notebook.turns_R),
        )
    else:
        readable_note(sheet, chosen, notebook)


def readable_note(sheet: Sheet, chosen: Chosen, notebook: Notebook) -> None:
    newest_R, lengths_R = sheet.newest_R, sheet.lengths_R
    tokens_R, record = chosen.told(notebook.top)
    sheet.append(tokens_R)
    sheet.newest_R = newest_R.copy_(sheet.newest_R)
    sheet.lengths_R = lengths_R.copy_(sheet.lengths_R.clamp(max=sheet.ids_RL.shape[1] - 1))
    packed_1RS = record.packed[None]
    notebook.packed_GRS.scatter_(0, notebook.turns_R[None, :, None].expand_as(packed_1RS), packed_1RS)
    notebook.turns_R.add_(1)


def choose(sheet: Sheet, groups: Sequence[Group], logits_RV: Tensor, *, longest: int, top: int) -> Chosen:
    """A token for every row by its chain, and the `top` likeliest."""
    greedy = len(groups) == 1 and list(groups[0][0]) == [Greedy()]
    tokens_R = None if greedy else _drawn(groups, _wide(logits_RV), sheet, longest)
    return Chosen(logits_RV, tokens_R, *likeliest(logits_RV, max(1, min(top, logits_RV.shape[1]))))


def _wide(logits_RV: Tensor) -> Tensor:
    return logits_RV.to(torch.promote_types(logits_RV.dtype, torch.float32))


def likeliest(logits_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ids of the `count` largest logits of each row, best first and of equal ones at the top the first, and
    log softmax there, which is not built for the others."""
    if available(logits_RV):
        logps_RA, ids_RA, _ = kernels.continuations(logits_RV, count, end=0)
        return ids_RA, logps_RA
    wide_RV = _wide(logits_RV)
    values_RA, ids_RA = wide_RV.max(-1, keepdim=True) if count == 1 else top_k(wide_RV, count)
    return ids_RA, values_RA - wide_RV.logsumexp(-1, keepdim=True)


def _drawn(groups: Sequence[Group], logits_RV: Tensor, sheet: Sheet, longest: int) -> Tensor:
    """A token of each row through its own chain; −1 where it leaves none, or logits are NaN."""
    past, written_R = sheet.past(longest), sheet.lengths_R - sheet.prompts_R
    links, rows_G = groups[0]
    if rows_G is None:
        return _draw(links, logits_RV, past, sheet.streams_R, written_R)
    tokens_R = torch.zeros_like(sheet.lengths_R)
    for links, rows_G in groups:
        assert rows_G is not None
        tokens_R[rows_G] = _draw(
            links, logits_RV[rows_G], past.rows(rows_G), sheet.streams_R[rows_G], written_R[rows_G]
        )
    return tokens_R


def _draw(links: Sequence[Link], logits_RV: Tensor, past: Past, streams_R: Tensor, written_R: Tensor) -> Tensor:
    if links and links[-1] == Greedy():
        # What is left then is one token: no sum over the others would change that.
        best_R, tokens_R = apply(links[:-1], logits_RV, past).max(-1)
        return tokens_R.where(best_R.isfinite(), -1)
    uniforms = kernels.uniforms if available(logits_RV) else noise.uniforms
    return noise.draw(apply(links, logits_RV, past), uniforms(streams_R, written_R))

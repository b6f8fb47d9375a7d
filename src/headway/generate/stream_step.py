"""One step of streams, on the device from beginning to end: the next token of every row.

R rows, L room for ids, V vocabulary, A alternatives, G rows of one group, T tokens fed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.generate import noise
from headway.generate.chain import Link, Past, apply
from headway.generate.top_k import top_k
from headway.models.protocols import LanguageModel, Stream

# A chain, and the rows that it is for: None for all.
Group = tuple[Sequence[Link], Tensor | None]


@dataclass
class Sheet:
    """Everything that a step reads and changes. The state has read all of a row but its last token."""

    state: Stream | None  # None: rows are read anew at each step (see `advance`)
    ids_RL: Tensor
    lengths_R: Tensor
    prompts_R: Tensor
    streams_R: Tensor  # where each row's noise starts

    def tensors(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "state"}

    def keep(self, rows_R: Tensor) -> None:
        if self.state is not None:
            self.state.keep(rows_R)
        for name, tensor in self.tensors().items():
            setattr(self, name, tensor.index_select(0, rows_R))

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


@dataclass(frozen=True, eq=False)
class Record:
    """What a step has to say of each row, in one tensor, so that it is one copy to the host."""

    packed: Tensor  # float64 holds every id exactly

    @staticmethod
    def of(tokens_R: Tensor, logp_RV: Tensor, top: int) -> Record:
        """The token, its log-probability, then the most likely tokens and theirs."""
        mine_R1 = logp_RV.gather(1, tokens_R.clamp(min=0)[:, None])
        parts = [tokens_R[:, None], mine_R1]
        if top:
            values_RA, ids_RA = top_k(logp_RV, min(top, logp_RV.shape[1]))
            parts += [ids_RA, values_RA]
        return Record(torch.cat([part.double() for part in parts], 1))

    def read(self) -> list[tuple[int, float, list[tuple[int, float]]]]:
        """Waits for the device."""
        found = []
        for token, logp, *top in self.packed.tolist():
            ids, values = top[: len(top) // 2], top[len(top) // 2 :]
            found.append((int(token), logp, [(int(i), value) for i, value in zip(ids, values, strict=True)]))
        return found


def advance(
    model: LanguageModel, sheet: Sheet, groups: Sequence[Group], *, context: int, longest: int, top: int
) -> Record:
    """One token for every row. A sheet without a state has only rows of `context` tokens or more: of each the last
    `context` are read, as a text that begins there. `longest` bounds the lengths, before the step."""
    past = Past(sheet.ids_RL[:, :longest], sheet.lengths_R, sheet.prompts_R)
    if sheet.state is None:
        hidden_RTD, _ = model.hidden(past.tail(context))
    else:
        hidden_RTD, sheet.state = model.hidden(past.tail(1), sheet.state)
    logits_RV = model.head(hidden_RTD[:, -1:])[:, 0]
    logits_RV = logits_RV.to(torch.promote_types(logits_RV.dtype, torch.float32))
    chained_RV = _chained(groups, logits_RV, past)
    uniforms_R = noise.uniforms(sheet.streams_R, sheet.lengths_R - sheet.prompts_R)
    tokens_R = noise.draw(chained_RV, uniforms_R)
    sheet.ids_RL.scatter_(1, sheet.lengths_R[:, None], tokens_R.clamp(min=0)[:, None])
    sheet.lengths_R = sheet.lengths_R + 1
    return Record.of(tokens_R, logits_RV.log_softmax(-1), top)


def _chained(groups: Sequence[Group], logits_RV: Tensor, past: Past) -> Tensor:
    """Each row through its own chain."""
    chained_RV = logits_RV
    for links, rows_G in groups:
        if rows_G is None:
            return apply(links, logits_RV, past)
        chained_RV = chained_RV.index_copy(0, rows_G, apply(links, logits_RV[rows_G], past.rows(rows_G)))
    return chained_RV

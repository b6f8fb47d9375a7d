"""Markov chains of any order: each word from the n − 1 before it, by tables of what was counted (deck D, deck E).

    log p(w | h) = logp(hw) if hw is in the tables, else backoff(h) + log p(w | h without its first word)

What was counted, and how it was smoothed, is in the tables: `headway.models.counts`, `headway.models.smoothing`.

B batch, T length, R rows, N tables below the highest (n − 1), E entries behind some histories, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import InputError, refuse
from headway.models.counts import Ints, count_grams
from headway.models.language import NextTokenModel
from headway.models.protocols import Embedded
from headway.models.smoothing import Floats, ModifiedKneserNey, Smoothing
from headway.nn.slots import Values
from headway.nn.state import State

NONE = -1  # row of an n-gram that is in no table


@dataclass(frozen=True)
class NGramConfig:
    """`order` is n: each word from the n − 1 before it, a chain of the order n − 1.

    boundary: the id between two texts: no history reaches behind it. never: ids that no text has.
    sizes: n-grams of the orders 2 … n, known once they are counted.
    """

    name: ClassVar[str] = "ngram"
    order: int = 3
    smoothing: Smoothing = field(default_factory=ModifiedKneserNey)
    boundary: int = 2
    never: tuple[int, ...] = (0, 1)
    sizes: tuple[int, ...] = ()


class Table(nn.Module):
    """The n-grams of one order: sorted keys (row of the first words in the order below · V + last word), and with each
    its two logarithms. Order 1 has no keys: its row is the word. The highest order has no back-off."""

    def __init__(self, size: int, vocabulary: int, keys: bool, backoff: bool) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.keys = nn.Parameter(torch.zeros(size if keys else 0, dtype=torch.long), requires_grad=False)
        self.logp = nn.Parameter(torch.zeros(size), requires_grad=False)
        self.backoff = nn.Parameter(torch.zeros(size if backoff else 0), requires_grad=False)

    def fill(self, keys_N: Ints, logp_N: Floats, backoff_N: Floats) -> None:
        for home, values in ((self.keys, keys_N), (self.logp, logp_N), (self.backoff, backoff_N)):
            home.data.copy_(torch.from_numpy(values[: len(home)]))

    def find(self, histories: Tensor, words: Tensor) -> Tensor:
        """The rows of these histories with these words behind them."""
        keys = histories * self.vocabulary + words
        rows = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        return torch.where((self.keys[rows] == keys) & (histories != NONE), rows, NONE)

    def behind(self, histories_R: Tensor) -> tuple[Tensor, Tensor]:
        """All entries behind these histories: (which history, row of the entry) of each."""
        known_R = histories_R != NONE
        first_R = torch.searchsorted(self.keys, histories_R * self.vocabulary)
        sizes_R = (torch.searchsorted(self.keys, (histories_R + 1) * self.vocabulary) - first_R).where(known_R, 0)
        owner_E = torch.repeat_interleave(sizes_R)
        within_E = torch.arange(len(owner_E), device=owner_E.device) - (sizes_R.cumsum(0) - sizes_R)[owner_E]
        return owner_E, first_R[owner_E] + within_E

    def weight_of(self, histories: Tensor) -> Tensor:
        """Their back-off; an unknown one has none."""
        return self.backoff[histories.clamp(min=0)].double().where(histories != NONE, 0.0)


class NGram(NextTokenModel):
    """p(x_t | x_<t) = p(x_t | x_{t−n+1} … x_{t−1})."""

    capturable = False  # how many entries stand behind a history is asked of the device

    def __init__(self, config: NGramConfig, vocabulary: int) -> None:
        super().__init__(config, vocabulary)
        n, self.reach = config.order, config.order - 2  # positions that it looks back
        sizes = [vocabulary, *(config.sizes or (0,) * (n - 1))]
        if len(sizes) != n:
            raise ValueError(f"{len(config.sizes)} sizes of tables for order {n}, expected {n - 1}")
        self.orders = nn.ModuleList(
            Table(size, vocabulary, order > 1, order < n) for order, size in enumerate(sizes, 1)
        )  # fmt: skip

    @classmethod
    def count(cls, config: NGramConfig, vocabulary: int, ids_T: Ints) -> NGram:
        """Learned in one pass: count, then smooth. The text begins and ends with the boundary."""
        refuse(not len(ids_T) > 1, "there is nothing to count: the text is empty")
        grams = count_grams(ids_T, vocabulary, config.order, config.boundary)
        for order, mine in enumerate(grams, 1):
            if not len(mine):
                raise InputError(
                    f"no text is long enough for n-grams of {order} words, its beginning and end counted: give longer "
                    f"ones, or set model.order={order - 1}"
                )
        possible_V = ~np.isin(np.arange(vocabulary), config.never)
        weights = config.smoothing.estimate(grams, possible_V)
        model = cls(replace(config, sizes=tuple(map(len, grams[1:]))), vocabulary)
        for table, mine, logs in zip(model.tables, grams, weights, strict=True):
            table.fill(mine.keys_N, *logs)
        return model

    @property
    def tables(self) -> list[Table]:
        return [table for table in self.orders if isinstance(table, Table)]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> NGram:
        """Moved, never rounded: in bfloat16 the words behind a history would no longer sum to one."""

        def move(tensor: Tensor) -> Tensor:
            return fn(tensor.view(torch.int32)).view(tensor.dtype) if tensor.is_floating_point() else fn(tensor)

        return super()._apply(move, recurse)

    def start(self, inputs: None, rows: int, device: torch.device, room: int | None = None) -> State:
        """Of each row the histories behind its last token, of 1 … n − 1 words, as rows of the tables."""
        return State({"histories": [Values(torch.full((rows, self.config.order - 1), NONE, device=device))]})

    def _walk(self, ids_BT: Tensor, state: State, segments_BT: Tensor | None) -> tuple[list[Tensor], Tensor]:
        """Each order for all tokens at once: an n-gram that ends here is a history that ended one token before, and
        the token. Of each order the rows of the n-grams that end at each token; and (B, T + 1, N): the histories of
        1 … n − 1 words before the first token and behind each."""
        cut_BT = ids_BT == self.config.boundary
        if segments_BT is not None:
            cut_BT = cut_BT | (segments_BT != F.pad(segments_BT, (1, 0))[:, :-1])
        (first_BN,) = state.parts()
        found, histories = [ids_BT], list[Tensor]()
        for first_B, table in zip(first_BN.unbind(1), self.tables[1:], strict=True):
            behind_BT = found[-1].masked_fill(cut_BT, NONE) if histories else found[-1]
            histories.append(torch.cat([first_B[:, None], behind_BT], 1))
            found.append(table.find(histories[-1][:, :-1], ids_BT))
        empty_BSN = first_BN[:, None].expand(-1, ids_BT.shape[1] + 1, -1)
        return found, torch.stack(histories, -1) if histories else empty_BSN

    def _state(self, state: State, histories_BSN: Tensor, read_B: Tensor | int) -> State:
        """Behind so many tokens of the walk; behind none it is as it was."""
        rows_B = torch.arange(len(histories_BSN), device=histories_BSN.device)
        return state.renew([histories_BSN[rows_B, read_B]])

    def embed(
        self, ids_RT: Tensor, state: State, segments_RT: Tensor | None = None, lengths_R: Tensor | None = None
    ) -> Embedded:
        """Tables take the ids as they are: width 1."""
        return Embedded(ids_RT[..., None], lengths_R, segments_RT)

    def hidden(self, embedded: Embedded, state: State) -> tuple[Tensor, State]:
        """The histories behind each token: all that the next one depends on."""
        ids_RT, lengths_R = embedded.x_RTD.squeeze(-1), embedded.lengths_R
        _, histories_RSN = self._walk(ids_RT, state, embedded.segments_RT)
        read_R = ids_RT.shape[1] if lengths_R is None else lengths_R
        return histories_RSN[:, 1:], self._state(state, histories_RSN, read_R)

    def head(self, hidden_BTD: Tensor, state: State | None = None) -> Tensor:
        """log p of every word behind these histories: the lower order's, weighed, and what is known written over it."""
        histories_RN = hidden_BTD.flatten(0, -2)
        below, *longer = self.tables
        logp_RV = below.logp.double().repeat(len(histories_RN), 1)
        for table, histories_R in zip(longer, histories_RN.unbind(-1), strict=True):
            logp_RV += below.weight_of(histories_R)[:, None]
            owner_E, rows_E = table.behind(histories_R)
            logp_RV[owner_E, table.keys[rows_E] % self.vocabulary] = table.logp[rows_E].double()
            below = table
        return logp_RV.view(*hidden_BTD.shape[:-1], self.vocabulary)

    def scored(
        self, ids_BT: Tensor, state: State | None = None, segments_BT: Tensor | None = None
    ) -> tuple[Tensor, State]:  # fmt: skip
        """Only the given tokens are looked up."""
        state = state or self.start(None, len(ids_BT), ids_BT.device)
        found, histories_BSN = self._walk(ids_BT, state, segments_BT)
        below, *longer = self.tables
        logp_BT = below.logp[ids_BT].double()
        for table, before_BT, found_BT in zip(longer, histories_BSN[:, :-1].unbind(-1), found[1:], strict=True):
            known_BT = table.logp[found_BT.clamp(min=0)].double()
            logp_BT = known_BT.where(found_BT != NONE, logp_BT + below.weight_of(before_BT))
            below = table
        return F.pad(logp_BT[:, 1:], (1, 0)), self._state(state, histories_BSN, ids_BT.shape[1] - 1)

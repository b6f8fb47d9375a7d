"""Second order with skips, and the mask that selects its votes: how counting becomes attention (deck D).

    votes(w) = Σ_s M[c, e_s] · p(w | e_s … c)

c is the most recent word, e_s are the words before it, however far. A pair (e, c) votes for the words that came behind
c when e stood anywhere before it. Most pairs know nothing: the mask M[c, ·] of the most recent word crosses them out.

As matrices: the masks of all words stacked are the keys, the one-hot of c is the query that pulls its mask out, the
one-hots of e_s are the values, and what comes out is the context that the pairs of c are asked with.

T length of the text, S words before the most recent, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.errors import refuse
from headway.models.counts import Ints

HIDDEN = -1e4  # a score that softmax makes exactly 0 of, and that may be multiplied by 0


def _skips(ids_T: Tensor, boundary: int, reach: int) -> tuple[Tensor, Tensor]:
    """Places whose next word is known, and for each the words 1 … `reach` before it, −1 where its text has begun."""
    places = torch.arange(len(ids_T) - 1)
    begun_T = torch.where(ids_T == boundary, torch.arange(len(ids_T)), -1).cummax(0).values
    # Behind a boundary there is no most recent word, and the first word has none before it.
    places = places[places > begun_T[places] + 1]
    before_TS = places[:, None] - torch.arange(1, reach + 1)
    return places, ids_T[before_TS.clamp(min=0)].where(before_TS > begun_T[places][:, None], -1)


@dataclass(frozen=True, eq=False)
class SkipPairs:
    """shares_VVV[c, e, w] = p(w | e … c) of every pair that stands in a text, 0 of all others; for the small
    vocabularies of worked examples."""

    shares_VVV: Tensor
    boundary: int
    reach: int

    @classmethod
    def count(cls, ids: Ints | Sequence[int], vocabulary: int, boundary: int, reach: int = 64) -> SkipPairs:
        """`reach`: how many words before the most recent one are looked at."""
        ids_T = torch.as_tensor(ids, dtype=torch.long)
        places, before_TS = _skips(ids_T, boundary, reach)
        there = (before_TS >= 0).nonzero(as_tuple=True)
        refuse(not len(there[0]), "no text has three words in a row: there is no pair to count")
        at = places[there[0]]
        counts_VVV = torch.zeros(vocabulary, vocabulary, vocabulary, dtype=torch.float64)
        one = torch.ones((), dtype=torch.float64)
        counts_VVV.index_put_((ids_T[at], before_TS[there], ids_T[at + 1]), one, accumulate=True)
        return cls(counts_VVV / counts_VVV.sum(2, keepdim=True).clamp(min=1), boundary, reach)

    @property
    def seen_VV(self) -> Tensor:
        """Which pairs (c, e) stand in the text."""
        return self.shares_VVV.any(2)

    def transitions(self, current: int) -> Tensor:
        """The votes of every pair with this most recent word: a row for each earlier one, a column for each next."""
        return self.shares_VVV[current]

    def votes(self, ids: Sequence[int], mask_VV: Tensor | None = None) -> Tensor:
        """What the words of a beginning vote for, each pair with the most recent one; a word that stands there twice
        votes twice."""
        *earlier, current = ids
        earlier_S = torch.tensor(earlier, dtype=torch.long)
        votes_SV = self.transitions(current)[earlier_S]
        if mask_VV is not None:
            votes_SV = votes_SV * mask_VV[current, earlier_S][:, None]
        return votes_SV.sum(0)


def learn_scores(pairs: SkipPairs, ids: Ints | Sequence[int], steps: int = 200, rate: float = 0.1) -> Tensor:
    """A score A[c, e] of every pair, by gradient, so that the pairs that predict the next word get the largest scores:

        minimise −Σ_t log Σ_s softmax_s(A[x_t, e_s]) p(x_{t+1} | e_s … x_t)

    A mask that chooses hard has no gradient; this soft one does, and it is attention: softmax of scores that the most
    recent word gives to those before it. Where no pair knows more than another, the scores stay even.
    """
    ids_T = torch.as_tensor(ids, dtype=torch.long)
    places, before_TS = _skips(ids_T, pairs.boundary, pairs.reach)
    pair_TS = ids_T[places][:, None].expand_as(before_TS), before_TS.clamp(min=0)
    hidden_TS = (before_TS < 0) | ~pairs.seen_VV[pair_TS]
    right_TS = pairs.shares_VVV[*pair_TS, ids_T[places + 1][:, None]].masked_fill(hidden_TS, 0.0)
    scores_VV = torch.zeros_like(pairs.shares_VVV[0], requires_grad=True)
    adam = torch.optim.Adam([scores_VV], lr=rate)
    for _ in range(steps):
        weights_TS = scores_VV[pair_TS].masked_fill(hidden_TS, HIDDEN).softmax(-1)
        loss = -(weights_TS * right_TS).sum(-1).log().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    return scores_VV.detach()


def mask_of(pairs: SkipPairs, scores_VV: Tensor, share: float = 0.5) -> Tensor:
    """The masks of all words stacked: row c has 1 for each e whose weight is at least `share` of the greatest."""
    scores_VV = scores_VV.masked_fill(~pairs.seen_VV, HIDDEN)
    weights_VV = (scores_VV - scores_VV.amax(1, keepdim=True)).exp() * pairs.seen_VV
    return (weights_VV >= share).double()


def as_attention(ids: Sequence[int], mask_VV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A beginning and the masks as query, keys and values, as `headway.nn.attention.attend` takes them, `dot` as the
    score: one batch, one head, one query.

    query: the one-hot of the most recent word; times the keys it pulls out that word's mask. keys: of each earlier word
    its column of the stacked masks, as scores: 0 where it counts, far below where it is crossed out. values: the
    one-hots of the earlier words. softmax then shares the weight evenly among those that count: the context.
    """
    *earlier, current = ids
    one_hot_SV = F.one_hot(torch.tensor(earlier, dtype=torch.long), len(mask_VV)).double()
    scores_VV = torch.where(mask_VV > 0, 0.0, HIDDEN).double()
    query_TV = F.one_hot(torch.tensor([current]), len(mask_VV)).double()
    return query_TV[None, None], (one_hot_SV @ scores_VV.mT)[None, None], one_hot_SV[None, None]

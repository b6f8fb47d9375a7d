"""n-grams of ids as numbers: what a bag of them counts.

B batch, T length, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

SPREAD = 116_049_371  # fastText's factor: neighbouring ids fall into distant buckets


def gram_keys(ids_BT: Tensor, order: int, vocabulary: int) -> list[Tensor]:
    """For n = 1 … order one number of every n neighbours, (B, T − n + 1) each. No two n-grams have the same:

    k_1 = w_t,   k_n = (k_{n−1} + 1)·V + w_{t+n−1}
    """
    found = [ids_BT]
    for n in range(2, order + 1):
        later_BT = ids_BT[:, n - 1 :]
        found.append((found[-1][:, : later_BT.shape[1]] + 1) * vocabulary + later_BT)
    return found


def own_grams(ids_BT: Tensor, lengths_B: Tensor | None, order: int) -> list[Tensor]:
    """For n = 1 … order whether the n-gram lies inside its row, its padding aside: as `gram_keys`."""
    places_T = torch.arange(ids_BT.shape[1], device=ids_BT.device)
    ends_B1 = torch.full_like(ids_BT[:, :1], ids_BT.shape[1]) if lengths_B is None else lengths_B[:, None]
    return [places_T[n - 1 :] < ends_B1 for n in range(1, order + 1)]


def bigram_buckets(ids_BT: Tensor, buckets: int) -> Tensor:
    """The bucket of each two neighbours, (B, T − 1) (Joulin et al. 2017, 2.2)."""
    return (ids_BT[:, :-1] * SPREAD + ids_BT[:, 1:]) % buckets

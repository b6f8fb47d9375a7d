"""The tree of a beam search: every hypothesis that was held, the one that was chosen, and those that were not.

K beams, G steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from headway.generate.history import Branches

Tree = list[dict[str, Any]]


def tree(
    branches: Branches, end: int, length_penalty: float, best: Sequence[int], spelled: Callable[[list[int]], list[str]]
) -> Tree:  # fmt: skip
    """A node for every beam at every step, the root first, each behind its parent: `parent` (its place in the list, −1
    for the root), `step`, `id`, `token`, `logp` (of this token), `score` (of all so far), `finished` (its token is the
    end), `kept` (the search went on from it, or it is finished), `chosen` (it is on the way to `best`, the ids of the
    hypothesis that won)."""
    root, nodes, sums = 0, [_node(-1, 0, -1, 0.0, 0.0)], [0.0]
    above = {0: root}  # of each beam its place in the list
    for step, (tokens_K, parents_K, sums_K, ended_K, ended_parents_K) in enumerate(branches, 1):
        below: dict[int, int] = {}
        held = zip(tokens_K, parents_K, sums_K, strict=True)
        ended = ((end, *one) for one in zip(ended_parents_K, ended_K, strict=True))
        for beam, (token, parent, total) in enumerate([*held, *ended]):
            if total > -math.inf and parent in above:
                finished = beam >= len(tokens_K)
                if not finished:
                    below[beam] = len(nodes)
                logp, score = total - sums[above[parent]], total / step**length_penalty
                nodes.append(_node(above[parent], step, token, logp, score, finished))
                sums.append(total)
        above = below
    for node, token in zip(nodes[1:], spelled([node["id"] for node in nodes[1:]]), strict=True):
        node["token"], nodes[node["parent"]]["kept"] = token, True
    path = [root]
    for token in [*best, end]:
        among = (at for at, node in enumerate(nodes) if node["parent"] == path[-1] and node["id"] == token)
        path.append(next(among, -1))
        if path[-1] < 0:
            return nodes
    for at in path:
        nodes[at]["chosen"] = True
    return nodes


def _node(parent: int, step: int, id: int, logp: float, score: float, finished: bool = False) -> dict[str, Any]:
    scores = {"logp": round(logp, 5), "score": round(score, 5)}
    flags = {"kept": finished, "finished": finished, "chosen": False}
    return {"parent": parent, "step": step, "id": id, "token": ""} | scores | flags

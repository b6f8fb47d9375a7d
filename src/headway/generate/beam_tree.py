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
    nodes: Tree = [_node(-1, 0, -1, 0.0, 0.0, 0.0)]
    above: dict[int, int] = {0: 0}  # of each beam its place in the list
    for step, (tokens_K, parents_K, sums_K, ended_K, ended_parents_K) in enumerate(branches, 1):
        below: dict[int, int] = {}
        for beam, (token, parent, total) in enumerate(zip(tokens_K, parents_K, sums_K, strict=True)):
            if total > -math.inf and parent in above:
                below[beam] = len(nodes)
                nodes.append(_child(nodes, above[parent], step, token, total, length_penalty))
        for parent, total in zip(ended_parents_K, ended_K, strict=True):
            if total > -math.inf and parent in above:
                nodes.append(_child(nodes, above[parent], step, end, total, length_penalty))
                nodes[-1]["finished"] = True
        above = below
    _mark(nodes, best, end)
    for node, token in zip(nodes[1:], spelled([node["id"] for node in nodes[1:]]), strict=True):
        node["token"] = token
    for node in nodes:
        node["logp"] = round(node["logp"], 5)
        node["score"] = round(node["score"], 5)
        del node["sum"]
    return nodes


def _node(parent: int, step: int, id: int, logp: float, total: float, score: float) -> dict[str, Any]:
    flags = {"kept": False, "finished": False, "chosen": False}
    return {"parent": parent, "step": step, "id": id, "token": "", "logp": logp, "score": score, "sum": total} | flags


def _child(nodes: Tree, parent: int, step: int, token: int, total: float, alpha: float) -> dict[str, Any]:
    return _node(parent, step, token, total - nodes[parent]["sum"], total, total / step**alpha)


def _mark(nodes: Tree, best: Sequence[int], end: int) -> None:
    for node in nodes:
        node["kept"] = node["finished"]
    for node in nodes[1:]:
        nodes[node["parent"]]["kept"] = True
    at, path = 0, [0]
    for token in [*best, end]:
        among = [place for place in range(at + 1, len(nodes)) if nodes[place]["parent"] == at]
        at = next((place for place in among if nodes[place]["id"] == token), -1)
        if at < 0:
            return
        path.append(at)
    for place in path:
        nodes[place]["chosen"] = True

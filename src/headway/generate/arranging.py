"""Which slots rows have, where neighbours are read together (`headway.nn.ragged`): groups of slots whose rows are about
equally long. Every row grows by one token a step, so an order by length stays one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

GROUP = 16  # slots of about one length
STEPS = 16  # in which a move must have saved what it costs

Lengths = Sequence[int | None]  # of the row in each slot, None where there is none


class Arrangement(NamedTuple):
    """moves: from a slot to one that is free by then, in this order. slots: of the rows that come."""

    moves: list[tuple[int, int]]
    slots: list[int]


def plain(lengths: Lengths, coming: Sequence[int], slots: Sequence[int]) -> Arrangement:
    """Only rows that must leave their slot are moved."""
    own = set(slots)
    free = [slot for slot in slots if slot >= len(lengths) or lengths[slot] is None]
    out = [slot for slot, length in enumerate(lengths) if length is not None and slot not in own]
    return Arrangement(list(zip(out, free, strict=False)), free[len(out) :][: len(coming)])


def arranged(lengths: Lengths, coming: Sequence[int], slots: Sequence[int], call: int) -> Arrangement:
    """`slots`: those that are to be taken, in order, as many as there are rows. `call`: keys that are read in the time
    that a call takes. Rows are put in order where that saves more reading than the moves cost."""
    simple = plain(lengths, coming, slots)
    sorted_ = _sorted(lengths, coming, slots)
    saved = _read(_after(simple, lengths, coming), call) - _read(_after(sorted_, lengths, coming), call)
    more = _moved(sorted_, lengths) - _moved(simple, lengths)
    return sorted_ if saved * STEPS > more else simple


def _sorted(lengths: Lengths, coming: Sequence[int], slots: Sequence[int]) -> Arrangement:
    """A row stays where it is if that is in its group."""
    rows = [(length, slot) for slot, length in enumerate(lengths) if length is not None]
    rows += [(length, -1 - at) for at, length in enumerate(coming)]
    rows.sort()
    wanted: dict[int, int] = {}  # of each row the slot that it should have
    for start in range(0, len(rows), GROUP):
        group = slots[start : start + GROUP]
        inside = {slot for _, slot in rows[start : start + GROUP]}.intersection(group)
        free = iter([slot for slot in group if slot not in inside])
        wanted |= {slot: next(free) for _, slot in rows[start : start + GROUP] if slot not in inside}
    moves = _in_turn({old: new for old, new in wanted.items() if old >= 0}, lengths)
    return Arrangement(moves, [wanted[-1 - at] for at in range(len(coming))])


def _in_turn(wanted: dict[int, int], lengths: Lengths) -> list[tuple[int, int]]:
    """Moves whose target is free when they are made. Rows that would change places among themselves stay."""
    taken = {slot for slot, length in enumerate(lengths) if length is not None}
    into = {new: old for old, new in wanted.items()}
    moves = list[tuple[int, int]]()
    for first in [new for new in into if new not in taken]:
        slot = first
        while slot in into:
            moves.append((into[slot], slot))
            slot = into.pop(slot)
    return moves


def _after(arrangement: Arrangement, lengths: Lengths, coming: Sequence[int]) -> list[int]:
    """The lengths of the rows in their new order."""
    at = {slot: length for slot, length in enumerate(lengths) if length is not None}
    for old, new in arrangement.moves:
        at[new] = at.pop(old)
    at |= dict(zip(arrangement.slots, coming, strict=True))
    return [at[slot] for slot in sorted(at)]


def _moved(arrangement: Arrangement, lengths: Lengths) -> int:
    """Keys that are read and written."""
    return 2 * sum(lengths[old] or 0 for old, _ in arrangement.moves)


def _read(lengths: Sequence[int], call: int) -> int:
    """Keys that a step reads, by groups or all rows together."""
    groups = [lengths[start : start + GROUP] for start in range(0, len(lengths), GROUP)]
    by_groups = sum(len(group) * max(group) + call for group in groups)
    return min(by_groups, len(lengths) * max(lengths, default=0) + call)

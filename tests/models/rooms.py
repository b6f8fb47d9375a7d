"""States of several rows in one room, as the engine keeps them."""

import torch


def joined(states, capacity, source_length=0):
    """Their rows behind each other in a room that has a free slot more."""
    counts = [state.rows // state.group for state in states]
    room, at = states[0].steady(sum(counts) + 1, states[0].group, capacity, source_length), 0
    for state, count in zip(states, counts, strict=True):
        room.insert(state, torch.arange(at, at + count))
        at += count
    lengths = [length for state in states for length in (state.clock.lengths_R.tolist() if state.clock else [])]
    return room.first(at, lengths[:: states[0].group], source_length or None)

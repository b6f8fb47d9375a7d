"""What requests give is read before they are stepped: at once, or some tokens at a time between the steps of others.

R rows, T length.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from headway.device import sent
from headway.generate.pool import on_device, padded
from headway.generate.prefixes import NOTHING, Prefixes
from headway.generate.request import Keyed, Kind, Request
from headway.models.protocols import Steps
from headway.nn.cache import FixedCache
from headway.nn.state import State


class PromptMemoryError(MemoryError):
    """There was not enough memory to read some requests; all others are as they were."""

    def __init__(self, keys: Sequence[int]) -> None:
        super().__init__(f"{len(keys)} requests could not be read")
        self.keys = list(keys)


class Reading:
    """Requests whose given tokens, but for the last ones, are read together. `slots` and `length`: what their pool must
    have. The state is made when the first tokens are read."""

    def __init__(self, kind: Kind, requests: list[Keyed], slots: int, length: int) -> None:
        self.kind, self.requests, self.slots, self.length = kind, requests, slots, length
        self.texts = [request.given[:-1] for _, request in requests]
        self.state: State | None = None
        self.read = [0] * len(requests)  # tokens of each, those that were shared counted

    def __len__(self) -> int:
        """Slots that the requests will take."""
        return sum(request.slots for _, request in self.requests)

    @property
    def keys(self) -> list[int]:
        return [key for key, _ in self.requests]

    @property
    def rows(self) -> set[tuple[int, int]]:
        """Key and sample of each row."""
        return {(key, sample) for key, request in self.requests for sample in range(request.samples)}

    @property
    def done(self) -> bool:
        whole = all(read == len(text) for read, text in zip(self.read, self.texts, strict=True))
        return self.kind.sliding or (self.state is not None and whole)

    @property
    def left(self) -> int:
        """Tokens that are still to be read, padding counted; before the first are read, those that are shared too."""
        longest = max(len(text) - read for text, read in zip(self.texts, self.read, strict=True))
        return 0 if self.done else longest * len(self.texts)

    def read_some(self, model: Steps, device: torch.device, prefixes: Prefixes | None, most: int) -> int:
        """Read at most so many tokens, padding counted, and at least one of each; 0: all of them, as of states that are
        no mere caches. How many were read."""
        if self.state is None:
            self.state = self._start(model, device, prefixes)
        most = (
            most and max(1, most // len(self.texts)) if all(isinstance(slot, FixedCache) for slot in self.state) else 0
        )
        parts = [text[read : read + most] if most else text[read:]
                 for text, read in zip(self.texts, self.read, strict=True)]  # fmt: skip
        lengths = list(map(len, parts))
        if longest := max(lengths):
            lengths_R = None if min(lengths) == longest else on_device(lengths, device)
            _, self.state = model.read(padded(parts, device), self.state, lengths_R=lengths_R)
            self.read = [read + more for read, more in zip(self.read, lengths, strict=True)]
        if self.done:
            self._finish(prefixes)
        return longest * len(lengths)

    def _start(self, model: Steps, device: torch.device, prefixes: Prefixes | None) -> State:
        """A state that has read what earlier prompts share with these."""
        requests: list[Request] = [request for _, request in self.requests]
        inputs = None
        if requests[0].inputs is not None:
            given = [request.inputs for request in requests if request.inputs is not None]
            inputs, prefixes = type(given[0]).join(given).map(lambda tensor: sent(tensor, device)), None
        shared = [prefixes.find(text) if prefixes else NOTHING for text in self.texts]
        longest = max(map(len, self.texts))
        left = max(len(text) - one.tokens for text, one in zip(self.texts, shared, strict=True))
        # All rows are read as far as the one that needs most: none may come out behind the longest.
        self.read = [min(one.tokens, longest - left) for one in shared]
        state: State = model.start(inputs, len(requests), device, room=max(1, longest))
        if any(self.read):
            for row, (one, read) in enumerate(zip(shared, self.read, strict=True)):
                if read:
                    state.insert(one.cut(read), slice(row, row + 1))
            state.time.longest, state.time.even = max(self.read), min(self.read) == max(self.read)
        if prefixes:
            for text, read in zip(self.texts, self.read, strict=True):
                prefixes.count(text, read)
        return state

    def _finish(self, prefixes: Prefixes | None) -> None:
        """What stands behind the longest row is padding of shorter ones."""
        state, lengths = self.state, list(map(len, self.texts))
        if state is None or state.clock is None:
            return
        if any(lengths):
            state.clock.longest, state.clock.even = max(lengths), min(lengths) == max(lengths)
        if prefixes is not None and self.requests[0][1].inputs is None:
            for row, text in enumerate(self.texts):
                prefixes.keep(text, state, row)

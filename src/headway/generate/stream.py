"""The step engine for streams: prompts are admitted, stepped together and leave as they finish.

It sees a model only through `start`, `hidden` and `head`. A row's text depends on its prompt, settings, seed and
sample number, never on its company.

B prompts, R rows, T prompt length.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from headway.device import sent
from headway.errors import InputError
from headway.generate import noise
from headway.generate.sampling import Sampling
from headway.generate.stream_step import Group, Record, Said, Sheet
from headway.generate.stream_stepper import StreamStepper, stream_stepper_for
from headway.models.protocols import Steps
from headway.text.tokenizer import END

UNBOUNDED = 1 << 62  # the context of a model that reads any number of tokens

# A tuple: the empty one is a single object, where a list for every token would have Python's collector look through all
# that there is (0.1 s and more with a large library loaded).
Top = tuple[tuple[int, float], ...]
# A stop; `max_new` tokens; no position is left in the context; or the chain left no token (or logits are NaN).
Ended = Literal["stop", "length", "context", "nothing"]


@dataclass(frozen=True)
class Prompt:
    """What is to be continued, and how.

    ids: at least one, since a model only continues: an empty text is the caller's to begin (see `Generator`).
    stops: ids that end a row. samples: rows of this prompt; they share its reading. top: how many of the likeliest
    tokens are told beside each chosen one. window: a text longer than the context goes on from its last `context`
    tokens, read anew at each step; without it such a prompt is refused and a row ends at the context's end.
    """

    ids: Sequence[int]
    sampling: Sampling = field(default_factory=Sampling)
    max_new: int = 128
    stops: frozenset[int] = frozenset({END})
    samples: int = 1
    seed: int = 0
    top: int = 0
    window: bool = False

    def __post_init__(self) -> None:
        for name, least in (("max_new", 1), ("samples", 1), ("seed", 0), ("top", 0)):
            value = operator.index(getattr(self, name))
            if not least <= value < 1 << 63:
                raise InputError(f"{name} must be {least} or more, not {value}")

    def check(self, name: str, vocabulary: int, context: int) -> None:
        if not len(self.ids):
            raise InputError(f"{name} is empty: give at least one id to go on from, such as END ({END})")
        for i in {*self.ids, *self.stops, *self.sampling.ids()}:
            if not 0 <= i < vocabulary:
                raise InputError(f"{name} names the id {i}, this model's vocabulary has {vocabulary} entries")
        if len(self.ids) > context and not self.window:
            raise InputError(
                f"{name} has {len(self.ids)} tokens, this model reads at most {context}: shorten it, or "
                f"ask for window=True (--window) to go on from its last {context}"
            )

    def need(self, context: int) -> int:
        """Positions of a cache; none where the prompt does not fit, since it is then read anew at each step."""
        return min(len(self.ids) + self.max_new - 1, context) if len(self.ids) <= context else 0


@dataclass(frozen=True)
class Written:
    """One continuation. `ids` are without the stop; `logps` and `top` have its entry last where one ended it.

    Both are under the model's own distribution, before the chain. `top`: the likeliest tokens, best first.
    """

    ids: list[int]
    logps: list[float]
    top: list[Top]
    ended: Ended

    @property
    def mean(self) -> float:
        """Mean log-probability of a token; −∞ where there is none."""
        return sum(self.logps) / len(self.logps) if self.logps else -float("inf")


class Token(NamedTuple):
    """What a step gave a row. `id` is None where it ended without one: at a stop, or with nothing."""

    key: int
    sample: int
    id: int | None
    written: Written | None  # all of it, with the last


@dataclass
class Row:
    """The host's side of a row."""

    key: int
    sample: int
    prompt: Prompt
    ids: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    top: list[Top] = field(default_factory=list)
    ended: Ended | None = None
    ahead: int = 0  # tokens that were launched and not yet told

    @property
    def length(self) -> int:
        return len(self.prompt.ids) + len(self.ids)

    def take(self, token: int, logp: float, top: Top, context: int) -> Token:
        prompt = self.prompt
        if token < 0:
            self.ended = "nothing"
            return Token(self.key, self.sample, None, self.written())
        self.logps.append(logp)
        self.top.append(top[: prompt.top])
        if token in prompt.stops:
            self.ended = "stop"
            return Token(self.key, self.sample, None, self.written())
        self.ids.append(token)
        if len(self.ids) == prompt.max_new:
            self.ended = "length"
        elif self.length > context and not prompt.window:
            self.ended = "context"
        return Token(self.key, self.sample, token, self.written() if self.ended else None)

    def written(self) -> Written:
        assert self.ended is not None
        return Written(self.ids, self.logps, self.top, self.ended)


class Flight:
    """Steps of some rows whose record is on its way to the host."""

    def __init__(self, rows: list[Row], record: Record) -> None:
        self.rows, self.record, self.event = rows, record, None
        if record.packed.is_cuda:
            self.record, self.event = Record(record.packed.to("cpu", non_blocking=True)), torch.cuda.Event()
            self.event.record(torch.cuda.current_stream(record.packed.device))

    def read(self) -> list[list[Said]]:
        """Waits for these steps, not for those launched after them."""
        if self.event is not None:
            self.event.synchronize()
        return self.record.read()


class Lane:
    """Rows that are stepped together. One that has ended goes along until it is worth a move.

    Steps are launched some at a time and read later (see `StreamStepper`): `flights` are under way, `landed` is what
    was read and not yet told.
    """

    def __init__(self, stepper: StreamStepper, context: int, device: torch.device) -> None:
        self.stepper, self.context, self.device = stepper, context, device
        self.rows: list[Row] = []
        self.sheet: Sheet | None = None
        self.groups: list[Group] = []
        self.flights: deque[Flight] = deque()
        self.landed: deque[list[tuple[Row, Said]]] = deque()

    def join(self, rows: list[Row], sheet: Sheet) -> None:
        if self.sheet is not None:
            self.settle(move=self.sheet.captured)
        self.sheet = self.sheet.insert(sheet) if self.sheet is not None else sheet
        self.rows += rows
        self._regroup()

    def settle(self, leave: Iterable[int] = (), move: bool = False) -> None:
        """Let those rows go that have ended, where that is worth a `move`, and those that go elsewhere."""
        elsewhere = set(leave)
        stay = [at for at, row in enumerate(self.rows) if not row.ended and at not in elsewhere]
        if self.sheet is None or (stay and not (move or elsewhere or self.stepper.leave(len(stay), self.sheet))):
            return
        self.rows = [self.rows[at] for at in stay]
        if stay:
            self.sheet = self.sheet.select(on_device(stay, self.device))
            self._regroup()
        else:
            self.sheet = None
            self.flights.clear()

    def _regroup(self) -> None:
        by: dict[Sampling, list[int]] = {}
        for at, row in enumerate(self.rows):
            by.setdefault(row.prompt.sampling, []).append(at)
        alone = len(by) == 1
        self.groups = [
            (sampling.chain(), None if alone else on_device(rows, self.device)) for sampling, rows in by.items()
        ]

    def due(self) -> int:
        """Steps that may be launched now: until no open row has tokens left, or one leaves for its window."""
        if self.sheet is None:
            return 0
        going_on = [row for row in self.rows if not row.ended]
        left = max((row.prompt.max_new - len(row.ids) - row.ahead for row in going_on), default=0)
        inside = [self.context + 1 - row.length - row.ahead for row in going_on if row.prompt.window]
        bounds = [self.stepper.pace(self.sheet), left, *(inside if self.sheet.state is not None else ())]
        return max(0, min(bounds))

    def launch(self) -> None:
        count = self.due()
        if not count or self.sheet is None:
            return
        self.sheet, record = self.stepper.steps(
            self.sheet, self.groups, count, context=self.context,
            longest=max(row.length + row.ahead for row in self.rows), top=max(row.prompt.top for row in self.rows),
        )  # fmt: skip
        for row in self.rows:
            row.ahead += count
        self.flights.append(Flight(list(self.rows), record))

    def next(self) -> list[tuple[Row, Said]]:
        """What the next step said of its rows. Those that had ended before are left out."""
        while step := self._landed():
            for row, _ in step:
                row.ahead -= 1
            if news := [(row, said) for row, said in step if not row.ended]:
                return news
        return []

    def _landed(self) -> list[tuple[Row, Said]]:
        if not self.landed:
            if not self.flights:
                self.launch()
            if self.flights and self.sheet is not None and self.stepper.ahead(self.sheet):
                self.launch()
            if self.flights:
                flight = self.flights.popleft()
                self.landed.extend(list(zip(flight.rows, said, strict=False)) for said in flight.read())
        return self.landed.popleft() if self.landed else []


def on_device(numbers: Sequence[int], device: torch.device) -> Tensor:
    return sent(torch.tensor(numbers, dtype=torch.long), device)


class StreamEngine:
    """Continues any number of prompts, admitted at any time."""

    def __init__(
        self, model: Steps, *, context: int, device: torch.device, room: int = 0,
        stepper: StreamStepper | None = None,
    ) -> None:  # fmt: skip
        """`context` is the most tokens that the model can read; `room` the least size of the caches, for prompts
        that come later. What a `stepper` has captured serves every engine that it is given to."""
        self.model, self.context, self.device, self.least, self.room = model, context, device, room, 0
        self.stepper = stepper or stream_stepper_for(model, device)
        self.cached, self.sliding = (Lane(self.stepper, context, device) for _ in range(2))

    def __len__(self) -> int:
        """Rows that are still open."""
        return sum(not row.ended for lane in self.lanes for row in lane.rows)

    @property
    def lanes(self) -> tuple[Lane, Lane]:
        return self.cached, self.sliding

    def fits(self, prompt: Prompt) -> bool:
        """Whether the running caches have room for it."""
        return not any(not row.ended for row in self.cached.rows) or prompt.need(self.context) <= self.room

    @torch.inference_mode()
    def admit(self, prompts: Sequence[tuple[int, Prompt]]) -> None:
        """Take prompts in, each under a key of the caller's own. Into a running engine only those that fit."""
        for key, prompt in prompts:
            prompt.check(f"prompt {key}", self.model.vocabulary, self.context)
        self._settle()
        if not all(self.fits(prompt) for _, prompt in prompts):
            raise ValueError("a prompt does not fit into the running batch: ask `fits` first, or let the batch end")
        if not self.cached.rows:
            need = max([self.least, *(prompt.need(self.context) for _, prompt in prompts)])
            self.room = self.stepper.room(need, self.context)
        short = [(key, prompt) for key, prompt in prompts if prompt.need(self.context)]
        long = [(key, prompt) for key, prompt in prompts if not prompt.need(self.context)]
        for lane, some in ((self.cached, short), (self.sliding, long)):
            if some:
                rows = [Row(key, sample, prompt) for key, prompt in some for sample in range(prompt.samples)]
                state = self._read([prompt for _, prompt in some]) if lane is self.cached else None
                lane.join(rows, self._sheet(rows, state))

    def _read(self, prompts: Sequence[Prompt]) -> Any:
        """The prompts but for their last tokens, padded on the right and read together, each once; then a copy for
        each sample."""
        lengths = np.array([len(prompt.ids) - 1 for prompt in prompts])
        state: Any = self.model.start(None, len(prompts), self.device, room=self.room)
        if lengths.max():
            ids_BT = self._padded([prompt.ids[:-1] for prompt in prompts], int(lengths.max()))
            uneven = (lengths != lengths.max()).any()
            lengths_B = on_device(lengths.tolist(), self.device) if uneven else None
            _, state = self.model.read(ids_BT, state, lengths_R=lengths_B)
        if any(prompt.samples > 1 for prompt in prompts):
            copies = np.repeat(np.arange(len(prompts)), [prompt.samples for prompt in prompts])
            state.keep(on_device(copies.tolist(), self.device))
        return state

    def _sheet(self, rows: list[Row], state: Any) -> Sheet:
        width = max(row.length + row.prompt.max_new for row in rows)
        lengths_R = on_device([row.length for row in rows], self.device)
        seeds_R = on_device([row.prompt.seed for row in rows], self.device)
        streams_R = noise.streams(seeds_R, on_device([row.sample for row in rows], self.device))
        ids_RL = self._padded([row.prompt.ids for row in rows], width)
        newest_R = on_device([row.prompt.ids[-1] for row in rows], self.device)
        return Sheet(state, ids_RL, lengths_R, lengths_R, streams_R, newest_R)

    def _padded(self, texts: Sequence[Sequence[int]], width: int) -> Tensor:
        ids = np.zeros((len(texts), width), dtype=np.int64)
        for row, text in zip(ids, texts, strict=True):
            row[: len(text)] = text
        return torch.from_numpy(ids).to(self.device)

    @torch.inference_mode()
    def step(self) -> list[Token]:
        """One token for every row; what has ended leaves with all that it wrote."""
        self._settle()
        said = [(row, news) for lane in self.lanes for row, news in lane.next()]
        return [row.take(*news, self.context) for row, news in said]

    def _settle(self) -> None:
        """Ended rows leave; those that have outgrown the context go on in its sliding window."""
        outgrown = [
            at for at, row in enumerate(self.cached.rows) if not (row.ended or row.ahead) and row.length > self.context
        ]
        if outgrown and self.cached.sheet is not None:
            rows = [self.cached.rows[at] for at in outgrown]
            self.sliding.join(rows, self.cached.sheet.without_state(on_device(outgrown, self.device)))
        self.cached.settle(outgrown)
        self.sliding.settle()

    def evict(self, rows: Iterable[tuple[int, int]]) -> list[Written]:
        """End these rows (key, sample) now, as stopped: for who sees more than ids, or whose reader has left."""
        wanted = set(rows)
        found = []
        for row in (*self.cached.rows, *self.sliding.rows):
            if (row.key, row.sample) in wanted and not row.ended:
                row.ended = "stop"
                found.append(row.written())
        return found

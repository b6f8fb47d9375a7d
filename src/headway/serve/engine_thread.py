"""One thread for each model: it steps the engine while requests come and go, and does other work between the steps.

A request enters as soon as there is a slot for each of its samples, and leaves with its last token: those that are
written together need not begin or end together.
"""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import torch

from headway.errors import InputError
from headway.generate.engine import Engine
from headway.generate.prefixes import Prefixes
from headway.generate.prompts import PromptMemoryError
from headway.generate.request import Ended, Request
from headway.generate.spelling import Spelling
from headway.openmp import rest
from headway.serve.worker import Busy

Result = TypeVar("Result")
ROWS = {"cpu": 32, "cuda": 256}  # that are written together
STREAMS = 32  # for each so many a further step's tokens are sent together: to send takes time that the engine wants
LONGEST = {"cpu": 1024, "cuda": 4096}  # tokens of a row that a pool has room for from the start
CHUNK = {"cpu": 1536, "cuda": 8192}  # tokens of prompts that are read before other rows take their next step
SHARED = 1 << 28
NO_MEMORY = (
    "there is not enough memory for this request: shorten the prompt, ask for fewer samples or tokens, or start the "
    "server with fewer --rows"
)


class Part(NamedTuple):
    """What a step gave one row: a token, its log-probability, the likeliest tokens there, and the text that is certain
    now. `ended`: why it was the last; `end`: the token that ended it, in place of `id`."""

    sample: int
    id: int | None
    logp: float
    top: tuple[tuple[int, float], ...]
    text: str
    ended: Ended | None
    end: int | None = None

    @property
    def scored(self) -> int | None:
        """The token that the log-probability is of."""
        return self.end if self.id is None else self.id


Numbered = tuple[int, Part]  # the number of its request, and a part


class Mail:
    """What has come for one caller, who takes all of it at once. An asyncio.Queue takes twice the time for each token.
    For the caller's own loop."""

    def __init__(self) -> None:
        self.loop, self._all = asyncio.get_running_loop(), list[Numbered | BaseException]()
        self._wanted: asyncio.Future[None] | None = None

    def put(self, one: Numbered | BaseException) -> None:
        self._all.append(one)
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)

    async def take(self) -> list[Numbered | BaseException]:
        if not self._all:
            self._wanted = self.loop.create_future()
            await self._wanted
        found, self._all = self._all, []
        return found


@dataclass(eq=False)
class Job:
    """A request in this thread. Its parts, with the number that its caller has given it, or an error, are mailed to the
    caller."""

    request: Request
    stop: tuple[str, ...]
    mail: Mail
    number: int
    key: int
    spellings: list[Spelling] = field(default_factory=list)
    left: int = 0  # samples that are still written
    held: list[Part] = field(default_factory=list)  # what its caller has not been sent yet
    steps: int = 0  # until it is sent something

    def due(self, interval: int) -> list[Part]:
        """What its caller is sent after a step: the first tokens and the last at once, between them those of `interval`
        steps together."""
        self.steps -= 1
        if self.steps > 0 and not any(part.ended for part in self.held):
            return []
        found, self.held, self.steps = self.held, [], interval
        return found


class EngineThread:
    """`model`: what `headway.load` gives. `rows`: how many are written together; `waiting`: requests that may wait for
    a slot, or for other work, before `Busy` is raised. `shared`: bytes for the beginnings of prompts, so that what a
    later prompt begins with alike is not read again. `interval`: steps whose tokens a caller is sent together;
    0: the more callers, the more."""

    def __init__(self, model: Any, rows: int = 0, waiting: int = 1024, shared: int = SHARED, interval: int = 0) -> None:
        self.model, self.waiting, self.interval = model, waiting, interval
        self.rows = rows or ROWS.get(model.device.type, ROWS["cpu"])
        self.jobs: dict[int, Job] = {}  # those that are written
        self.queue: deque[Job] = deque()  # those that wait for a slot
        self.calls, self.prefixes = 0, Prefixes(shared)
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._keys, self._ended = count(), False
        self._engine: Engine | None = None
        rest()  # of the thread that has loaded the model
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    @property
    def written(self) -> int:
        """Rows that are written now."""
        return sum(job.left for job in self.jobs.values())

    # From the event loop.

    async def write(
        self, requests: Sequence[Request], stop: tuple[str, ...] = (), seconds: float = 0.0
    ) -> AsyncGenerator[list[Numbered], None]:
        """The parts of all samples, each with the number of its request: each time all that have come since the last,
        so that a caller who cannot keep up is given more at a time. One who leaves early ends its rows. seconds: until
        a TimeoutError is raised (0: never)."""
        if len(self.queue) >= self.waiting:
            raise Busy
        mail = Mail()
        jobs = [
            Job(request, stop, mail, number, next(self._keys), left=request.samples)
            for number, request in enumerate(requests)
        ]
        left = sum(job.left for job in jobs)
        self._inbox.put(lambda: self.queue.extend(jobs))
        late = mail.loop.call_later(seconds, mail.put, TimeoutError()) if seconds else None
        try:
            while left:
                given = await mail.take()
                if parts := [one for one in given if not isinstance(one, BaseException)]:
                    left -= sum(part.ended is not None for _, part in parts)
                    yield parts
                for error in given:
                    if isinstance(error, BaseException):
                        raise error
        finally:
            if late is not None:
                late.cancel()
            if left:
                self._inbox.put(lambda: self._leave(jobs))

    async def do(self, task: Callable[[], Result]) -> Result:
        """The result of other work with the model, between two steps."""
        if self.calls > self.waiting:
            raise Busy
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Result] = loop.create_future()

        def work() -> None:
            try:
                found, error = task(), None
            except BaseException as failed:
                found, error = None, failed
            loop.call_soon_threadsafe(_settle, done, found, error)

        self.calls += 1
        try:
            self._inbox.put(work)
            return await done
        finally:
            self.calls -= 1

    def close(self) -> None:
        """End when everything that is there has been written."""
        self._inbox.put(self._end)
        self._thread.join()

    # In the thread.

    def _end(self) -> None:
        self._ended = True

    def _run(self) -> None:
        while not self._ended or self.jobs or self.queue:
            if not self.jobs and not self.queue:
                rest()  # the thread of another model may have work
                self._inbox.get()()
            while not self._inbox.empty():
                self._inbox.get()()
            try:
                self._admit()
                if self.jobs:
                    self._step()
            except BaseException as error:  # of one request or of the model: the thread lives
                self._fail(error)

    def _admit(self) -> None:
        """The next ones, in order, as far as there are slots; one that needs more than there are enters alone."""
        some = list[Job]()
        while self.queue and (self.queue[0].left <= self.rows - self.written or not self.jobs):
            job = self.queue.popleft()
            try:
                job.spellings = [Spelling(self.model.writes, job.request.given, job.stop) for _ in range(job.left)]
            except InputError as error:
                _deliver([(job, error)])
                continue
            self.jobs[job.key] = job
            some.append(job)
        if not some:
            return
        try:
            if self._engine is None:
                self._engine = self._new_engine()
            self._engine.admit([(job.key, job.request) for job in some], checked=True)
        except (MemoryError, torch.OutOfMemoryError):  # those that are written stay
            self._leave(some)
            _deliver([(job, MemoryError(NO_MEMORY)) for job in some])

    def _new_engine(self) -> Engine:
        model = self.model
        sizes = {"slots": self.rows, "length": min(model.context, LONGEST.get(model.device.type, LONGEST["cpu"]))}
        own = {
            "stepper": model.stepper,
            "prefixes": self.prefixes if self.prefixes.most else None,
            "chunk": CHUNK.get(model.device.type, CHUNK["cpu"]),
        }
        return Engine(model.model, context=model.context, device=model.device, **own, **sizes)

    def _step(self) -> None:
        assert self._engine is not None
        try:
            tokens: Any = self._engine.step()
        except PromptMemoryError as error:  # those that are written stay
            self.prefixes.clear()
            lost = [job for key in error.keys if (job := self.jobs.pop(key, None))]
            _deliver([(job, MemoryError(NO_MEMORY)) for job in lost])
            return
        given = dict[int, Job]()
        stopped = list[tuple[int, int]]()
        for token in tokens:
            job = self.jobs.get(token.key)
            if job is None:
                continue
            spelling = job.spellings[token.sample]
            ended: Ended | None = None if token.written is None else token.written.ended
            text = "" if token.id is None else spelling.add(token.id)
            if spelling.stopped:
                stopped += [] if ended else [(token.key, token.sample)]
                ended = "stop"
            elif ended:
                text += spelling.end()
            job.held.append(Part(token.sample, token.id, token.logp, token.top, text, ended, token.end))
            given[token.key] = job
            job.left -= ended is not None
            if not job.left:
                del self.jobs[token.key]
        if stopped:
            self._engine.evict(stopped)
        interval = self.interval or -(-len(given) // STREAMS)
        _deliver([(job, part) for job in given.values() for part in job.due(interval)])

    def _leave(self, jobs: Sequence[Job]) -> None:
        """Nobody reads them any more."""
        for job in jobs:
            if job in self.queue:
                self.queue.remove(job)
            elif self.jobs.pop(job.key, None) is not None and self._engine is not None:
                self._engine.evict((job.key, sample) for sample in range(job.request.samples))

    def _fail(self, error: BaseException) -> None:
        """All rows are lost; the next request starts anew."""
        lost, self.jobs = list(self.jobs.values()), {}
        self.prefixes.clear()
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        full = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not full:
            traceback.print_exception(error)  # clients are only given a line
        parts = list[tuple[Job, Part | BaseException]]()
        for job in lost:
            parts += [*((job, part) for part in job.held), (job, MemoryError(NO_MEMORY) if full else error)]
        _deliver(parts)


def _deliver(parts: Sequence[tuple[Job, Part | BaseException]]) -> None:
    """What a step gave, in one call to each loop: a thousand streams would otherwise wake it a thousand times."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Job, Part | BaseException]]] = {}
    for job, part in parts:
        by_loop.setdefault(job.mail.loop, []).append((job, part))
    for loop, own in by_loop.items():
        try:
            loop.call_soon_threadsafe(_put, own)
        except RuntimeError:  # the loop has been closed: its callers are gone
            continue


def _put(parts: list[tuple[Job, Part | BaseException]]) -> None:
    for job, part in parts:
        job.mail.put(part if isinstance(part, BaseException) else (job.number, part))


def _settle(done: asyncio.Future[Any], found: Any, error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(found)
    else:
        done.set_exception(error)

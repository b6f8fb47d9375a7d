"""The thread that steps a model's engine: who leaves, what fails and what does not fit harms nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import torch

from headway.errors import InputError
from headway.generate.request import Request
from headway.serve import engine_thread
from headway.serve.engine_thread import EngineThread, Job, Part
from headway.serve.worker import Busy
from small_writer import small_writer


@pytest.fixture(scope="module")
def gpt():
    return small_writer()


async def count(batches: AsyncIterator[list[Any]]) -> int:
    return sum([len(parts) async for parts in batches])


def test_a_client_that_hangs_up_ends_its_rows(gpt):
    thread = EngineThread(gpt, rows=2)
    request = Request(gpt.ids("the"), max_new=10**6, window=True, stops=frozenset())

    async def leave() -> None:
        parts = thread.write([request])
        await anext(parts)
        await parts.aclose()
        waiting = [thread.write([request]) for _ in range(3)]
        firsts = [asyncio.ensure_future(anext(parts)) for parts in waiting]
        await asyncio.wait(firsts, return_when=asyncio.FIRST_COMPLETED)
        for first in firsts:
            first.cancel()
        await asyncio.gather(*firsts, return_exceptions=True)
        for parts in waiting:
            await parts.aclose()

    asyncio.run(leave())
    thread.close()  # would not end while somebody writes
    assert not thread.jobs and not thread.queue


def test_tokens_of_several_steps_are_sent_together(gpt):
    request = Request(gpt.ids("the"), max_new=11, stops=frozenset(), samples=2, seed=3)

    async def read(thread: EngineThread) -> list[Any]:
        return [part for parts in [some async for some in thread.write([request])] for _, part in parts]

    found = []
    for interval in (1, 4, 100):
        thread = EngineThread(gpt, rows=4, interval=interval)
        found.append(asyncio.run(read(thread)))
        thread.close()
    assert len(found[0]) == 22 and found[0] == found[1] == found[2]


@pytest.mark.parametrize(("interval", "wanted"), [(1, [1] * 7), (3, [1, 3, 3]), (100, [1, 6])])
def test_the_first_token_and_the_last_are_sent_at_once(interval, wanted):
    job, sent = Job(Request([1]), (), None, 0, 0), []  # type: ignore[arg-type]
    for step in range(7):
        job.held.append(Part(0, step, 0.0, (), "", "length" if step == 6 else None))
        sent.append(job.due(interval))
    assert [len(parts) for parts in sent if parts] == wanted
    assert [part.id for parts in sent for part in parts] == list(range(7))


@pytest.mark.parametrize(("callers", "wanted"), [(8, 1), (9, 2)])
def test_many_callers_are_sent_the_tokens_of_several_steps_together(gpt, monkeypatch, callers, wanted):
    monkeypatch.setattr(engine_thread, "STREAMS", 8)
    thread, request = EngineThread(gpt, rows=16), Request(gpt.ids("the"), max_new=7, stops=frozenset())
    sent = list[list[int]]()
    deliver = engine_thread._deliver

    def told(parts: Any) -> None:
        sent.append([sum(one is job for one, _ in parts) for job in {job.number: job for job, _ in parts}.values()])
        deliver(parts)

    monkeypatch.setattr(engine_thread, "_deliver", told)

    async def read() -> list[Any]:
        return [part async for parts in thread.write([request] * callers) for part in parts]

    found = asyncio.run(read())
    thread.close()
    assert [max(some) for some in sent if some] == [1, *[wanted] * (6 // wanted)]
    each = [[part.id for number, part in found if number == one] for one in range(callers)]
    assert all(ids == each[0] and len(ids) == 7 for ids in each)


def test_what_does_not_fit_into_memory_is_told_and_the_others_are_written(gpt, monkeypatch):
    thread = EngineThread(gpt, rows=4)
    small, large = (Request(gpt.ids("the"), max_new=count) for count in (20, 21))
    admit = engine_thread.Engine.admit

    def full(self: Any, requests: Any, checked: bool = False) -> None:
        if any(request is large for _, request in requests):
            raise torch.OutOfMemoryError
        admit(self, requests, checked)

    monkeypatch.setattr(engine_thread.Engine, "admit", full)

    async def both() -> int:
        parts = thread.write([small])
        first = len(await anext(parts))
        with pytest.raises(MemoryError, match="--rows"):
            await anext(thread.write([large]))
        return first + await count(parts)

    assert asyncio.run(both()) == 20
    thread.close()


def test_a_failure_ends_what_is_written_and_the_next_request_is_answered(gpt, monkeypatch):
    thread = EngineThread(gpt)
    request = Request(gpt.ids("the"), max_new=5)

    async def written() -> int:
        return await count(thread.write([request]))

    def broken(self: Any) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(engine_thread.Engine, "step", broken)
        with pytest.raises(RuntimeError, match="broken"):
            asyncio.run(written())
    assert asyncio.run(written()) == 5
    thread.close()


def test_a_pool_stays_for_the_next_request(gpt):
    thread = EngineThread(gpt, rows=3)

    async def written() -> int:
        return await count(thread.write([Request(gpt.ids("the"), max_new=5)]))

    assert asyncio.run(written()) == 5
    [pool] = thread._engine.pools  # type: ignore[union-attr]
    assert asyncio.run(written()) == 5
    assert thread._engine.pools == [pool] and pool.slots == 3  # type: ignore[union-attr]
    thread.close()


def test_ids_that_the_tokenizer_does_not_know_are_told(gpt):
    thread = EngineThread(gpt)

    async def written(ids: list[int]) -> int:
        return await count(thread.write([Request(ids, max_new=5)]))

    with pytest.raises(InputError, match="not in the vocabulary"):
        asyncio.run(written([10**6]))
    assert asyncio.run(written([5])) == 5
    thread.close()


def test_a_full_queue_is_told_at_once(gpt):
    thread = EngineThread(gpt, rows=1, waiting=1)
    thread.queue.append(None)  # type: ignore[arg-type]

    async def one() -> None:
        await anext(thread.write([Request(gpt.ids("the"))]))

    with pytest.raises(Busy):
        asyncio.run(one())
    thread.queue.clear()
    thread.close()


def test_parts_of_several_requests_have_their_numbers_and_come_together_to_one_who_is_late(gpt):
    thread = EngineThread(gpt)
    requests = [Request(gpt.ids("the"), max_new=most, stops=frozenset()) for most in (3, 7)]

    async def late() -> list[list[tuple[int, Any]]]:
        batches = thread.write(requests)
        found = [await anext(batches)]
        while thread.jobs or thread.queue:
            await asyncio.sleep(0.01)
        return found + [parts async for parts in batches]

    first, *rest = asyncio.run(late())
    numbers = [number for parts in (first, *rest) for number, _ in parts]
    assert numbers.count(0) == 3 and numbers.count(1) == 7
    assert len(rest) == 1  # all that had come meanwhile
    thread.close()


def test_what_takes_too_long_is_ended(gpt):
    thread = EngineThread(gpt)
    endless = Request(gpt.ids("the"), max_new=10**6, window=True, stops=frozenset())

    async def wait() -> int:
        return await count(thread.write([endless], seconds=0.2))

    with pytest.raises(TimeoutError):
        asyncio.run(wait())
    thread.close()  # would not end while it is written

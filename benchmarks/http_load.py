"""Clients that put a server under load, in a process of their own: `sent_by` starts this file and gives it a plan."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

PERCENTILES = (50, 90, 99)
Body = dict[str, Any]


class Seen(NamedTuple):
    """Of one request: when it was sent, when each part came, how many tokens there were, and the text."""

    sent: float
    came: list[float]
    tokens: int
    text: str


class Stream(asyncio.Protocol):
    """A request, and what comes back, when. Nothing is read of it before all have ended: on a machine that client and
    server share, the client should take little."""

    def __init__(self, request: bytes) -> None:
        self.request, self.came = request, list[tuple[float, bytes]]()
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.came.append((time.perf_counter(), data))

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(error)


class Raw(NamedTuple):
    sent: float
    came: list[tuple[float, bytes]]


async def one_request(port: int, body: Body, due: float | None = None) -> Raw:
    """A streamed completion. `due`: when it should have been sent, if the clients were late."""
    whole = json.dumps(body | {"stream": True, "stream_options": {"include_usage": True}}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(whole)}\r\n\r\n".encode() + whole
    sent = time.perf_counter() if due is None else due
    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(lambda: Stream(request), "127.0.0.1", port)
    await stream.ended
    return Raw(sent, stream.came)


def seen_in(raw: Raw) -> Seen:
    came, tokens, text, done, other, rest = list[float](), 0, "", False, b"", b""
    for when, data in raw.came:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data: {"):
                part = json.loads(line[6:])
                came += [when] if part.get("choices") else []
                text += "".join(choice.get("text") or "" for choice in part.get("choices", ()))
                tokens = (part.get("usage") or {}).get("completion_tokens", tokens)
            else:
                other += line
            done = done or line.startswith(b"data: [DONE]")
    done = done or tokens > 0  # transformers' server does not say that it is done
    assert done and came, f"a stream was cut off, or refused: {other.decode(errors='replace')[:2000]}"
    return Seen(raw.sent, came, tokens, text)


async def by_clients(port: int, bodies: Sequence[Body], clients: int) -> list[Seen]:
    """A closed loop: each of so many clients sends its next request when the last is answered."""
    waiting = iter(enumerate(bodies))

    async def client() -> list[tuple[int, Raw]]:
        return [(at, await one_request(port, body)) for at, body in waiting]

    found = await asyncio.gather(*(client() for _ in range(clients)))
    return [seen_in(raw) for _, raw in sorted((one for some in found for one in some), key=lambda one: one[0])]


async def by_times(port: int, bodies: Sequence[Body], times: Sequence[float]) -> list[Seen]:
    """Each request at its time, in seconds, whether or not earlier ones are answered."""
    began = time.perf_counter()

    async def one(body: Body, when: float) -> Raw:
        await asyncio.sleep(when)
        return await one_request(port, body, began + when)

    return list(map(seen_in, await asyncio.gather(*map(one, bodies, times))))


def sent_by(port: int, bodies: Sequence[Body], clients: int = 0, times: Sequence[float] = ()) -> list[Seen]:
    """What each request saw: sent by so many clients, or at these times."""
    plan = json.dumps({"port": port, "bodies": list(bodies), "clients": clients, "times": list(times)})
    done = subprocess.run([sys.executable, __file__], input=plan, stdout=subprocess.PIPE, text=True, check=True)
    return [Seen(*one) for one in json.loads(done.stdout)]


def figures(seen: Sequence[Seen]) -> dict[str, Any]:
    """The fields of `vllm bench serve`; milliseconds, over all requests."""
    seconds = max(one.came[-1] for one in seen) - min(one.sent for one in seen)
    kinds = {
        "ttft": [one.came[0] - one.sent for one in seen],
        "tpot": [(one.came[-1] - one.came[0]) / (one.tokens - 1) for one in seen if one.tokens > 1],
        "itl": np.concatenate([np.diff(one.came) for one in seen]),
    }
    row: dict[str, Any] = {
        "request_throughput": round(len(seen) / seconds, 3),
        "output_throughput": round(sum(one.tokens for one in seen) / seconds, 1),
    }
    for name, values in kinds.items():
        row[f"mean_{name}_ms"] = round(float(np.mean(values)) * 1e3, 2)
        for part, value in zip(PERCENTILES, np.percentile(values, PERCENTILES), strict=True):
            row[f"p{part}_{name}_ms"] = round(float(value) * 1e3, 2)
    return row


def main() -> None:
    plan = json.load(sys.stdin)
    port, bodies, times = plan["port"], plan["bodies"], plan["times"]
    work = by_times(port, bodies, times) if times else by_clients(port, bodies, plan["clients"])
    print(json.dumps(asyncio.run(work)))


if __name__ == "__main__":
    main()

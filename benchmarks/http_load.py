"""Clients that put a server under load, in a process of their own: `sent_by` starts this file and gives it a plan."""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

PERCENTILES = (50, 90, 99)
IDLE = 60.0
Body = dict[str, Any]


class Seen(NamedTuple):
    """Of one request: when it was sent, when each part came, how many tokens there were, and the text."""

    sent: float
    came: list[float]
    tokens: int
    text: str


class Raw(NamedTuple):
    """What came back on one connection, and when. Nothing is read of it before all have ended: on a machine that client
    and server share, the client should take little."""

    sent: float
    came: list[tuple[float, bytes]]


def asked(body: Body) -> bytes:
    """A streamed completion."""
    whole = json.dumps(body | {"stream": True, "stream_options": {"include_usage": True}}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(whole)}\r\n\r\n".encode() + whole


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


def sent(port: int, bodies: Sequence[Body], clients: int, times: Sequence[float]) -> list[Seen]:
    """By so many clients, each of which sends its next request when the last is answered (a closed loop); or each
    request at its time, in seconds, whether or not earlier ones are answered."""
    requests, found, began = list(map(asked, bodies)), list[Raw](), time.perf_counter()
    with selectors.DefaultSelector() as open_ones:

        def due() -> float:
            """Seconds until the next is sent; none are left, or all clients are waiting: any number."""
            if len(found) == len(requests):
                return IDLE
            if times:
                return began + times[len(found)] - time.perf_counter()
            return 0.0 if len(open_ones.get_map()) < clients else IDLE

        while len(found) < len(requests) or open_ones.get_map():
            while (wait := due()) <= 0:
                # If the client is late, the request was sent when it should have been.
                found.append(Raw(began + times[len(found)] if times else time.perf_counter(), []))
                connection = socket.create_connection(("127.0.0.1", port))
                connection.sendall(requests[len(found) - 1])
                open_ones.register(connection, selectors.EVENT_READ, found[-1].came)
            for key, _ in open_ones.select(wait):
                assert isinstance(key.fileobj, socket.socket)
                data = key.fileobj.recv(1 << 16)
                if data:
                    key.data.append((time.perf_counter(), data))
                else:
                    open_ones.unregister(key.fileobj)
                    key.fileobj.close()
    return list(map(seen_in, found))


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
    print(json.dumps(sent(port, bodies, plan["clients"], times)))


if __name__ == "__main__":
    main()

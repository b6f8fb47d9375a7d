"""Requests drawn at random, to every route of the server: an answer, or one line of JSON that says what is wrong; the
server never fails, writes no traceback, and answers the next request.

A short round draws fifty requests and twenty-five connections; HEADWAY_FUZZ=N draws N times as many.
"""

from __future__ import annotations

import http.client
import json
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis.strategies as some
import pytest
from damaged import VALUES
from forked import ROUNDS, Record
from hypothesis import HealthCheck, Phase, given, seed, settings

import headway
from browsing import served
from headway.serve import limits, protocol
from headway.serve.api import Api, Limits
from small_writer import small_writer

FOLDER = Path(__file__).parents[1] / "folders" / "format-1"
GOOD: dict[str, dict[str, Any]] = {
    "/api/trace": {"text": "He drives the car", "second": "Il conduit", "model": 0, "layers": [0], "heads": [0, 1]},
    "/api/next": {"ids": [5, 6, 7], "model": 0},
    "/v1/completions": {
        "model": "small", "prompt": "the cat", "max_tokens": 4, "n": 2, "seed": 1, "stop": ["x"], "logprobs": 2,
        "stream": True, "echo": True, "temperature": 0.5, "logit_bias": {"5": 1.0},
    },
    "/v1/chat/completions": {
        "model": "small", "messages": [{"role": "user", "content": "the cat"}], "max_tokens": 4, "logprobs": True,
        "top_logprobs": 2, "top_p": 0.9, "response_format": {"type": "json_object"},
        "stream_options": {"include_usage": True}, "tool_choice": "none",
        "tools": [{"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}],
    },
    "/v1/translate": {"model": "translator", "input": ["He drives the car"]},
    "/v1/predict": {"model": "translator", "input": ["He drives the car"], "options": {}},
    "/v1/embeddings": {"model": "translator", "input": "He drives the car"},
}  # fmt: skip
SEARCH = {"text": "He drives the car", "beam": 2}
PATHS = (
    *GOOD,
    "/",
    "/v1/models",
    "/v1/models/x",
    "/v1",
    "/health",
    "/metrics",
    "/openapi.json",
    "/api/model",
    "/api",
    "/api/trace/",
    "/nowhere",
    "/../x",
    "/%00",
    "/api/next?ids=1",
    "*",
    "/é",
)
METHODS = ("POST", "POST", "POST", "GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "x", "POST ")
TYPES = (
    "application/json", "application/json; charset=latin-1", "text/plain", "", "multipart/form-data",
    "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "x" * 3000, "application/json, text/html",
)  # fmt: skip
LENGTHS = ("0", "3", "-1", "x", "1e3", "99", "999999999999", "5, 5", "+5", "٣", "")
SECONDS = 30.0  # for an answer
WAITS = 0.5  # seconds that the server waits for the rest of a request here


@dataclass
class Server:
    port: int
    log: list[str] = field(default_factory=list)

    def send(self, raw: bytes, method: str = "POST", finish: bool = True) -> tuple[int, bytes] | None:
        """The status and the body that these bytes are answered with; None: the connection was closed. finish: no
        more bytes will come, and half of the connection is closed."""
        start = time.monotonic()
        with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS) as connection:
            with suppress(ConnectionError, BrokenPipeError):
                connection.sendall(raw)
                if finish:
                    connection.shutdown(socket.SHUT_WR)
            answer = http.client.HTTPResponse(connection, method=method)
            try:
                answer.begin()
                found = answer.status, answer.read()
            except (http.client.BadStatusLine, ConnectionError):
                found = None
        assert time.monotonic() - start < SECONDS
        return found

    def fault(self, found: tuple[int, bytes] | None, method: str = "POST", may_close: bool = False) -> str | None:
        """What is wrong with an answer; None: nothing."""
        if self.log:
            return f"the server's log has {self.log}"
        if found is None:
            return None if may_close else "no answer"
        status, body = found
        if not (200 <= status < 300 or 400 <= status < 500):
            return f"status {status}: {body[:300]!r}"
        if status < 300 or method == "HEAD":
            return None
        try:
            told = json.loads(body)
            line = told["error"]["message"] if isinstance(told["error"], dict) else told["error"]
        except (ValueError, TypeError, KeyError):
            return f"status {status} without a line of JSON: {body[:300]!r}"
        return None if line and "\n" not in line and "Traceback" not in line else f"no clear line: {line!r}"

    def answers(self) -> bool:
        found = self.send(request("POST", "/api/next", json.dumps(GOOD["/api/next"]).encode()), finish=False)
        return found is not None and found[0] == 200


def request(
    method: str, path: str, body: bytes, kind: str = "application/json", length: str | None = None, more: str = ""
) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: {kind}\r\n"
    head += f"content-length: {len(body) if length is None else length}\r\n{more}\r\n"
    return head.encode() + body


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A translator and a language model on loopback, whose patience is short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "BODY_SECONDS", WAITS)
        patch.setattr(protocol, "HEADER_SECONDS", WAITS)
        api = Api({"translator": headway.load(FOLDER, "cpu"), "small": small_writer()}, Limits(waiting=256))
        with served(api.asgi) as address:
            found = Server(int(address.rstrip("/").rsplit(":", 1)[1]))
            keeper = Keeper(found.log)
            loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
            levels = [logger.level for logger in loggers]
            for logger in loggers:
                logger.addHandler(keeper)
                logger.setLevel(logging.ERROR)
            yield found
            for logger, level in zip(loggers, levels, strict=True):
                logger.removeHandler(keeper)
                logger.setLevel(level)
        api.close()


class Keeper(logging.Handler):
    """Keeps the lines that a server logs."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(logging.Formatter().format(record)[-600:])


DEEP = some.sampled_from([3, 80, 5000, 200_000]).map(lambda depth: "[" * depth + "]" * depth)
SCALARS = some.sampled_from(VALUES) | some.integers() | some.floats() | some.text(max_size=20)
ANYTHING = some.recursive(
    SCALARS, lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=8), inner, max_size=4)
)


@some.composite
def changed(draw: Any) -> tuple[str, bytes]:
    """A route, and the good request to it with a few changes."""
    path = draw(some.sampled_from(list(GOOD)))
    value = dict(draw(some.sampled_from([GOOD[path], SEARCH])) if path == "/api/trace" else GOOD[path])
    for _ in range(draw(some.integers(1, 3))):
        key = draw(some.sampled_from([*value, "beam", "unheard_of"]))
        what = draw(some.sampled_from(["remove", "replace", "replace", "inside", "repeat", "any"]))
        if what == "remove":
            value.pop(key, None)
        elif what == "inside":
            value[key] = [draw(SCALARS), *value[key]] if isinstance(value.get(key), list) else [draw(SCALARS)]
        elif what == "repeat" and isinstance(value.get(key), list | str):
            value[key] = value[key][:100] * draw(some.sampled_from([2, 1000, 40_000]))
        else:
            value[key] = draw(some.sampled_from(VALUES) if what == "replace" else ANYTHING)
    return path, json.dumps(value).encode()


@some.composite
def sent(draw: Any) -> tuple[str, bytes]:
    """A method and a whole request."""
    if draw(some.booleans()):
        path, body = draw(changed())
        return "POST", request("POST", path, body)
    method, path = draw(some.sampled_from(METHODS)), draw(some.sampled_from(PATHS))
    good = json.dumps(GOOD.get(path, {})).encode()
    body = draw(
        some.just(good) | some.binary(max_size=200) | DEEP.map(str.encode) | some.just(b'{"text": ' + b"[" * 900_000)
        | ANYTHING.map(json.dumps).map(str.encode) | some.integers(0, len(good)).map(lambda end: good[:end])
    )  # fmt: skip
    return method.strip(), request(method, path, body, draw(some.sampled_from(TYPES)))


@some.composite
def broken(draw: Any) -> bytes:
    """What is hardly HTTP: other lengths, chunks that are none, headers that are too long, any bytes."""
    body = json.dumps(GOOD["/api/next"]).encode()
    length = draw(some.none() | some.sampled_from(LENGTHS))
    more = draw(some.sampled_from([
        "", "transfer-encoding: chunked\r\n", "expect: 100-continue\r\n", "upgrade: websocket\r\n", "x\r\n",
        f"x: {'y' * 100_000}\r\n", "x: \x01\r\n", "host: elsewhere\r\n", "content-length: 7\r\n", " folded\r\n",
        "connection: keep-alive\r\n",
    ]))  # fmt: skip
    whole = request("POST", "/api/next", body, length=length, more=more)
    return draw(
        some.just(whole) | some.integers(0, len(whole)).map(lambda end: whole[:end]) | some.binary(max_size=300)
        | some.binary(max_size=20).map(lambda more: whole[:30] + more + whole[30:])
    )  # fmt: skip


@seed(3)
@settings(
    max_examples=50 * ROUNDS,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(sending=sent())
def test_any_request_is_answered_and_the_server_lives(
    sending: tuple[str, bytes], server: Server, record_property: Record
) -> None:
    record_property("cases", 1)
    method, raw = sending
    found = server.send(raw, method, finish=False)
    assert server.fault(found, method) is None, f"{server.fault(found, method)}: {raw[:600]!r}"
    assert server.answers()


@seed(4)
@settings(
    max_examples=25 * ROUNDS,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(raw=broken(), finish=some.booleans())
def test_what_is_hardly_http_is_answered_or_closed_and_the_server_lives(
    raw: bytes, finish: bool, server: Server, record_property: Record
) -> None:
    record_property("cases", 1)
    found = server.send(raw, finish=finish)
    # A client that says that no more will come, in the middle of a request, may be left without an answer.
    assert server.fault(found, may_close=finish) is None, f"{server.fault(found, may_close=finish)}: {raw[:600]!r}"
    assert server.answers()

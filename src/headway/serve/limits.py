"""A guard in front of the application: it refuses requests that are too large or come from another site."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST = 1_000_000  # bytes of a request
BODY_SECONDS = 30.0  # for its body to come
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})


class Limited:
    """An ASGI application around another. It answers 413 to a request that is too large, 408 to one whose body does not
    come, and 421 where the host name is not this machine's: another site could point a name of its own at it."""

    def __init__(
        self, app: ASGIApp, hosts: frozenset[str] = LOOPBACK, form: Callable[[str], Any] = lambda line: {"error": line}
    ) -> None:
        """`hosts`: none means any. `form`: the body of an error."""
        self.app, self.hosts, self.form = app, hosts, form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if self.hosts and host.rpartition(":")[0] not in self.hosts and host not in self.hosts:
            line = "this server answers on this machine only"
            return await JSONResponse(self.form(line), 421)(scope, receive, send)
        try:
            body = await asyncio.wait_for(_body(receive), BODY_SECONDS)
        except TimeoutError:
            line = f"the rest of the request did not come within {BODY_SECONDS:g} seconds"
            return await JSONResponse(self.form(line), 408, {"connection": "close"})(scope, receive, send)
        if body is None:
            line = f"the request is larger than {LARGEST / 1e6:g} MB: shorten the text"
            return await JSONResponse(self.form(line), 413)(scope, receive, send)
        read: Iterator[Message] = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def again() -> Message:
            return next(read, None) or await receive()

        return await self.app(scope, again, send)


async def _body(receive: Receive) -> bytes | None:
    """The body, or None where it is too large. It is read to its end all the same: otherwise the client would not
    read the answer."""
    parts, size = [], 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size <= LARGEST:
            parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts) if size <= LARGEST else None

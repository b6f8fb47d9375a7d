"""A guard in front of the application: it refuses requests that are too large or come from another site."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LARGEST = 1_000_000  # bytes of a request
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})


class Limited:
    """An ASGI application around another. It answers 413 to a request that is too large, and 421 where the host name is
    not one of `hosts`: another site could point a name of its own at this machine."""

    def __init__(self, app: Any, largest: int = LARGEST, hosts: frozenset[str] | None = LOOPBACK) -> None:
        self.app, self.largest, self.hosts = app, largest, hosts

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if self.hosts is not None and host.rpartition(":")[0] not in self.hosts and host not in self.hosts:
            return await _refuse(send, 421, "this server answers on this machine only")
        body = await self._body(receive)
        if body is None:
            return await _refuse(send, 413, f"the request is larger than {self.largest / 1e6:g} MB: shorten the text")
        sent = False

        async def again() -> Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        return await self.app(scope, again, send)

    async def _body(self, receive: Receive) -> bytes | None:
        """The body, or None where it is too large. It is read to its end all the same: otherwise the client would not
        read the answer."""
        parts, size = [], 0
        while True:
            message = await receive()
            part = message.get("body", b"")
            size += len(part)
            if size <= self.largest:
                parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts) if size <= self.largest else None


async def _refuse(send: Send, status: int, line: str) -> None:
    body = json.dumps({"error": line}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

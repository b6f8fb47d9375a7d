"""HTTP on one connection: limits on how long a client may take and on how many there are; every error is JSON."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_SECONDS = 15.0  # for the first line and the headers of a request
HEADER_BYTES = 1 << 16
CONNECTIONS = 200  # at a time


class Guarded(HttpToolsProtocol):
    """uvicorn's protocol. A connection on which no request comes in time, or one without end, is closed, further
    connections than `most` are answered 503, and what is no HTTP is answered 400."""

    most = CONNECTIONS
    _head: int | None = None  # bytes of the headers that are being read
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections: try again in a moment")
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._head is not None:
            self._head += len(data)
        if self._head is not None and self._head > HEADER_BYTES:
            line = f"the headers of a request have at most {HEADER_BYTES:,} bytes"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, line)
        else:
            self._watch()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, "this is no HTTP request that can be read")

    def _watch(self) -> None:
        """Start the clock where headers are awaited, stop it where a request is worked at."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_watching()
        elif self._late is None:
            line = f"no request came within {HEADER_SECONDS:g} seconds"
            self._late = self.loop.call_later(HEADER_SECONDS, self._refuse, HTTPStatus.REQUEST_TIMEOUT, line)

    def _stop_watching(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self, status: HTTPStatus, line: str) -> None:
        """Answer without the application, and close."""
        body = json.dumps({"error": line}).encode()
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode() + body)
        self.transport.close()


def guarded(most: int) -> type[Guarded]:
    """For so many connections at a time."""
    return type("Guarded", (Guarded,), {"most": most})

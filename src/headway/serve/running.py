"""The application on a port of this machine, until Ctrl-C."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from typing import Any

from headway.errors import InputError


def bound(port: int) -> socket.socket:
    """A socket that listens on this machine only; port 0 is any free one."""
    try:
        return socket.create_server(("127.0.0.1", port), backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"port {port} is in use: choose another, or --port 0 for any that is free") from error
        raise InputError(f"port {port} cannot be used: {os.strerror(error.errno or 0)}") from error


def server(app: Any) -> Any:
    """uvicorn's server with headway's limits."""
    import uvicorn

    from headway.serve.protocol import Guarded

    config = uvicorn.Config(
        app, http=Guarded, ws="none", log_level="critical", lifespan="off", access_log=False,
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    return uvicorn.Server(config)


def serve(app: Any, listening: socket.socket) -> None:
    """Serve until Ctrl-C."""
    with listening, suppress(KeyboardInterrupt):
        server(app).run(sockets=[listening])

"""The application on a port of this machine, until Ctrl-C."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Any

from headway.errors import InputError

LOOPBACK = "127.0.0.1"


def bound(port: int, host: str = LOOPBACK) -> socket.socket:
    """A socket that listens; port 0 is any free one."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"port {port} is in use: choose another, or --port 0 for any that is free") from error
        raise InputError(f"port {port} cannot be used: {error.strerror}") from error
    return made


def serve(app: Any, listening: socket.socket, ready: Callable[[str], None] | None = None) -> None:
    """Serve until Ctrl-C; `ready` is called with the address."""
    import uvicorn

    host, port = listening.getsockname()[:2]
    config = uvicorn.Config(app, log_level="critical", lifespan="off", access_log=False, timeout_graceful_shutdown=2)
    if ready:
        ready(f"http://{host}:{port}/")
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        listening.close()

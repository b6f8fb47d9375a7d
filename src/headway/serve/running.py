"""The application on a port of this machine, until Ctrl-C."""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from headway.errors import InputError


def bound(port: int, host: str = "127.0.0.1", backlog: int = 128) -> socket.socket:
    """A socket that listens on this machine only, or for other machines too; port 0 is any free one."""
    try:
        return socket.create_server((host, port), backlog=backlog)
    except socket.gaierror as error:
        raise InputError(f"--host {host} is no address of this machine: {error.strerror}") from error
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise InputError(f"--host {host} is no address of this machine") from error
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"port {port} is in use: choose another, or --port 0 for any that is free") from error
        raise InputError(f"port {port} cannot be used: {os.strerror(error.errno or 0)}") from error


def server(app: Any, connections: int = 0, seconds: int = 2) -> Any:
    """uvicorn's server with headway's limits. `connections`: at a time, where it is not the usual number; `seconds`:
    for answers that are under way when it ends."""
    import uvicorn

    from headway.serve.protocol import CONNECTIONS, guarded

    config = uvicorn.Config(
        app, http=guarded(connections or CONNECTIONS), ws="none", log_level="critical", lifespan="off",
        access_log=False, timeout_graceful_shutdown=seconds,
    )  # fmt: skip

    class Server(uvicorn.Server):
        """A signal ends it when what runs is answered; then it has done what it was asked to."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            if threading.current_thread() is not threading.main_thread():
                yield
                return
            before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

    return Server(config)


def serve(app: Any, listening: socket.socket) -> None:
    """Serve until Ctrl-C."""
    with listening, suppress(KeyboardInterrupt):
        server(app).run(sockets=[listening])

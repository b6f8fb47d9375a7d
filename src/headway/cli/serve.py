"""headway serve"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

from headway.cli.options import DEVICE, DTYPE, THREADS, argument, option
from headway.errors import InputError, refuse

PORT = 8000
CONNECTIONS = 4096


def serve(
    model: list[str] = argument("MODEL", "Folders of models or of runs; each is called by its folder's name."),
    port: int = option(PORT, "N", "0 is any that is free.", min=0, max=65535),
    host: str = option("127.0.0.1", "ADDRESS", "0.0.0.0 answers other machines too; give keys then."),
    keys: str = option(None, "FILE", "A key a line: every request must send one of them."),
    rows: int = option(0, "N", "Texts written together; 0: as many as suit the device.", min=0),
    waiting: int = option(1024, "N", "Requests that may wait; further ones are answered 503.", min=1),
    shared_mib: int = option(256, "N", "Memory for beginnings of prompts, not read again; 0: none.", min=0),
    stream_interval: int = option(0, "N", "Steps whose tokens are sent together; 0: one for every 32 streams.", min=0),
    max_tokens: int = option(1 << 20, "N", "The most tokens that a request may ask for.", min=1),
    rate: int = option(0, "N", "Requests a minute of each key, or address; 0: any number.", min=0),
    timeout: float = option(600.0, "S", "Seconds for a request.", min=0.001),
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """Answer HTTP requests in the form that OpenAI's clients send: many at once, as they come."""
    from headway.serve.api import Api, Limits
    from headway.serve.limits import LOOPBACK
    from headway.serve.running import bound, server

    known = _keys(keys)
    listening = bound(port, host, backlog=CONNECTIONS)  # before the models are read, which takes longer
    hosts = LOOPBACK if host in {"127.0.0.1", "localhost"} else frozenset[str]()
    limits = Limits(known, rate, timeout, max_tokens, rows, waiting, shared_mib << 20, hosts, stream_interval)
    api = Api(_named(model, device, dtype), limits)
    gc.freeze()  # what is loaded now stays; looking through it would hold all streams up for a tenth of a second
    host, port = listening.getsockname()[:2]
    print(f"headway: {', '.join(api.threads)} at http://{host}:{port}/v1 (Ctrl-C ends it)", file=sys.stderr, flush=True)
    with listening:
        server(api.asgi, CONNECTIONS, seconds=int(timeout) + 1).run(sockets=[listening])
    api.close()


def _named(folders: list[str], device: str, dtype: str) -> dict[str, Any]:
    from headway.tasks.loading import load

    found: dict[str, Any] = {}
    for folder in folders:
        model = load(folder, device, dtype)
        refuse(model.name in found, f"two models are called {model.name}: requests could not tell them apart")
        found[model.name] = model
    return found


def _keys(file: str | None) -> frozenset[str]:
    if file is None:
        return frozenset()
    try:
        lines = Path(file).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--keys {file} cannot be read: {error}") from error
    refuse(not lines, f"--keys {file} has no key: write one a line")
    return frozenset(lines)

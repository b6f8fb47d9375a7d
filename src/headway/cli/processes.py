"""Several processes started by torchrun: the first one reports, another one only an error of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

WAIT = 3.0  # seconds: by then the launcher has ended the other processes, if the first one failed


def is_first() -> bool:
    """Whether this process reports: it is the only one, or the first that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def report_once() -> Iterator[None]:
    """An error that ends all processes alike is reported once.

    A process that fails cannot tell whether the first process fails in the same way. So it waits before it reports: if
    the first has reported the error, the launcher ends this process meanwhile; if not, the error is its own.
    """
    if is_first():
        yield
        return
    try:
        try:
            yield
        except Exception as error:
            if type(error).__name__ == "Lost":
                raise SystemExit(1) from None
            time.sleep(WAIT)
            raise
    except KeyboardInterrupt as ended:
        number = ended.args[0] if ended.args else 2
        raise SystemExit(128 + number) from None

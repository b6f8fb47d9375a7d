"""Several processes, one voice: the first is heard, and any other only when it fails by itself."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

TURN = 3.0  # seconds in which the launcher ends the others, if the first has failed


def is_first() -> bool:
    """Whether this is the process that speaks: the only one, or the first that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def one_voice() -> Iterator[None]:
    """What ends all processes alike is said once.

    One that fails cannot know whether the first is failing in the same way. So it keeps still for a while: if the
    first has said it, the launcher ends this one meanwhile; if not, the error is its own.
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
            time.sleep(TURN)
            raise
    except KeyboardInterrupt as ended:
        number = ended.args[0] if ended.args else 2
        raise SystemExit(128 + number) from None

"""headway embed"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headway.cli.options import DEVICE, DTYPE, LINES, TEXTS, THREADS, TRUNCATE, argument, check_model, option
from headway.cli.texts import texts_of
from headway.errors import InputError, nearest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AT_ONCE = 1 << 16  # texts that are sorted by length together
ENDINGS = (".npy", ".jsonl")
POOLINGS = ("mean", "first", "max", "mean-sqrt")


def embed(
    model: str = argument("MODEL", "A folder of an encoder."),
    file: str = LINES,
    text: list[str] = TEXTS,
    out: str = option(None, "FILE", ".npy (a row a text) or .jsonl; without it JSON lines to stdout."),
    pooling: str = option(None, "NAME", "mean, first, max or mean-sqrt, if not as the model says."),
    unit: bool = typer.Option(None, "--unit/--raw", help="Vectors of length 1, or as they are."),
    truncate: bool = TRUNCATE,
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """A vector of each text, in order; an empty line has one too."""
    from headway.tasks.loading import load

    check_model(model, "headway embed MODEL FILE --out vectors.npy")
    if out is not None and not out.endswith(ENDINGS):
        raise InputError(f"{out} is of no known form: vectors are written as .npy or .jsonl")
    if pooling is not None and pooling not in POOLINGS:
        raise InputError(f"there is no pooling '{pooling}'{nearest(pooling, POOLINGS)}")
    texts = texts_of(text, file)
    encoder = load(model, device, dtype, verb="embed")
    how: Any = {"pooling": pooling, "unit": unit, "truncate": truncate}
    with _sink(out, len(texts), encoder.model.encoder.width) as write:
        for start in range(0, len(texts), AT_ONCE):
            some = texts[start : start + AT_ONCE]
            progress = partial(_progress, start, len(texts)) if sys.stderr.isatty() else None
            write(start, some, encoder.embed(some, progress=progress, **how))


def _progress(start: int, count: int, done: int) -> None:
    print(f"\r{start + done:,} of {count:,} texts", end="", file=sys.stderr)


@contextmanager
def _sink(out: str | None, count: int, width: int) -> Iterator[Any]:
    """What vectors are handed to; a file is there only when it is whole."""
    from headway.atomic import replaced

    if out is None:
        yield lambda start, texts, vectors: print(_lines(texts, vectors), end="")
        return
    with replaced(Path(out)) as new:
        if out.endswith(".npy"):
            import numpy as np

            table = np.lib.format.open_memmap(new, "w+", np.float32, (count, width))

            def write(start: int, texts: list[str], vectors: NDArray[np.float32]) -> None:
                table[start : start + len(texts)] = vectors

            yield write
            table.flush()
        else:
            with new.open("w", encoding="utf-8") as stream:
                yield lambda start, texts, vectors: stream.write(_lines(texts, vectors))


def _lines(texts: list[str], vectors: NDArray[np.float32]) -> str:
    rows = zip(texts, vectors.tolist(), strict=True)
    return "".join(
        json.dumps({"text": text, "vector": [round(x, 7) for x in row]}, ensure_ascii=False) + "\n"
        for text, row in rows
    )

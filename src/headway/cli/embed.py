"""headway embed"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headway.cli.options import DEVICE, DTYPE, THREADS, check_model, use_threads
from headway.cli.texts import texts_of
from headway.errors import InputError, nearest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AT_ONCE = 1 << 16  # texts that are sorted by length together
ENDINGS = (".npy", ".jsonl")
POOLINGS = ("mean", "first", "max", "mean-sqrt")


def embed(
    model: str = typer.Argument(metavar="MODEL", help="A folder of an encoder."),
    file: str = typer.Argument(None, metavar="FILE", help="A text a line (.gz, .zst too); without it, stdin."),
    text: list[str] = typer.Option([], "--text", metavar="TEXT...", help="Texts, instead of a file."),
    out: str = typer.Option(
        None, metavar="FILE", help=".npy (a row a text) or .jsonl; without it JSON lines to stdout."
    ),
    pooling: str = typer.Option(None, metavar="NAME", help="mean, first, max or mean-sqrt, if not as the model says."),
    unit: bool = typer.Option(None, "--unit/--raw", help="Vectors of length 1, or as they are."),
    truncate: bool = typer.Option(False, "--truncate", help="Cut a text that is longer than the model takes."),
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """A vector of each text, in order; an empty line has one too."""
    from headway.tasks.loading import load

    use_threads(threads)
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
            write(start, some, encoder.embed(some, progress=_teller(start, len(texts)), **how))


def _teller(start: int, count: int) -> Any:
    """Says on a terminal how far it is."""
    if not sys.stderr.isatty():
        return None
    return lambda done: print(f"\r{start + done:,} of {count:,} texts", end="", file=sys.stderr)


@contextmanager
def _sink(out: str | None, count: int, width: int) -> Iterator[Any]:
    """What vectors are handed to; a file is there only when it is whole."""
    if out is None:
        yield lambda start, texts, vectors: print(_lines(texts, vectors), end="")
        return
    place = Path(out)
    new = place.with_name(f".{place.stem}.{uuid.uuid4().hex[:8]}{place.suffix}")
    try:
        with _array(new, count, width) if out.endswith(".npy") else _json_lines(new) as write:
            yield write
        os.replace(new, place)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def _array(path: Path, count: int, width: int) -> Iterator[Any]:
    import numpy as np

    table = np.lib.format.open_memmap(path, "w+", np.float32, (count, width))

    def write(start: int, texts: list[str], vectors: NDArray[np.float32]) -> None:
        table[start : start + len(texts)] = vectors

    yield write
    table.flush()


@contextmanager
def _json_lines(path: Path) -> Iterator[Any]:
    with path.open("w", encoding="utf-8") as stream:
        yield lambda start, texts, vectors: stream.write(_lines(texts, vectors))


def _lines(texts: list[str], vectors: NDArray[np.float32]) -> str:
    rows = zip(texts, vectors.tolist(), strict=True)
    return "".join(
        json.dumps({"text": text, "vector": [round(x, 7) for x in row]}, ensure_ascii=False) + "\n"
        for text, row in rows
    )

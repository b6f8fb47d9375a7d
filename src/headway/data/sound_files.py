"""One recording, of any file that libsndfile reads or of an array, as samples of one rate in one channel.

Only as much of a file is read as is needed, so that a long one cannot fill the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import InputError, refuse

SUFFIXES = (".wav", ".flac", ".ogg", ".mp3", ".aiff", ".aif", ".opus")
Samples = NDArray[np.float32]


def sound(value: Any, rate: int, seconds: float | None = None) -> Samples:
    """Samples from −1 to 1 at `rate` a second, at most the first `seconds`, the mean of all channels. A value is a
    file's path, an array of such samples at that rate already, or a pair of an array and its own rate."""
    if isinstance(value, str | Path):
        samples, own = _read(Path(value), seconds)
    else:
        samples, own = value if isinstance(value, tuple) else (value, rate)
        samples = _floats(np.asarray(samples))
        samples = samples if seconds is None else samples[: int(seconds * own)]
    refuse(not len(samples), f"{_named(value)} has no sound in it")
    return resampled(_mono(_checked(samples, _named(value))), own, rate)


def blocks(value: Any, rate: int, seconds: float = 30.0) -> Iterator[Samples]:
    """All samples as `sound` gives them, so many seconds at a time: a recording of any length in little memory. A value
    may also be an iterator of arrays of samples at that rate."""
    if isinstance(value, Iterator):
        yield from (_checked(_mono(_floats(np.asarray(samples))), "this recording") for samples in value)
        return
    if not isinstance(value, str | Path):
        yield sound(value, rate)
        return
    with _opened(Path(value)) as file:
        own = int(file.samplerate)
        change = _resampler(own, rate)
        size, there = max(1, int(seconds * own)), 0
        while len(samples := file.read(size, dtype="float32", always_2d=False)):
            there += len(samples)
            yield change(_checked(_mono(samples), str(value)), False)
        refuse(not there, f"{value} has no sound in it")
        yield change(np.zeros(0, np.float32), True)


def pcm(stream: Any, block: int = 1 << 14) -> Iterator[Samples]:
    """Raw samples of 16 bits, little-endian, in one channel, as they come; half a sample at the end is left out."""
    left = b""
    while part := stream.read(block):
        left += part
        whole = len(left) // 2 * 2
        yield np.frombuffer(left[:whole], "<i2").astype(np.int16)
        left = left[whole:]


def _mono(samples: Samples) -> Samples:
    return samples if samples.ndim == 1 else samples.mean(1)


def _checked(samples_N: Samples, name: str) -> Samples:
    refuse(not np.isfinite(samples_N).all(), f"{name} has samples that are no finite numbers")
    return samples_N


def _resampler(own: int, rate: int) -> Callable[[Samples, bool], Samples]:
    """`resampled` block by block; the second argument says that none follows."""
    if own == rate:
        return lambda samples_N, last: samples_N
    stream: Any = _soxr(own, rate).ResampleStream(own, rate, 1, dtype="float32")
    return lambda samples_N, last: stream.resample_chunk(samples_N, last=last)


def _soxr(own: int, rate: int) -> Any:
    try:
        import soxr
    except ImportError:
        raise InputError(f"to resample {own:,} to {rate:,} Hz, install soxr: pip install 'headway[sound]'") from None
    return soxr


def resampled(samples_N: Samples, own: int, rate: int) -> Samples:
    """The same sound with another number of samples a second."""
    if own == rate:
        return samples_N
    found: Samples = _soxr(own, rate).resample(samples_N, own, rate).astype(np.float32)
    return found


def _read(path: Path, seconds: float | None) -> tuple[Samples, int]:
    with _opened(path) as file:
        own = int(file.samplerate)
        return file.read(-1 if seconds is None else int(seconds * own), dtype="float32", always_2d=False), own


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A file of libsndfile; a fault in it is one line."""
    try:
        import soundfile
    except ImportError:
        raise InputError(f"to read {path}, install soundfile: pip install 'headway[sound]'") from None
    try:
        with soundfile.SoundFile(path) as file:
            yield file
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"there is no recording {path}") from None
    except (soundfile.LibsndfileError, OSError, RuntimeError, ValueError, MemoryError) as error:
        if not path.exists():
            raise InputError(f"there is no recording {path}") from None
        refuse(path.is_dir(), f"{path} is a folder: give a recording, or those in it")
        told = str(error).removeprefix(f"Error opening {str(path)!r}: ")
        raise InputError(f"{path} is no recording that can be read ({', '.join(SUFFIXES)}): {told}") from error


def _floats(samples: NDArray[Any]) -> Samples:
    """Whole numbers from −1 to 1, by the size of their kind."""
    if samples.ndim not in (1, 2) or samples.dtype.kind not in "fi":
        raise InputError(
            f"a recording is an array (samples) or (samples, channels), not {samples.dtype} {samples.shape}"
        )
    if samples.dtype.kind == "i":
        return (samples / -float(np.iinfo(samples.dtype).min)).astype(np.float32)
    return samples.astype(np.float32)


def _named(value: Any) -> str:
    return str(value) if isinstance(value, str | Path) else "this recording"

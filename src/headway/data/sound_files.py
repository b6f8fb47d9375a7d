"""One recording, of any file that libsndfile reads or of an array, as samples of one rate in one channel.

Only as much of a file is read as is needed, so that a long one cannot fill the memory.
"""

from __future__ import annotations

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
    refuse(not np.isfinite(samples).all(), f"{_named(value)} has samples that are no finite numbers")
    mono = samples if samples.ndim == 1 else samples.mean(1)
    return resampled(mono, own, rate)


def resampled(samples_N: Samples, own: int, rate: int) -> Samples:
    """The same sound with another number of samples a second."""
    if own == rate:
        return samples_N
    try:
        import soxr
    except ImportError:
        raise InputError(f"to resample {own:,} to {rate:,} Hz, install soxr: pip install 'headway[sound]'") from None
    found: Samples = soxr.resample(samples_N, own, rate).astype(np.float32)
    return found


def _read(path: Path, seconds: float | None) -> tuple[Samples, int]:
    try:
        import soundfile
    except ImportError:
        raise InputError(f"to read {path}, install soundfile: pip install 'headway[sound]'") from None
    try:
        with soundfile.SoundFile(path) as file:
            own = int(file.samplerate)
            return file.read(-1 if seconds is None else int(seconds * own), dtype="float32", always_2d=False), own
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

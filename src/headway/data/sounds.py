"""Labelled recordings from files, and how their spectrograms are augmented.

What a place is, is decided by its name: a folder has a folder for each label, with recordings in it; a .csv, .tsv or
.jsonl has a column with paths, from its own folder on, and one with labels; a .npz has samples `sounds`, one recording
after the other, their `lengths`, the `rate` and the `labels`.

B rows, M mel bands, T frames, E boxes that are erased.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headway.data.augment import DrawnPictures, Draws, generator
from headway.data.examples import Example, Wanted, arrays_in, labelled_files, read_all
from headway.data.images import Pictures
from headway.data.readers import must_be_there
from headway.data.sound_files import SUFFIXES
from headway.errors import InputError, refuse

RECORDINGS = Wanted("recordings", SUFFIXES)
ARRAYS = ("sounds", "lengths", "rate", "labels")


def read_sounds(
    places: Sequence[str | Path], read: Callable[[Any], Any], broken: str = "refuse",
    say: Callable[[str], None] = lambda line: None, stacked: bool = True,
) -> Pictures:  # fmt: skip
    """The spectrograms of all files and folders, in order. read: of one recording. broken: see `read_all`. stacked: as
    one array, or as they are read."""
    values, labels, names = read_all(places, _examples, read, RECORDINGS, broken, say)
    return Pictures(np.stack(values) if stacked else values, labels, names)  # type: ignore[arg-type]


def _examples(place: Path) -> Iterator[Example]:
    if (files := labelled_files(place, RECORDINGS)) is not None:
        return files
    if place.suffix == ".npz":
        return _arrays(place)
    must_be_there(place)
    raise InputError(
        f"{place} is no folder of recordings, no table with their paths (.csv) and no .npz: give one of them"
    )


def _arrays(place: Path) -> Iterator[Example]:
    arrays = arrays_in(place)
    missing = [name for name in ARRAYS if name not in arrays]
    refuse(missing, f"{place} must have the arrays {', '.join(ARRAYS)}: it lacks {', '.join(missing)}")
    sounds, lengths, rate, labels = (arrays[name] for name in ARRAYS)
    fits = sounds.ndim == lengths.ndim == labels.ndim == 1 and rate.ndim == 0 and len(lengths) == len(labels)
    if not fits or (lengths < 0).any() or int(lengths.sum()) != len(sounds) or int(rate) < 1:
        raise InputError(f"{place}: lengths must add up to the number of samples, with a label for each of them")
    ends = np.cumsum(lengths)
    for number, (end, length, label) in enumerate(zip(ends.tolist(), lengths.tolist(), labels.tolist(), strict=True)):
        yield (sounds[end - length : end], int(rate)), str(label), f"{place}, recording {number}"


@dataclass(frozen=True)
class SoundAugment:
    """What happens to training spectrograms.

    shift: moved by at most so many frames. pitch: by at most so many mel bands. bands, times, masks: so many masks of
    at most so many bands, and as many of frames, whose values become the mean (SpecAugment: Park et al. 2019). mixup:
    the α of Beta(α, α), from which the share of a second recording is drawn.
    """

    shift: int = 0
    pitch: int = 0
    bands: int = 0
    times: int = 0
    masks: int = 1
    mixup: float = 0.0

    def __post_init__(self) -> None:
        for name in ("shift", "pitch", "bands", "times", "masks", "mixup"):
            refuse(getattr(self, name) < 0, f"data.augment.{name} must be 0 or more, not {getattr(self, name)}")

    cutmix = 0.0  # a part of one recording in another has no meaning

    @property
    def mixes(self) -> bool:
        return self.mixup > 0


QUIET = SoundAugment()


class SoundDraws(Draws):
    """Random parameters for batches of spectrograms of one size."""

    def pictures(self, values_BCHW: NDArray[Any], *seed: int) -> DrawnPictures:
        rows, draw, augment = len(values_BCHW), generator(*seed), self.augment
        from_B23 = np.broadcast_to(np.eye(2, 3, dtype=np.float32), (rows, 2, 3)).copy()
        from_B23[:, 0, 2] = draw.integers(-augment.shift, augment.shift + 1, rows)
        from_B23[:, 1, 2] = draw.integers(-augment.pitch, augment.pitch + 1, rows)
        boxes = [self._mask(rows, draw, axis) for _ in range(augment.masks) for axis in (0, 1)]
        erased_BE4 = np.stack(boxes, 1) if boxes else np.zeros((rows, 0, 4), np.int64)
        nothing = np.zeros((rows, 0), np.int64), np.zeros((rows, 0, 2, 3), np.float32), np.zeros((rows, 0), np.float32)
        outside_B = values_BCHW.min((1, 2, 3))
        given = (values_BCHW, from_B23, *nothing, erased_BE4, outside_B)
        return DrawnPictures(*map(torch.from_numpy, given))

    def _mask(self, rows: int, draw: np.random.Generator, axis: int) -> NDArray[np.int64]:
        """(B, 4): some mel bands over all frames, or some frames over all bands."""
        size, most = (self.height, self.augment.bands) if axis == 0 else (self.width, self.augment.times)
        length_B = draw.integers(0, min(most, size) + 1, rows)
        start_B = np.floor(draw.random(rows) * (size - length_B + 1)).astype(np.int64)
        box_B4 = np.tile(np.array([0, 0, self.height, self.width]), (rows, 1))
        box_B4[:, axis], box_B4[:, axis + 2] = start_B, start_B + length_B
        return box_B4 * (length_B > 0)[:, None]

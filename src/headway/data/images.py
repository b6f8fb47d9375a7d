"""Labelled pictures: IDX files (LeCun's format of MNIST) or folders by class, and batches of them.

`train-images-idx3-ubyte.gz` has the pictures, and the file beside it, called `labels-idx1` in place of `images-idx3`,
their labels. A folder has a folder for each label, with .png and .jpg files.

N pictures, B rows, C channels, H height, W width.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.batch import Batch, column
from headway.data.batches import permutation, raw_words
from headway.data.labelled import LabelBatch
from headway.data.readers import at_least_one, must_be_there, unpacked
from headway.data.split import hold_out_by_hash
from headway.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg")
UNSIGNED = 8  # the code of bytes in the header of an IDX file
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class ImageInputs(Batch):
    """Pictures of one size, normalised."""

    pixels_BCHW: Tensor = column()


@dataclass(frozen=True)
class Pictures:
    """Pictures of one size with their labels as they are written, and where each is from."""

    pixels_NCHW: Bytes
    labels: tuple[str, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def those(self, at: Sequence[int]) -> Pictures:
        """Some of them, by their numbers."""
        return Pictures(self.pixels_NCHW[list(at)], *(tuple(of[i] for i in at) for of in (self.labels, self.names)))

    @property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b(self.pixels_NCHW.tobytes(), digest_size=16)
        digest.update("\n".join(self.labels).encode())
        return digest.hexdigest()


def picture(value: Any, channels: int, size: tuple[int, int]) -> Bytes:
    """(C, H, W) of a file's path or of an array (H, W) or (H, W, C) of bytes: scaled to `size` (height, width), with
    one channel in grey or three in colour."""
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.fromarray(_drawable(value)) if isinstance(value, np.ndarray) else Image.open(value)
        found = image.convert({1: "L", 3: "RGB"}[channels])
    except FileNotFoundError:
        raise InputError(f"there is no picture {value}") from None
    except (UnidentifiedImageError, OSError) as error:
        raise InputError(f"{value} is no picture that can be read (.png, .jpg): {error}") from error
    height, width = size
    if found.size != (width, height):
        found = found.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(found, np.uint8).reshape(height, width, channels).transpose(2, 0, 1)


def _drawable(array: NDArray[Any]) -> Bytes:
    """(H, W), or (H, W, 3)."""
    grey = array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 1)
    if array.dtype != np.uint8 or not (grey or (array.ndim == 3 and array.shape[2] == 3)):
        raise InputError(
            f"a picture is an array of bytes (height, width) or (height, width, 3), not {array.dtype} {array.shape}"
        )
    return array.reshape(array.shape[:2]) if grey else array


def read_pictures(places: Sequence[str | Path], channels: int, size: tuple[int, int]) -> Pictures:
    """The pictures of all files and folders, in order."""
    found = (read for place in map(Path, places) for read in (_folder(place) if place.is_dir() else _idx_pair(place)))
    some = at_least_one(found, f"{', '.join(map(str, places))}: there is no picture in it")
    values, labels, names = zip(*some, strict=True)
    return Pictures(np.stack([picture(value, channels, size) for value in values]), labels, names)


def _folder(place: Path) -> Iterator[tuple[Any, str, str]]:
    for path in sorted(place.glob("*/*")):
        if path.suffix.lower() in SUFFIXES:
            yield path, path.parent.name, str(path)


def _idx_pair(path: Path) -> Iterator[tuple[Any, str, str]]:
    if "images-idx" not in path.name:
        raise InputError(f"{path} is no folder of pictures and no IDX file (…images-idx3-ubyte): give one of them")
    beside = path.name.replace("images-idx3", "labels-idx1").replace("images-idx4", "labels-idx1")
    images, labels = read_idx(path), read_idx(path.with_name(beside))
    if len(images) != len(labels):
        raise InputError(f"{path} has {len(images)} pictures, {beside} {len(labels)} labels: they must match")
    for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        yield image, str(label), f"{path}, picture {number}"


def read_idx(path: Path) -> Bytes:
    """An array of bytes: 0 0 8 and the number of axes, the length of each in four bytes, the values."""
    must_be_there(path)
    raw = b"".join(unpacked(path))
    header = io.BytesIO(raw)
    zero, kind, axes = (int.from_bytes(header.read(size), "big") for size in (2, 1, 1))
    shape = tuple(int.from_bytes(header.read(4), "big") for _ in range(axes))
    if zero or kind != UNSIGNED or len(raw) != header.tell() + math.prod(shape):
        raise InputError(f"{path} is no whole IDX file of bytes: it was cut short, or is something else")
    return np.frombuffer(raw, np.uint8, offset=header.tell()).reshape(shape)


def hold_out_pictures(pictures: Pictures, share: float) -> tuple[Pictures, Pictures]:
    """The training and the held-out pictures, chosen by a hash of the pixels: the same on every machine, and equal
    pictures stay together."""
    contents = [pixels.tobytes() for pixels in pictures.pixels_NCHW]
    train, held = hold_out_by_hash(range(len(pictures)), contents, share, "pictures")
    return pictures.those(train), pictures.those(held)


class ImageBatches:
    """Endless batches, epoch after epoch, each in a new order: a function of the pictures, the seed and the step.

    normalise: bytes to what the model reads. shift, flip: in training a picture is moved by at most so many pixels in
    each direction, its border filled with 0, and mirrored half of the times. full: every batch has the same number of
    rows, empty ones where pictures are missing.
    """

    def __init__(
        self, pixels_NCHW: Bytes, labels_N: NDArray[np.int64], normalise: Callable[[Bytes], NDArray[np.float32]],
        rows: int, seed: int, shuffle: bool = True, full: bool = False, shift: int = 0, flip: bool = False,
    ) -> None:  # fmt: skip
        self.pixels_NCHW, self.labels_N, self.normalise = pixels_NCHW, labels_N, normalise
        self.rows, self.seed, self.shuffle, self.full = rows, seed, shuffle, full
        self.shift, self.flip = shift, flip
        self.per_epoch = -(-len(labels_N) // rows)

    def batch(self, step: int) -> LabelBatch:
        """The batch of training step `step`, counted from 0 over all epochs."""
        epoch, at = divmod(step, self.per_epoch)
        count = len(self.labels_N)
        order = permutation(count, self.seed, epoch, 0) if self.shuffle else np.arange(count)
        examples = order[at * self.rows : (at + 1) * self.rows]
        pixels_BCHW = self.normalise(self._moved(self.pixels_NCHW[examples], step))
        inputs, labels_B = ImageInputs(torch.from_numpy(pixels_BCHW)), torch.from_numpy(self.labels_N[examples])
        batch = LabelBatch(inputs, labels_B, examples=tuple(examples.tolist()))
        return batch.pad(self.rows) if self.full else batch

    def epoch(self, epoch: int = 0) -> Iterator[LabelBatch]:
        return (self.batch(epoch * self.per_epoch + at) for at in range(self.per_epoch))

    def _moved(self, pixels_BCHW: Bytes, step: int) -> Bytes:
        if not (self.shift or self.flip):
            return pixels_BCHW
        by, (height, width) = self.shift, pixels_BCHW.shape[2:]
        wide = np.pad(pixels_BCHW, ((0, 0), (0, 0), (by, by), (by, by)))
        words_B3 = raw_words(3 * len(pixels_BCHW), self.seed, step, 1).reshape(-1, 3)
        moved = np.empty_like(pixels_BCHW)
        drawn_B3 = words_B3 % np.array([2 * by + 1, 2 * by + 1, 2], np.uint64)
        for row, (down, right, mirrored) in enumerate(drawn_B3.tolist()):
            cut = wide[row, :, down : down + height, right : right + width]
            moved[row] = cut[..., ::-1] if self.flip and mirrored else cut
        return moved

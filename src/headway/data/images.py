"""Labelled pictures from files, and batches of them.

What a place is, is decided by its name:
- a folder has a folder for each label, with pictures in it;
- a .csv, .tsv or .jsonl has a column with paths of pictures, from its own folder on, and one with labels;
- a .npz has an array of pictures (N, H, W) or (N, H, W, C), of bytes, and one of labels (N);
- `train-images-idx3-ubyte.gz` has pictures (LeCun's format of MNIST), and the file beside it, called `labels-idx1` in
  place of `images-idx3`, their labels.

N pictures, B rows, C channels, H height, W width.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.data.augment import Augment, AugmentedBatch, ImageInputs
from headway.data.batches import order_of
from headway.data.examples import Example, Wanted, arrays_in, labelled_files, read_all
from headway.data.image_files import SUFFIXES, Bytes, picture
from headway.data.labelled import LabelBatch
from headway.data.readers import must_be_there, unpacked
from headway.data.split import hold_out_by_hash
from headway.errors import InputError

UNSIGNED = 8  # the code of bytes in the header of an IDX file
PICTURES = Wanted("pictures", SUFFIXES)
PLAIN = Augment()


@dataclass(frozen=True)
class Pictures:
    """Pictures of one size with their labels as they are written, and where each is from: of bytes, or spectrograms."""

    pixels_NCHW: NDArray[Any]
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


def read_pictures(
    places: Sequence[str | Path], channels: int, size: tuple[int, int], broken: str = "refuse",
    say: Callable[[str], None] = lambda line: None, read: Callable[[Any], Bytes] | None = None,
) -> Pictures:  # fmt: skip
    """The pictures of all files and folders, in order. broken: see `read_all`. read: of one picture; scaled to `size`,
    as a rule."""
    one = read or partial(picture, channels=channels, size=size)
    pixels, labels, names = read_all(places, _examples, one, PICTURES, broken, say)
    return Pictures(np.stack(pixels), labels, names)


def _examples(place: Path) -> Iterator[Example]:
    if (files := labelled_files(place, PICTURES)) is not None:
        return files
    if place.suffix == ".npz":
        return _arrays(place)
    if "images-idx" in place.name:
        return _idx_pair(place)
    must_be_there(place)
    raise InputError(
        f"{place} is no folder of pictures, no table with their paths (.csv), no .npz and no IDX file "
        "(…images-idx3-ubyte): give one of them"
    )


def _arrays(place: Path) -> Iterator[Example]:
    arrays = list(arrays_in(place).values())
    images = [array for array in arrays if array.ndim in (3, 4)]
    labels = [array for array in arrays if array.ndim == 1]
    if len(images) != 1 or len(labels) != 1 or len(images[0]) != len(labels[0]):
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise InputError(f"{place} must have one array of pictures (N, H, W[, C]) and one of labels (N), not {shapes}")
    for number, (image, label) in enumerate(zip(images[0], labels[0].tolist(), strict=True)):
        yield image, str(label), f"{place}, picture {number}"


def _idx_pair(path: Path) -> Iterator[Example]:
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

    mean, std: of each channel, in the units of the pixels. draws: what training pictures go through (`Draws`), None for
    nothing. full: every batch has the same number of rows, empty ones where pictures are missing.
    """

    def __init__(
        self, pixels_NCHW: NDArray[Any], labels_N: NDArray[np.int64], mean_C11: NDArray[np.float32],
        std_C11: NDArray[np.float32], rows: int, seed: int, shuffle: bool = True, full: bool = False,
        draws: Any = None,
    ) -> None:  # fmt: skip
        self.pixels_NCHW, self.labels_N = pixels_NCHW, labels_N
        self.mean_C11, self.std_C11 = torch.from_numpy(mean_C11), torch.from_numpy(std_C11)
        self.rows, self.seed, self.shuffle, self.full = rows, seed, shuffle, full
        self.draws = draws
        self.per_epoch = -(-len(labels_N) // rows)

    def batch(self, step: int) -> LabelBatch | AugmentedBatch:
        """The batch of training step `step`, counted from 0 over all epochs."""
        epoch, at = divmod(step, self.per_epoch)
        count = len(self.labels_N)
        order = order_of(count, self.seed, epoch, self.shuffle)
        examples = order[at * self.rows : (at + 1) * self.rows]
        batch = self._plain(examples) if self.draws is None else self._augmented(examples, step)
        return batch.pad(self.rows) if self.full else batch

    def epoch(self, epoch: int = 0) -> Iterator[LabelBatch | AugmentedBatch]:
        return (self.batch(epoch * self.per_epoch + at) for at in range(self.per_epoch))

    def _plain(self, examples: NDArray[np.int64]) -> LabelBatch:
        pixels_BCHW = torch.from_numpy(self.pixels_NCHW[examples]).float()
        inputs = ImageInputs((pixels_BCHW - self.mean_C11) / self.std_C11)
        return LabelBatch(inputs, self._labels(examples), examples=tuple(examples.tolist()))

    def _augmented(self, examples: NDArray[np.int64], step: int) -> AugmentedBatch:
        pictures = self.draws.pictures(self.pixels_NCHW[examples], self.seed, step, 1)
        mixed: dict[str, Any] = {}
        if self.draws.augment.mixes:
            others = np.roll(examples, 1)  # any other: the order is random
            share_B, box_B4 = self.draws.mixture(len(examples), self.seed, step, 2)
            mixed = {
                "others": self.draws.pictures(self.pixels_NCHW[others], self.seed, step, 3),
                "other_labels_B": self._labels(others), "share_B": share_B, "box_B4": box_B4,
            }  # fmt: skip
        return AugmentedBatch(
            pictures, self.mean_C11, self.std_C11, self._labels(examples), **mixed, examples=tuple(examples.tolist())
        )

    def _labels(self, examples: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(self.labels_N[examples])

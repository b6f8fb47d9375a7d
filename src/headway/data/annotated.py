"""Pictures with what is in them: boxes with labels, a label for every pixel, captions.

B rows, N pictures, M the most boxes of a picture, C channels, H height, W width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.batch import IGNORED, Batch, column
from headway.data.augment import ImageInputs, generator
from headway.data.batches import order_of
from headway.data.image_files import Bytes
from headway.data.split import hold_out_by_hash
from headway.errors import refuse

Boxes = NDArray[np.float32]
Ints = NDArray[np.int64]
Shorts = NDArray[np.int16]
BACKGROUND = "background"
ENOUGH = 0.3  # of a box that is cut


@dataclass(frozen=True)
class Annotated:
    """Pictures of one size and what is in them.

    kinds: the names of the labels. boxes_NM4: left, top, right and bottom, as shares of width and height; labels_NM:
    the kind of each, IGNORED where a picture has fewer boxes. masks_NHW: 0 for the background, else 1 and the kind.
    objects_NHW: 0 for the background, else 1 and the number of a box among those of the picture. captions: those of
    each picture.
    """

    pixels_NCHW: Bytes
    kinds: tuple[str, ...]
    boxes_NM4: Boxes
    labels_NM: Ints
    masks_NHW: Bytes
    objects_NHW: Shorts
    captions: tuple[tuple[str, ...], ...]
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.pixels_NCHW)

    def those(self, at: Sequence[int] | Ints) -> Annotated:
        """Some of them, by their numbers."""
        rows = np.asarray(at, np.int64)
        arrays = (self.boxes_NM4[rows], self.labels_NM[rows], self.masks_NHW[rows], self.objects_NHW[rows])
        captions = tuple(self.captions[i] for i in rows.tolist())
        return Annotated(
            self.pixels_NCHW[rows], self.kinds, *arrays, captions, tuple(self.names[i] for i in rows.tolist())
        )

    def boxes(self, row: int) -> tuple[Boxes, Ints]:
        """Those of one picture, and their kinds."""
        there_M = self.labels_NM[row] != IGNORED
        return self.boxes_NM4[row, there_M], self.labels_NM[row, there_M]

    def labelled(self, row: int) -> Shorts:
        """(H, W): of one picture's objects, 0 for the background, else 1 and the kind."""
        labels_O = np.concatenate([[0], self.labels_NM[row] + 1])  # IGNORED is background
        return labels_O.astype(np.int16)[self.objects_NHW[row]]

    def outlines(self, row: int) -> NDArray[np.bool_]:
        """(K, H, W): the pixels of each of one picture's `boxes`."""
        [at_K] = np.nonzero(self.labels_NM[row] != IGNORED)
        return self.objects_NHW[row] == at_K[:, None, None] + 1

    @property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.pixels_NCHW, self.boxes_NM4, self.labels_NM, self.masks_NHW, self.objects_NHW):
            digest.update(np.ascontiguousarray(array).data)
        digest.update(repr((self.kinds, self.captions)).encode())
        return digest.hexdigest()


def joined(parts: Sequence[Annotated]) -> Annotated:
    """Those of several files; they must name the same kinds."""
    first, most = parts[0], max(part.labels_NM.shape[1] for part in parts)
    for part in parts[1:]:
        refuse(part.kinds != first.kinds, f"{part.names[0]} has the kinds {part.kinds}, {first.names[0]} {first.kinds}")
    boxes = [np.pad(part.boxes_NM4, ((0, 0), (0, most - part.labels_NM.shape[1]), (0, 0))) for part in parts]
    labels = [
        np.pad(part.labels_NM, ((0, 0), (0, most - part.labels_NM.shape[1])), constant_values=IGNORED) for part in parts
    ]
    return Annotated(
        np.concatenate([part.pixels_NCHW for part in parts]), first.kinds, np.concatenate(boxes),
        np.concatenate(labels), _of_all([part.masks_NHW for part in parts]),
        _of_all([part.objects_NHW for part in parts]),
        tuple(some for part in parts for some in part.captions), tuple(name for part in parts for name in part.names),
    )  # fmt: skip


def _of_all(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Of all pictures, or of none where some have none."""
    return np.concatenate(parts if all(part.size for part in parts) else [part[:, :0, :0] for part in parts])


def hold_out_annotated(pictures: Annotated, share: float) -> tuple[Annotated, Annotated]:
    """The training and the held-out pictures, chosen by a hash of the pixels."""
    contents = [pixels.tobytes() for pixels in pictures.pixels_NCHW]
    train, held = hold_out_by_hash(range(len(pictures)), contents, share, "pictures")
    return pictures.those(train), pictures.those(held)


def mirrored(pictures: Annotated, chosen_N: NDArray[np.bool_]) -> Annotated:
    """Some of them with left and right exchanged, and what is in them too; captions stay."""
    left_NM4 = pictures.boxes_NM4[..., [2, 1, 0, 3]] * [-1, 1, -1, 1] + [1, 0, 1, 0]
    return replace(
        pictures,
        pixels_NCHW=np.where(chosen_N[:, None, None, None], pictures.pixels_NCHW[..., ::-1], pictures.pixels_NCHW),
        masks_NHW=np.where(chosen_N[:, None, None], pictures.masks_NHW[..., ::-1], pictures.masks_NHW),
        objects_NHW=np.where(chosen_N[:, None, None], pictures.objects_NHW[..., ::-1], pictures.objects_NHW),
        boxes_NM4=np.where(chosen_N[:, None, None], left_NM4, pictures.boxes_NM4).astype(np.float32),
    )


def cropped(pictures: Annotated, first_N2: NDArray[np.float64], share_N2: NDArray[np.float64]) -> Annotated:
    """A part of each picture, scaled up to its size by nearest pixels. first_N2: its left and top, share_N2: its width
    and height, as shares of the whole. Boxes are cut; those of which less than `ENOUGH` is left are dropped."""
    height, width = pictures.pixels_NCHW.shape[2:]
    pixels = np.empty_like(pictures.pixels_NCHW)
    masks, objects = pictures.masks_NHW.copy(), pictures.objects_NHW.copy()
    for n, ((left, top), (wide, high)) in enumerate(zip(first_N2, share_N2, strict=True)):
        rows_H1 = ((top + (np.arange(height) + 0.5) / height * high) * height).astype(np.int64)[:, None]
        columns_W = ((left + (np.arange(width) + 0.5) / width * wide) * width).astype(np.int64)
        pixels[n] = pictures.pixels_NCHW[n][:, rows_H1, columns_W]
        for new, old in ((masks, pictures.masks_NHW), (objects, pictures.objects_NHW)):
            if new.size:
                new[n] = old[n][rows_H1, columns_W]
    moved_NM22 = (pictures.boxes_NM4.reshape(*pictures.labels_NM.shape, 2, 2) - first_N2[:, None, None]) / share_N2[
        :, None, None
    ]
    cut_NM22 = moved_NM22.clip(0, 1)
    left_NM, whole_NM = ((part[:, :, 1] - part[:, :, 0]).prod(-1) for part in (cut_NM22, moved_NM22))
    kept_NM = (pictures.labels_NM != IGNORED) & (left_NM >= ENOUGH * whole_NM)
    return replace(
        pictures, pixels_NCHW=pixels, masks_NHW=masks, objects_NHW=objects,
        labels_NM=np.where(kept_NM, pictures.labels_NM, IGNORED),
        boxes_NM4=(cut_NM22.reshape(pictures.boxes_NM4.shape) * kept_NM[..., None]).astype(np.float32),
    )  # fmt: skip


@dataclass(frozen=True)
class PictureBatch(Batch):
    """Abstract. Pictures as bytes, which become `inputs` where the model is. mean_C11, std_C11: of each channel, in
    bytes. there_B: 1 for a picture, 0 for an empty row."""

    mean_C11: Tensor
    std_C11: Tensor
    pixels_BCHW: Tensor = column()
    there_B: Tensor = column()

    @property
    def inputs(self) -> ImageInputs:
        return ImageInputs((self.pixels_BCHW.float() - self.mean_C11) / self.std_C11)


@dataclass(frozen=True)
class MaskBatch(PictureBatch):
    """masks_BHW: the label of every pixel, 0 for the background."""

    masks_BHW: Tensor = column(empty=IGNORED)

    def counted(self) -> dict[str, float]:
        pixels = int((self.masks_BHW != IGNORED).sum())
        return {"loss": pixels, "nll": pixels, "tokens": int(self.there_B.sum())}


@dataclass(frozen=True)
class BoxBatch(PictureBatch):
    """boxes_BM4: as those of `Annotated`; labels_BM: IGNORED where there is no box."""

    boxes_BM4: Tensor = column()
    labels_BM: Tensor = column(pad=IGNORED)

    def counted(self) -> dict[str, float]:
        boxes = float(max(int((self.labels_BM != IGNORED).sum()), 1))
        return dict.fromkeys(("loss", "nll", "distance", "overlap"), boxes) | {"tokens": int(self.there_B.sum())}


@dataclass(frozen=True)
class ObjectBatch(BoxBatch):
    """objects_BHW: as those of `Annotated`."""

    objects_BHW: Tensor = column()

    def counted(self) -> dict[str, float]:
        counts = super().counted()
        return counts | dict.fromkeys(("focal", "dice"), counts["loss"])


Scale = tuple[NDArray[np.float32], NDArray[np.float32]]
Make = Callable[[Annotated, Any, tuple[int, ...]], Any]  # the pictures: fields of `PictureBatch`


def mask_batch(found: Annotated, pictures: Any, examples: tuple[int, ...]) -> MaskBatch:
    return MaskBatch(**pictures, masks_BHW=torch.from_numpy(found.masks_NHW.astype(np.int64)), examples=examples)


def box_batch(found: Annotated, pictures: Any, examples: tuple[int, ...]) -> BoxBatch:
    boxes, labels = torch.from_numpy(found.boxes_NM4), torch.from_numpy(found.labels_NM)
    return BoxBatch(**pictures, boxes_BM4=boxes, labels_BM=labels, examples=examples)


def object_batch(found: Annotated, pictures: Any, examples: tuple[int, ...]) -> ObjectBatch:
    boxes, labels = torch.from_numpy(found.boxes_NM4), torch.from_numpy(found.labels_NM)
    objects = torch.from_numpy(found.objects_NHW)
    return ObjectBatch(**pictures, boxes_BM4=boxes, labels_BM=labels, objects_BHW=objects, examples=examples)


class AnnotatedBatches:
    """Endless batches, epoch after epoch, each in a new order: a function of the pictures, the seed and the step.

    pick: the pictures of these numbers, drawn or from memory; count: how many an epoch has. make: `mask_batch`,
    `box_batch`, `object_batch`. scale: mean and standard deviation of each channel, in bytes. full: every batch has the
    same number of rows, empty ones where pictures are missing. flip: pictures are mirrored half of the times. zoom: a
    part of at least this share of each side is cut out (1: the whole).
    """

    def __init__(
        self, pick: Callable[[Ints], Annotated], count: int, make: Make, scale: Scale, rows: int, seed: int = 0,
        shuffle: bool = True, full: bool = False, flip: bool = False, zoom: float = 1.0,
    ) -> None:  # fmt: skip
        self.pick, self.count, self.make = pick, count, make
        self.mean_C11, self.std_C11 = map(torch.from_numpy, scale)
        self.rows, self.seed, self.shuffle, self.full = rows, seed, shuffle, full
        self.flip, self.zoom = flip, zoom
        self.per_epoch = -(-count // rows)

    def numbers(self, step: int) -> Ints:
        """Of the pictures of a step."""
        epoch, at = divmod(step, self.per_epoch)
        order = order_of(self.count, self.seed, epoch, self.shuffle)
        return order[at * self.rows : (at + 1) * self.rows]

    def batch(self, step: int) -> Any:
        """The batch of training step `step`, counted from 0 over all epochs."""
        numbers = self.numbers(step)
        found = self.pick(numbers)
        if self.flip:
            found = mirrored(found, generator(self.seed, step, 1).random(len(found)) < 0.5)
        if self.zoom < 1:
            draw_2N2 = generator(self.seed, step, 2).random((2, len(found), 2))
            share_N2 = self.zoom + (1 - self.zoom) * draw_2N2[0]
            found = cropped(found, (1 - share_N2) * draw_2N2[1], share_N2)
        pictures = {
            "mean_C11": self.mean_C11, "std_C11": self.std_C11, "pixels_BCHW": torch.from_numpy(found.pixels_NCHW),
            "there_B": torch.ones(len(found), dtype=torch.uint8),
        }  # fmt: skip
        batch = self.make(found, pictures, tuple(numbers.tolist()))
        return batch.pad(self.rows) if self.full else batch

    def epoch(self, epoch: int = 0) -> Iterator[Any]:
        return (self.batch(epoch * self.per_epoch + at) for at in range(self.per_epoch))


class DrawnBatches(AnnotatedBatches):
    """Batches of pictures that are drawn for each step and never seen again: `pick` takes numbers without end."""

    def numbers(self, step: int) -> Ints:
        return np.arange(step * self.rows, (step + 1) * self.rows)

"""Pictures with what is in them, from files.

A .npz has the arrays `pictures` (N, H, W, 3) or (N, H, W), of bytes, and of these what a task needs: `masks` (N, H, W);
`boxes` (K, 4), `labels` (K) and `rows` (K), and beside them `objects` (N, H, W); `captions` (N) or (N, M); `kinds`, the
names of the labels. A .json is that of COCO (Lin et al. 2014): `images`, whose files lie beside it, `annotations` with
boxes, masks or captions, `categories`.

N pictures, K boxes, M the most boxes, or captions, of a picture, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.batch import IGNORED
from headway.data.annotated import Annotated, Boxes, Ints, Shorts, joined
from headway.data.coco_masks import MOST, object_map
from headway.data.examples import arrays_in
from headway.data.image_files import Bytes, picture
from headway.data.readers import must_be_there
from headway.errors import InputError, refuse
from headway.outside import read_object


def save_annotated(path: Path, found: Annotated) -> None:
    """As an .npz that `read_annotated` reads; masks and captions where there are any."""
    row_K, at_K = np.nonzero(found.labels_NM != IGNORED)
    arrays: dict[str, NDArray[Any]] = {
        "pictures": found.pixels_NCHW.transpose(0, 2, 3, 1), "kinds": np.array(found.kinds, np.str_), "rows": row_K,
        "boxes": found.boxes_NM4[row_K, at_K], "labels": found.labels_NM[row_K, at_K],
    }  # fmt: skip
    if found.masks_NHW.size:
        arrays["masks"] = found.masks_NHW
    if found.objects_NHW.size:
        arrays["objects"] = _renumbered(found)
    if most := max(map(len, found.captions), default=0):
        arrays["captions"] = np.array([[*some, *[""] * (most - len(some))] for some in found.captions], np.str_)
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def _renumbered(found: Annotated) -> Shorts:
    """The objects by the numbers of the boxes that are written."""
    there_NM = found.labels_NM != IGNORED
    new_NO = np.pad(np.where(there_NM, there_NM.cumsum(1), 0), ((0, 0), (1, 0)))
    return new_NO[np.arange(len(found))[:, None, None], found.objects_NHW].astype(np.int16)


def read_annotated(
    places: Sequence[str | Path], channels: int, size: tuple[int, int], needs: str,
    read: Callable[[Any], Bytes] | None = None,
) -> Annotated:  # fmt: skip
    """The pictures of all files, in order, scaled to `size`. needs: what must be there beside them: masks, boxes,
    objects or captions."""
    return joined([_read(Path(place), channels, size, needs, read) for place in places])


def _read(
    place: Path, channels: int, size: tuple[int, int], needs: str, read: Callable[[Any], Bytes] | None
) -> Annotated:
    must_be_there(place)
    if place.suffix not in FORMS:
        raise InputError(
            f"{place} is no .npz with the arrays pictures and {needs}, and no .json as COCO has it: give one"
        )
    arrays = FORMS[place.suffix](place, needs)
    for name in ("pictures", needs):
        refuse(name not in arrays, f"{place} has no array '{name}' (it has {', '.join(arrays) or 'none'})")
    pictures = arrays["pictures"]
    one = read or partial(picture, channels=channels, size=size)
    count = len(pictures)
    boxes_NM4, labels_NM = _boxes(place, arrays, count)
    kinds = tuple(arrays["kinds"].astype(np.str_).tolist()) if "kinds" in arrays else _numbered(place, arrays)
    most = int(labels_NM.max(initial=IGNORED))
    refuse(most >= len(kinds), f"{place} has the label {most}, and {len(kinds)} kinds")
    return Annotated(
        np.stack(list(map(one, pictures))), kinds, boxes_NM4, labels_NM,
        _masks(place, arrays, size, len(kinds)), _objects(place, arrays, size, labels_NM),
        _captions(place, arrays, count),
        tuple(arrays.get("names", (f"{place}, picture {number}" for number in range(count)))),
    )  # fmt: skip


def _shown(array: NDArray[Any]) -> str:
    return f"{array.dtype} {array.shape}"


def _numbered(place: Path, arrays: dict[str, Any]) -> tuple[str, ...]:
    """Names for labels that the file does not name."""
    most = int(arrays["labels"].max(initial=-1)) + 1 if "labels" in arrays else 0
    masks = int(arrays["masks"].max(initial=0)) if "masks" in arrays else 0
    return tuple(map(str, range(max(most, masks))))


def _boxes(place: Path, arrays: dict[str, Any], count: int) -> tuple[Boxes, Ints]:
    """Padded to the most boxes of a picture; none where the file has none."""
    if "boxes" not in arrays:
        return np.zeros((count, 0, 4), np.float32), np.zeros((count, 0), np.int64)
    boxes_K4 = arrays["boxes"]
    for name in ("labels", "rows"):
        refuse(name not in arrays, f"{place} has boxes and no array '{name}': each box needs its label and its picture")
    label_K, row_K = arrays["labels"], arrays["rows"]
    if boxes_K4.ndim != 2 or boxes_K4.shape[1] != 4 or not len(boxes_K4) == len(label_K) == len(row_K):
        raise InputError(f"{place}: boxes (K, 4) need K labels and K rows, not {_shown(boxes_K4)}, {_shown(label_K)}")
    boxes_K4 = boxes_K4.astype(np.float32)
    wrong = ~np.isfinite(boxes_K4).all(1) | (boxes_K4[:, 2:] <= boxes_K4[:, :2]).any(1)
    wrong |= (boxes_K4 < 0).any(1) | (boxes_K4 > 1).any(1)
    if wrong.any():
        at = int(wrong.argmax())
        raise InputError(f"{place}: box {at} is {boxes_K4[at].tolist()}: left, top, right, bottom must be shares of "
                         "the picture, from 0 to 1, and left of right, top above bottom")  # fmt: skip
    refuse(((row_K < 0) | (row_K >= count)).any(), f"{place}: rows must name pictures from 0 to {count - 1}")
    refuse((label_K < 0).any(), f"{place}: a label is negative: labels count from 0 on")
    each_N = np.bincount(row_K, minlength=count)
    boxes_NM4 = np.zeros((count, each_N.max(initial=0), 4), np.float32)
    labels_NM = np.full(boxes_NM4.shape[:2], IGNORED, np.int64)
    order = np.argsort(row_K, kind="stable")
    at_K = np.concatenate([np.arange(some) for some in each_N]) if len(order) else order
    boxes_NM4[row_K[order], at_K], labels_NM[row_K[order], at_K] = boxes_K4[order], label_K[order]
    return boxes_NM4, labels_NM


def _masks(place: Path, arrays: dict[str, Any], size: tuple[int, int], kinds: int) -> Bytes:
    if "masks" not in arrays:
        return np.zeros((len(arrays["pictures"]), 0, 0), np.uint8)
    masks_NHW, shape = arrays["masks"], arrays["pictures"].shape[:3]
    if masks_NHW.dtype != np.uint8 or masks_NHW.shape != shape:
        raise InputError(f"{place}: masks must be bytes of the pictures' size {shape}, not {_shown(masks_NHW)}")
    refuse(int(masks_NHW.max(initial=0)) > kinds, f"{place}: a mask has {masks_NHW.max()}, there are {kinds} kinds")
    return np.ascontiguousarray(_nearest(masks_NHW, size))


def _nearest(labels_NHW: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """Scaled by nearest pixels: a label between two labels is none."""
    sides = zip(labels_NHW.shape[-2:], size, strict=True)
    rows_H, columns_W = (((np.arange(new) + 0.5) * old // new).astype(int) for old, new in sides)
    return labels_NHW[..., rows_H[:, None], columns_W]


def _objects(place: Path, arrays: dict[str, Any], size: tuple[int, int], labels_NM: Ints) -> Shorts:
    """Each map scaled to `size`: those of a .json have the sizes of their pictures."""
    if "objects" not in arrays:
        return np.zeros((len(labels_NM), 0, 0), np.int16)
    maps, each_N = arrays["objects"], (labels_NM != IGNORED).sum(1)
    if isinstance(maps, np.ndarray):
        shape = arrays["pictures"].shape[:3]
        if maps.dtype.kind not in "iu" or maps.shape != shape:
            raise InputError(
                f"{place}: objects must be whole numbers of the pictures' size {shape}, not {_shown(maps)}"
            )
        refuse("boxes" not in arrays, f"{place} has objects and no array 'boxes': each object needs its box")
        for number, (map_HW, boxes) in enumerate(zip(maps, each_N.tolist(), strict=True)):
            least, most = int(map_HW.min()), int(map_HW.max())
            refuse(least < 0 or most > min(boxes, MOST),
                   f"{place}: picture {number} has {boxes} boxes, and objects from {least} to {most}")  # fmt: skip
    return np.stack([_nearest(map_HW, size).astype(np.int16) for map_HW in maps])


def _captions(place: Path, arrays: dict[str, Any], count: int) -> tuple[tuple[str, ...], ...]:
    if "captions" not in arrays:
        return ((),) * count
    texts = arrays["captions"]
    if texts.dtype.kind != "U" or texts.ndim not in (1, 2) or len(texts) != count:
        raise InputError(f"{place}: captions must be texts (N) or (N, K) of {count} pictures, not {_shown(texts)}")
    rows = texts.reshape(count, -1).tolist()
    found = tuple(tuple(text for text in row if text.strip()) for row in rows)
    if () in found:
        raise InputError(f"{place}: picture {found.index(())} has no caption")
    return found


def _arrays(place: Path, needs: str) -> dict[str, Any]:
    arrays: dict[str, Any] = arrays_in(place)
    pictures = arrays.get("pictures", np.zeros((1, 1, 1), np.uint8))
    if pictures.dtype != np.uint8 or pictures.ndim not in (3, 4) or not pictures.size:
        raise InputError(f"{place}: pictures must be bytes (N, H, W, 3) or (N, H, W), not {_shown(pictures)}")
    return arrays


def _coco(place: Path, needs: str) -> dict[str, Any]:
    """As the arrays of a .npz, with paths in place of pictures; masks are decoded where they are needed."""
    facts = read_object(place)
    images, notes, categories = (_rows(facts, key, place) for key in ("images", "annotations", "categories"))
    refuse(not images, f"{place} has no images")
    at = {_whole(image, "id", place): number for number, image in enumerate(images)}
    refuse(len(at) < len(images), f"{place}: two images have the same id")
    kinds = {_whole(one, "id", place): str(one.get("name", one["id"])) for one in categories}
    number_of = {key: number for number, key in enumerate(sorted(kinds))}
    sizes = [(_whole(image, "width", place), _whole(image, "height", place)) for image in images]
    boxes, labels, rows = [], [], []
    outlines: list[list[Any]] = [[] for _ in images]
    captions: list[list[str]] = [[] for _ in images]
    for note in notes:
        row = at.get(_whole(note, "image_id", place))
        if row is None:
            raise InputError(f"{place}: an annotation is of image {note['image_id']}, which is not among the images")
        if isinstance(note.get("caption"), str):
            captions[row].append(note["caption"])
        if "bbox" in note and not note.get("iscrowd"):
            kind = _whole(note, "category_id", place)
            refuse(kind not in number_of, f"{place}: an annotation has the category {kind}, which is not declared")
            boxes.append(_edges(note["bbox"], *sizes[row], place))
            labels.append(number_of[kind])
            rows.append(row)
            outlines[row].append(note.get("segmentation"))
    files = [place.parent / str(image.get("file_name", "")) for image in images]
    found: dict[str, Any] = {"pictures": files, "names": tuple(map(str, files))}
    if boxes:
        found |= {"boxes": np.array(boxes, np.float32), "labels": np.array(labels), "rows": np.array(rows)}
        found["kinds"] = np.array([kinds[key] for key in sorted(kinds)], np.str_)
        if needs == "objects":
            found["objects"] = [object_map(some, size[::-1], place) for some, size in zip(outlines, sizes, strict=True)]
    if any(captions):
        most = max(map(len, captions))
        found["captions"] = np.array([[*some, *[""] * (most - len(some))] for some in captions], np.str_)
    return found


def _rows(facts: dict[str, Any], key: str, place: Path) -> list[dict[str, Any]]:
    rows = facts.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{place}: {key} must be a list of objects")
    return rows


def _whole(row: dict[str, Any], key: str, place: Path) -> int:
    value = row.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{place}: {key} must be a whole number, not {value!r}")
    return value


def _edges(box: Any, width: int, height: int, place: Path) -> list[float]:
    """Left, top, right and bottom as shares, of left, top, width and height in pixels; what reaches over the edge of
    the picture is cut off."""
    if not isinstance(box, list) or len(box) != 4 or not all(isinstance(value, int | float) for value in box):
        raise InputError(f"{place}: bbox must be four numbers, not {str(box)[:80]}")
    refuse(min(width, height) < 1, f"{place}: width and height of an image must be at least 1")
    left, top, wide, high = box
    edges = (left / width, top / height, (left + wide) / width, (top + high) / height)
    return [min(max(edge, 0.0), 1.0) for edge in edges]


FORMS: dict[str, Callable[[Path, str], dict[str, Any]]] = {".npz": _arrays, ".json": _coco}

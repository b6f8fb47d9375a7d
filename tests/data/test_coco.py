"""COCO's files: read as pycocotools reads them; what is wrong with one is said."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as library
from pycocotools.coco import COCO

from headway.data.annotated_files import read_annotated
from headway.data.coco_masks import outline_mask
from headway.errors import InputError

FACTS: dict[str, Any] = {
    "images": [
        {"id": 7, "file_name": "b.png", "width": 20, "height": 10},
        {"id": 3, "file_name": "a.png", "width": 10, "height": 10},
    ],
    "categories": [{"id": 9, "name": "dog"}, {"id": 2, "name": "cat"}],
    "annotations": [
        {"id": 1, "image_id": 7, "bbox": [2, 1, 8, 4.5], "category_id": 9, "area": 36, "iscrowd": 0},
        {"id": 2, "image_id": 7, "bbox": [-1, 0, 5, 12], "category_id": 2, "area": 60, "iscrowd": 0},
        {"id": 3, "image_id": 3, "bbox": [0, 0, 9, 9], "category_id": 2, "area": 81, "iscrowd": 1},
        {"id": 4, "image_id": 3, "caption": "a cat ."},
        {"id": 5, "image_id": 7, "caption": "two dogs"},
        {"id": 6, "image_id": 3, "caption": "one cat"},
    ],
}


def written(folder: Path, facts: Any) -> Path:
    for name, size in (("a.png", (10, 10)), ("b.png", (20, 10))):
        Image.fromarray(np.full((*size[::-1], 3), len(name) * 20, np.uint8)).save(folder / name)
    (folder / "all.json").write_text(json.dumps(facts))
    return folder / "all.json"


def test_boxes_and_captions_are_those_of_pycocotools(tmp_path: Path) -> None:
    path = written(tmp_path, FACTS)
    found = read_annotated([path], 3, (8, 8), "boxes")
    (tmp_path / "boxes.json").write_text(json.dumps(FACTS | {"annotations": FACTS["annotations"][:3]}))
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(tmp_path / "boxes.json"))
    assert found.kinds == ("cat", "dog") and [Path(name).name for name in found.names] == ["b.png", "a.png"]
    for row, image in enumerate(FACTS["images"]):
        wanted = [one for one in coco.loadAnns(coco.getAnnIds(image["id"])) if "bbox" in one and not one["iscrowd"]]
        boxes, labels = found.boxes(row)
        assert [found.kinds[label] for label in labels] == [coco.cats[one["category_id"]]["name"] for one in wanted]
        for box, one in zip(boxes, wanted, strict=True):
            left, top, wide, high = one["bbox"]
            edges = np.array([left, top, left + wide, top + high]) / ([image["width"], image["height"]] * 2)
            np.testing.assert_allclose(box, edges.clip(0, 1), rtol=1e-6)
    assert found.captions == (("two dogs",), ("a cat .", "one cat")) and found.pixels_NCHW.shape == (2, 3, 8, 8)
    again = read_annotated([path], 3, (8, 8), "captions")
    assert again.captions == found.captions


@pytest.mark.parametrize(
    ("change", "line"),
    [({"images": []}, "has no images"), ({"images": 3}, "images must be a list"),
     ({"images": [{"id": "x"}]}, "id must be a whole number"),
     ({"images": [FACTS["images"][0]] * 2}, "the same id"),
     ({"images": FACTS["images"][:1]}, "is of image 3, which is not among"),
     ({"categories": []}, "has the category 9, which is not declared"),
     ({"annotations": [FACTS["annotations"][0] | {"bbox": [1, 2]}]}, "bbox must be four numbers"),
     ({"annotations": [FACTS["annotations"][0] | {"bbox": [30, 2, 4, 4]}]}, "box 0 is"),
     ({"annotations": FACTS["annotations"][3:]}, "has no array 'boxes'"),
     ({"images": [one | {"file_name": "c.png"} for one in FACTS["images"]]}, "there is no picture")],
)  # fmt: skip
def test_a_file_that_cannot_be_learned_from_is_refused(change: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=line):
        read_annotated([written(tmp_path, FACTS | change)], 3, (8, 8), "boxes")


def test_masks_are_not_read_from_such_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no array 'masks'"):
        read_annotated([written(tmp_path, FACTS)], 3, (8, 8), "masks")


def runs_of(mask_HW: Any) -> list[int]:
    """Lengths of runs down the columns, the first of them outside."""
    flat, runs, last = np.asarray(mask_HW).T.ravel(), [0], 0
    for value in flat.tolist():
        if value != last:
            runs.append(0)
            last = value
        runs[-1] += 1
    return runs


def outlined(**changes: Any) -> dict[str, Any]:
    """Boxes with masks of all three kinds: polygons, runs, and packed runs; a crowd is left out."""
    square, bar = np.zeros((10, 20), int), np.zeros((10, 10), int)
    square[1:6, 2:10], bar[:, 3:5] = 1, 1
    packed = library.encode(np.asfortranarray(bar.astype(np.uint8)))
    kinds = {
        1: [[1.0, 0.5, 9.0, 0.5, 9.0, 8.5, 1.0, 8.5], [12, 1, 18, 1, 15, 8]],
        2: {"size": [10, 20], "counts": runs_of(square)},
        3: {"size": [10, 10], "counts": packed["counts"].decode()},
    }
    notes = [one | {"segmentation": kinds[one["id"]], "iscrowd": 0} for one in FACTS["annotations"][:3]]
    crowd = notes[2] | {"id": 9, "iscrowd": 1, "segmentation": {"size": [10, 10], "counts": [0, 100]}}
    return FACTS | {"annotations": [*notes, crowd]} | changes


def test_masks_of_all_kinds_are_those_of_pycocotools(tmp_path: Path) -> None:
    path = written(tmp_path, outlined())
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(path))
    for size, image, row in (((10, 20), 7, 0), ((10, 10), 3, 1)):
        found = read_annotated([path], 3, size, "objects")
        wanted = [coco.annToMask(one) > 0 for one in coco.loadAnns(coco.getAnnIds(image)) if not one["iscrowd"]]
        outlines = found.outlines(row)
        assert len(outlines) == len(wanted) > 0
        np.testing.assert_array_equal(outlines.any(0), np.any(wanted, 0))
        smallest = min(range(len(wanted)), key=lambda at: wanted[at].sum())
        np.testing.assert_array_equal(outlines[smallest], wanted[smallest])  # a pixel of several is the smallest's
    assert read_annotated([path], 3, (5, 5), "objects").objects_NHW.shape == (2, 5, 5)
    assert not read_annotated([path], 3, (5, 5), "boxes").objects_NHW.size


def test_packed_runs_of_any_mask_are_unpacked(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    for size in ((1, 1), (3, 50), (40, 7), (300, 200)):
        for share in (0.0, 0.02, 0.5, 1.0):
            wanted = rng.random(size) < share
            packed = library.encode(np.asfortranarray(wanted.astype(np.uint8)))["counts"].decode()
            found = outline_mask({"size": list(size), "counts": packed}, size, tmp_path)
            np.testing.assert_array_equal(found, wanted)


def with_outline(outline: Any) -> dict[str, Any]:
    return outlined(annotations=[FACTS["annotations"][0] | {"segmentation": outline}])


@pytest.mark.parametrize(
    ("outline", "line"),
    [(None, "must be polygons, or `counts`"), ([], "has no polygon"), ([[1, 2, 3, 4]], "three or more points"),
     ([[1, 2, 3, 4, 5, "x"]], "three or more points"),
     ([[1, 2, 3, 4, 5, 1e12]], "three or more points"), ({"size": [10, 20]}, "`counts` that fill its `size`"),
     ({"size": [20, 10], "counts": [0, 200]}, "`counts` that fill its `size`"),
     ({"size": [10, 20], "counts": [0, 201]}, "`counts` that fill its `size`"),
     ({"size": [10, 20], "counts": [300, -100]}, "`counts` that fill its `size`"),
     ({"size": [10, 20], "counts": "zzzz" * 9}, "a segmentation"),
     ({"size": [10, 20], "counts": "é"}, "a segmentation")],
)  # fmt: skip
def test_a_mask_that_cannot_be_read_is_refused(outline: Any, line: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=line):
        read_annotated([written(tmp_path, with_outline(outline))], 3, (8, 8), "objects")


def test_without_pycocotools_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, outlined())
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    monkeypatch.delitem(sys.modules, "pycocotools.mask", raising=False)
    assert len(read_annotated([path], 3, (8, 8), "boxes")) == 2
    with pytest.raises(
        InputError, match=r"needs pycocotools, which is not installed: pip install 'headway\[detection\]'"
    ):
        read_annotated([path], 3, (8, 8), "objects")

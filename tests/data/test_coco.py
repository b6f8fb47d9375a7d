"""COCO's files: read as pycocotools reads them; what is wrong with one is said."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from headway.data.annotated_files import read_annotated
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

"""Pictures with what is in them: written and read, mirrored, batched; what is wrong with a file is said."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.batch import IGNORED
from headway.data.annotated import (
    AnnotatedBatches,
    DrawnBatches,
    box_batch,
    cropped,
    hold_out_annotated,
    mask_batch,
    mirrored,
    object_batch,
)
from headway.data.annotated_files import read_annotated, save_annotated
from headway.data.scenes import Scenes, drawn
from headway.errors import InputError

SCENES = Scenes()
SCALE = np.full((3, 1, 1), 10, np.float32), np.full((3, 1, 1), 2, np.float32)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    save_annotated(tmp_path / "scenes.npz", drawn(SCENES, 1, np.arange(12), 32))
    return tmp_path / "scenes.npz"


def test_what_is_written_is_read(store: Path) -> None:
    found, wanted = read_annotated([store], 3, (32, 32), "masks"), drawn(SCENES, 1, np.arange(12), 32)
    most = found.labels_NM.shape[1]
    assert (found.pixels_NCHW == wanted.pixels_NCHW).all() and (found.masks_NHW == wanted.masks_NHW).all()
    assert found.captions == wanted.captions and found.kinds == wanted.kinds
    for row in range(12):
        for mine, theirs in zip(found.boxes(row), wanted.boxes(row), strict=True):
            np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(found.outlines(row), wanted.outlines(row))
        np.testing.assert_array_equal(found.labelled(row), wanted.masks_NHW[row])
    twice = read_annotated([store, store], 3, (32, 32), "boxes")
    assert len(twice) == 24 and twice.labels_NM.shape[1] == most
    smaller = read_annotated([store], 1, (16, 16), "captions")
    assert smaller.pixels_NCHW.shape == (12, 1, 16, 16) and smaller.masks_NHW.shape == (12, 16, 16)
    np.testing.assert_array_equal(smaller.masks_NHW, wanted.masks_NHW[:, 1::2, 1::2])


def test_mirroring_keeps_boxes_around_their_masks() -> None:
    plain = drawn(SCENES, 2, np.arange(8), 32)
    chosen = np.arange(8) % 2 == 1
    found = mirrored(plain, chosen)
    np.testing.assert_array_equal(found.pixels_NCHW[0], plain.pixels_NCHW[0])
    np.testing.assert_array_equal(found.pixels_NCHW[1], plain.pixels_NCHW[1, :, :, ::-1])
    for row in range(8):
        for box, kind in zip(*found.boxes(row), strict=True):
            left, top, right, bottom = (box * 32).round().astype(int)
            inside = found.masks_NHW[row, top:bottom, left:right] == kind + 1
            assert inside.any(0).all() and inside.any(1).all()
        np.testing.assert_array_equal(found.labelled(row), found.masks_NHW[row])


def test_objects_lie_in_their_boxes_whatever_is_done_to_pictures(tmp_path: Path) -> None:
    plain = drawn(SCENES, 2, np.arange(8), 32)
    cut = cropped(mirrored(plain, np.ones(8, bool)), np.full((8, 2), [0.3, 0.1]), np.full((8, 2), 0.6))
    save_annotated(tmp_path / "cut.npz", cut)
    again = read_annotated([tmp_path / "cut.npz"], 3, (32, 32), "objects")
    for found in (plain, cut, again):
        for row in range(8):
            for (left, top, right, bottom), outline in zip(found.boxes(row)[0] * 32, found.outlines(row), strict=True):
                rows, columns = np.nonzero(outline)
                assert len(rows) and left - 1 <= columns.min() <= columns.max() <= right + 1
                assert top - 1 <= rows.min() <= rows.max() <= bottom + 1
    assert [len(again.boxes(row)[0]) for row in range(8)] == [len(cut.boxes(row)[0]) for row in range(8)]
    for row in range(8):
        np.testing.assert_array_equal(again.outlines(row), cut.outlines(row))
        np.testing.assert_array_equal(again.labelled(row), cut.labelled(row))


def test_files_of_which_some_have_no_masks_are_joined_without(store: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.npz"
    with np.load(store) as file:
        np.savez(bare, **{name: file[name] for name in file.files if name not in ("masks", "objects")})
    found = read_annotated([store, bare], 3, (32, 32), "boxes")
    assert len(found) == 24 and found.masks_NHW.shape == found.objects_NHW.shape == (24, 0, 0)


def test_a_part_that_is_cut_out_keeps_boxes_around_their_masks() -> None:
    plain = drawn(SCENES, 2, np.arange(6), 32)
    first, share = np.full((6, 2), [0.25, 0.0]), np.full((6, 2), [0.5, 0.75])
    found = cropped(plain, first, share)
    np.testing.assert_array_equal(found.pixels_NCHW[0][:, 1::4, 1::2][..., :4], plain.pixels_NCHW[0][:, 1:24:3, 8:12])
    kept = 0
    for row in range(6):
        for box, kind in zip(*found.boxes(row), strict=True):
            left, top, right, bottom = (box * 32).round().astype(int)
            assert (found.masks_NHW[row, top:bottom, left:right] == kind + 1).any()
            kept += 1
        assert (found.boxes_NM4[row] >= 0).all() and (found.boxes_NM4[row] <= 1).all()
    assert 0 < kept < (plain.labels_NM != IGNORED).sum()
    whole = cropped(plain, np.zeros((6, 2)), np.ones((6, 2)))
    np.testing.assert_array_equal(whole.pixels_NCHW, plain.pixels_NCHW)
    np.testing.assert_allclose(whole.boxes_NM4, plain.boxes_NM4)


def test_batches_are_a_function_of_seed_and_step_and_full_ones_do_not_count_empty_rows() -> None:
    pictures = drawn(SCENES, 3, np.arange(10), 32)
    for make in (mask_batch, box_batch, object_batch):
        how: dict[str, Any] = {"full": True, "flip": True, "zoom": 0.6}
        first, second = (AnnotatedBatches(pictures.those, 10, make, SCALE, 4, 7, **how) for _ in range(2))
        steps = [first.batch(step) for step in range(6)]
        assert sorted(i for batch in steps[:3] for i in batch.examples) == list(range(10))
        for step in (5, 2, 4):
            for (name, mine), (_, theirs) in zip(second.batch(step).tensors(), steps[step].tensors(), strict=True):
                assert mine.equal(theirs), name
        last = AnnotatedBatches(pictures.those, 10, make, SCALE, 4, 7, full=True).batch(2)
        assert len(last) == 4 and len(last.examples) == 2 and last.tokens == 2
        kept = {"mean_C11": last.mean_C11, "std_C11": last.std_C11, "pixels_BCHW": last.pixels_BCHW[:2]}
        whole = make(pictures.those(last.examples), kept | {"there_B": last.there_B[:2]}, ())
        assert last.counts["loss"] == whole.counts["loss"]
    plain = AnnotatedBatches(pictures.those, 10, mask_batch, SCALE, 4, shuffle=False).batch(0)
    np.testing.assert_allclose(plain.inputs.pixels_BCHW, (pictures.pixels_NCHW[:4].astype(np.float32) - 10) / 2)


def test_drawn_batches_never_show_a_scene_twice() -> None:
    batches = DrawnBatches(lambda at: drawn(SCENES, 1, at, 32), 8, mask_batch, SCALE, 4, 1)
    assert [batches.batch(step).examples for step in (0, 3)] == [(0, 1, 2, 3), (12, 13, 14, 15)]
    assert batches.per_epoch == 2


def test_held_out_pictures_are_the_same_each_time() -> None:
    pictures = drawn(SCENES, 3, np.arange(40), 32)
    train, held = hold_out_annotated(pictures, 0.2)
    assert len(train) + len(held) == 40 and len(held) > 0 and not set(train.names) & set(held.names)


def changed(store: Path, **arrays: Any) -> Path:
    with np.load(store) as file:
        kept = dict(file) | arrays
    np.savez(store, **{name: array for name, array in kept.items() if array is not None})
    return store


@pytest.mark.parametrize(
    ("needs", "arrays", "line"),
    [("masks", {"masks": None}, "has no array 'masks'"), ("boxes", {"pictures": None}, "has no array 'pictures'"),
     ("masks", {"pictures": np.zeros((12, 32, 32, 3))}, "pictures must be bytes"),
     ("masks", {"masks": np.zeros((12, 32, 31), np.uint8)}, "masks must be bytes of the pictures' size"),
     ("masks", {"masks": np.full((12, 32, 32), 9, np.uint8)}, "a mask has 9, there are 4 kinds"),
     ("boxes", {"labels": None}, "no array 'labels'"), ("boxes", {"boxes": np.zeros((3, 4))}, "need K labels"),
     ("boxes", {"boxes": np.array([[0.5, 0.5, 0.2, 0.6]]), "labels": np.zeros(1, int), "rows": np.zeros(1, int)},
      "box 0 is"),
     ("boxes", {"boxes": np.array([[0.1, 0.1, np.nan, 0.6]]), "labels": np.zeros(1, int), "rows": np.zeros(1, int)},
      "box 0 is"),
     ("boxes", {"boxes": np.array([[0.1, 0.1, 0.5, 0.6]]), "labels": np.zeros(1, int), "rows": np.full(1, 12)},
      "rows must name pictures from 0 to 11"),
     ("boxes", {"boxes": np.array([[0.1, 0.1, 0.5, 0.6]]), "labels": np.full(1, 7), "rows": np.zeros(1, int)},
      "has the label 7, and 4 kinds"),
     ("objects", {"objects": None}, "has no array 'objects'"),
     ("objects", {"objects": np.zeros((12, 32, 31), int)}, "objects must be whole numbers of the pictures' size"),
     ("objects", {"objects": np.zeros((12, 32, 32))}, "objects must be whole numbers of the pictures' size"),
     ("objects", {"objects": np.full((12, 32, 32), 9)}, "picture 0 has . boxes, and objects from 9 to 9"),
     ("objects", {"objects": np.full((12, 32, 32), -1)}, "objects from -1 to -1"),
     ("objects", {"boxes": None}, "has objects and no array 'boxes'"),
     ("captions", {"captions": np.array(["a"] * 11)}, "captions must be texts"),
     ("captions", {"captions": np.array(["a"] * 11 + [" "])}, "picture 11 has no caption")],
)  # fmt: skip
def test_a_file_that_cannot_be_learned_from_is_refused(
    needs: str, arrays: dict[str, Any], line: str, store: Path
) -> None:
    with pytest.raises(InputError, match=line):
        read_annotated([changed(store, **arrays)], 3, (32, 32), needs)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "b.npz").write_bytes(b"PK no archive")
    for name, line in (("a.txt", "is no .npz with"), ("b.npz", "is no whole .npz"), ("c.npz", "c.npz")):
        with pytest.raises(InputError, match=line):
            read_annotated([tmp_path / name], 3, (32, 32), "masks")
    with zipfile.ZipFile(tmp_path / "e.npz", "w") as archive:
        archive.writestr("pictures.npy", b"no array")
    with pytest.raises(InputError, match="e.npz is no whole .npz of plain arrays: pictures is none"):
        read_annotated([tmp_path / "e.npz"], 3, (32, 32), "masks")
    np.savez(tmp_path / "d.npz", pictures=np.zeros((2, 4, 4), np.uint8), masks=np.ones((2, 4, 4), np.uint8))
    found = read_annotated([tmp_path / "d.npz"], 3, (4, 4), "masks")
    assert found.kinds == ("0",) and found.captions == ((), ()) and (found.labels_NM == IGNORED).all()

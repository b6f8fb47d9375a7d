"""Drawn scenes: what is said of them is what is drawn."""

from __future__ import annotations

import re

import numpy as np
import pytest

from headway.batch import IGNORED
from headway.data.scenes import COLOURS, SHAPES, SIZES, Scenes, drawn
from headway.errors import InputError

OBJECT = rf"a ({'|'.join(SIZES)}) ({'|'.join(COLOURS)}) ({'|'.join(SHAPES)})"
CAPTION = re.compile(rf"{OBJECT}( (left of|above|below) {OBJECT})*")


@pytest.mark.parametrize("size", [32, 64])
def test_boxes_are_the_bounds_of_their_masks_and_shapes_do_not_touch(size: int) -> None:
    found = drawn(Scenes(), 5, np.arange(200), size)
    for row in range(200):
        boxes, kinds = found.boxes(row)
        covered = np.zeros((size, size), int)
        for box, kind in zip(boxes, kinds, strict=True):
            left, top, right, bottom = (box * size).round().astype(int)
            inside = found.masks_NHW[row, top:bottom, left:right] == kind + 1
            assert inside.any(0).all() and inside.any(1).all(), "the box is tight"
            covered[top:bottom, left:right] += 1
        assert covered.max() == 1 and (found.masks_NHW[row][covered == 0] == 0).all()


def test_a_caption_says_what_is_there_from_left_to_right() -> None:
    found = drawn(Scenes(), 6, np.arange(300))
    for row in range(300):
        [caption] = found.captions[row]
        assert CAPTION.fullmatch(caption), caption
        boxes, kinds = found.boxes(row)
        middle = (boxes[:, :2] + boxes[:, 2:]) / 2
        order = np.argsort(middle[:, 0])
        assert re.findall("|".join(SHAPES), caption) == [SHAPES[kinds[at]] for at in order]
        sizes = ["small" if (boxes[at, 2] - boxes[at, 0]) * 64 < 20 else "large" for at in order]
        assert re.findall("small|large", caption) == sizes
        named = re.findall("|".join(COLOURS), caption)
        for word, at in zip(named, order, strict=True):
            x, y = (middle[at] * 64).astype(int)
            seen = found.pixels_NCHW[row, :, y, x].astype(int)
            nearest = min(COLOURS, key=lambda name: sum(abs(seen - np.array(COLOURS[name]))))
            assert nearest == word
        for said, first, second in zip(re.findall("left of|above|below", caption), order, order[1:], strict=False):
            dx, dy = middle[second] - middle[first]
            assert said == ("left of" if dx >= abs(dy) else "above" if dy > 0 else "below")


def test_a_scene_is_a_function_of_its_seed_and_number() -> None:
    many, some, other = (drawn(Scenes(), seed, np.array(at)) for seed, at in ((1, range(50)), (1, [7, 3]), (2, [7])))
    for name in ("pixels_NCHW", "masks_NHW", "boxes_NM4", "labels_NM"):
        assert (getattr(many, name)[[7, 3]] == getattr(some, name)).all()
    assert many.captions[3] == some.captions[1] and (many.pixels_NCHW[7] != other.pixels_NCHW[0]).any()
    assert many.fingerprint != other.fingerprint
    large = drawn(Scenes(), 1, np.array([2**40]))  # numbers without end
    assert (large.labels_NM != IGNORED).any()


def test_grounds_are_plain_or_noisy_and_scenes_have_up_to_most_shapes() -> None:
    plain, noisy = (drawn(Scenes(most=3, noise=noise), 1, np.arange(100)) for noise in (0.0, 1.0))
    ground = plain.masks_NHW == 0
    for found, kinds in ((plain, 1), (noisy, 8)):
        each = [
            len(np.unique(pixels[:, there], axis=1).T) for pixels, there in zip(found.pixels_NCHW, ground, strict=True)
        ]
        assert (max(each) == 1) if kinds == 1 else (min(each) >= kinds)
    counts = (plain.labels_NM != IGNORED).sum(1)
    assert set(counts) == {1, 2, 3}


@pytest.mark.parametrize("wrong", [{"count": 0}, {"held": 0}, {"most": 17}, {"noise": 1.5}, {"noise": float("nan")}])
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"data.scenes.{next(iter(wrong))}"):
        Scenes(**wrong)  # type: ignore[arg-type]

"""The pictures of docs/scenes.md: drawn scenes with all that is known of them, and what trained models find.

    PYTHONPATH=src python benchmarks/scene_pictures.py --models runs/scenes

`--models` is where benchmarks/scenes.py left its runs; without it only the first picture is drawn.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from headway.data.annotated import Annotated
from headway.data.scenes import Scenes, drawn
from headway.generate.drawing import canvas, with_boxes, with_caption, with_masks
from headway.tasks.detection import with_objects
from headway.tasks.loading import load
from headway.tasks.seeing import HELD

DOCS = Path(__file__).parent.parent / "docs"
SHOWN = (1, 2, 3, 8)  # scenes of the test
SIDE, EDGE, TEXT = 256, 8, 80


def truth(scenes: Annotated, row: int) -> Any:
    """A scene with its masks, boxes and caption."""
    (boxes, kinds), value = scenes.boxes(row), pixels(scenes, row)
    image = with_boxes(canvas(value), boxes.tolist(), [scenes.kinds[kind] for kind in kinds], kinds.tolist())
    return with_caption(above(image, with_masks(canvas(value), scenes.masks_NHW[row])), scenes.captions[row][0])


def found(scenes: Annotated, row: int, segmenter: Any, detector: Any, captioner: Any, outliner: Any = None) -> Any:
    """The same of what the models say; below the masks by patches, where there is such a model, those of objects."""
    value = pixels(scenes, row)
    image = with_objects(canvas(value), detector.detect(value), detector.labels)
    image = above(image, with_masks(canvas(value), segmenter.segment(value).labels_HW))
    if outliner is not None:
        outlines = outliner.outline(value)
        masks = with_masks(canvas(value), outlines.labels_HW)
        image = above(image, with_objects(masks, outlines.objects, outliner.labels))
    return with_caption(image, captioner.caption(value))


def above(first: Any, second: Any) -> Any:
    """One picture on top of the other: the masks do not hide what colour a shape has."""
    whole = Image.new("RGB", (first.width, first.height + second.height + 2 * EDGE), "white")
    whole.paste(first, (0, 0))
    whole.paste(second, (0, first.height + 2 * EDGE))
    return whole


def pixels(scenes: Annotated, row: int) -> Any:
    return np.ascontiguousarray(scenes.pixels_NCHW[row].transpose(1, 2, 0))


def page(images: list[Any]) -> Any:
    """Side by side, on white."""
    high = SIDE * max(image.height / image.width for image in images)
    whole = Image.new("RGB", (len(images) * (SIDE + EDGE) - EDGE, round(high)), "white")
    for number, image in enumerate(images):
        scaled = image.resize((SIDE, round(SIDE * image.height / image.width)), Image.Resampling.LANCZOS)
        whole.paste(scaled, (number * (SIDE + EDGE), 0))
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, help="folder of the runs of benchmarks/scenes.py")
    options = parser.parse_args()
    scenes = drawn(Scenes(), HELD["test"], np.array(SHOWN))
    rows = range(len(SHOWN))
    page([truth(scenes, row) for row in rows]).save(DOCS / "scenes.png")
    if options.models:
        names = ("scenes-masks", "scenes-boxes", "scenes-captions")
        models = [load(next(options.models.glob(f"{name}*")), "cpu") for name in names]
        models += [load(place, "cpu") for place in sorted(options.models.glob("scenes-objects*"))[:1]]
        page([found(scenes, row, *models) for row in rows]).save(DOCS / "scenes-found.png")


if __name__ == "__main__":
    main()

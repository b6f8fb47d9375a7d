"""What is in drawn scenes: masks, boxes, both of each object, and captions, each beside simple answers that learn
nothing of shapes.

    PYTHONPATH=src python benchmarks/scenes.py --device cuda --parallel 3 --runs runs/scenes

Four recipes are trained (those that have ended are not trained again) and scored on scenes that none of them has seen.
With `--only` the record has the names of the recipes that were asked for.
The simple answers: the commonest (background everywhere, the mean box of each label, the commonest caption), and that
of the nearest of 10,000 other scenes by their pixels, averaged to 8 × 8.
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import os
from collections import Counter
from typing import Any

import numpy as np
from scores import trained
from side_by_side import side_by_side, training_options

from headway.data.annotated import Annotated
from headway.data.scenes import SHAPES, Scenes, drawn
from headway.evaluate.boxes import BoxScores, Compared, FoundBoxes, mask_overlaps
from headway.evaluate.captions import CaptionScores
from headway.evaluate.masks import OverlapScores
from headway.evaluate.objects import ObjectScores
from headway.tasks.detection import true_boxes
from headway.tasks.seeing import HELD

OTHERS = 10_000
RECIPES = ("scenes-masks", "scenes-boxes", "scenes-objects", "scenes-captions")


def thumbnails(pictures: Annotated) -> Any:
    """(N, 192): each picture averaged to 8 × 8."""
    count, channels, side, _ = pictures.pixels_NCHW.shape
    blocks = pictures.pixels_NCHW.reshape(count, channels, 8, side // 8, 8, side // 8)
    return blocks.mean((3, 5), dtype=np.float32).reshape(count, -1)


def nearest(known: Annotated, asked: Annotated) -> Any:
    """The number of the known picture that is most like each asked one."""
    a, b = thumbnails(asked), thumbnails(known)
    return ((b**2).sum(1) - 2 * a @ b.T).argmin(1)


def boxes_of_nearest(known: Annotated, at: Any) -> list[FoundBoxes]:
    return [FoundBoxes(*known.boxes(i), np.ones(len(known.boxes(i)[0]))) for i in at]


def objects_of_nearest(known: Annotated, asked: Annotated, at: Any) -> ObjectScores:
    found = boxes_of_nearest(known, at)
    pairs = [
        Compared(mask_overlaps(known.outlines(i), asked.outlines(row)), one.labels_D, one.scores_D, asked.boxes(row)[1])
        for row, (i, one) in enumerate(zip(at, found, strict=True))
    ]
    count, pixels = len(SHAPES), OverlapScores.of([(asked.masks_NHW, known.masks_NHW[at])], len(SHAPES) + 1)
    return ObjectScores(BoxScores.of_pairs(pairs, count), BoxScores.of(true_boxes(asked), found, count), pixels)


def mean_boxes(known: Annotated, count: int) -> list[FoundBoxes]:
    """The mean box of every label, the commoner the more certain, for any picture."""
    labels = range(len(known.kinds))
    boxes = np.stack([known.boxes_NM4[known.labels_NM == label].mean(0) for label in labels])
    shares = np.array([(known.labels_NM == label).mean() for label in labels])
    return [FoundBoxes(boxes, np.arange(len(boxes)), shares)] * count


def simple(known: Annotated, asked: Annotated) -> list[dict[str, Any]]:
    """The figures of answers that learn nothing."""
    at, count = nearest(known, asked), len(SHAPES) + 1
    common, _ = Counter(text for [text] in known.captions).most_common(1)[0]
    ground = np.zeros_like(asked.masks_NHW)
    true = true_boxes(asked)
    found: list[tuple[str, str, Any]] = [
        ("scenes-masks", "background everywhere", OverlapScores.of([(asked.masks_NHW, ground)], count)),
        ("scenes-masks", "nearest scene", OverlapScores.of([(asked.masks_NHW, known.masks_NHW[at])], count)),
        ("scenes-boxes", "mean boxes", BoxScores.of(true, mean_boxes(known, len(asked)), len(SHAPES))),
        ("scenes-boxes", "nearest scene", BoxScores.of(true, boxes_of_nearest(known, at), len(SHAPES))),
        ("scenes-objects", "nearest scene", objects_of_nearest(known, asked, at)),
        ("scenes-captions", "commonest caption", CaptionScores.of([common] * len(asked), asked.captions)),
        ("scenes-captions", "nearest scene", CaptionScores.of([known.captions[i][0] for i in at], asked.captions)),
    ]
    return [
        {"recipe": recipe, "who": who} | {name: round(value, 4) for name, value in scores.figures().items()}
        for recipe, who, scores in found
    ]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--held", type=int, default=1000, help="scenes of the test")
    options = training_options(parser, "scenes", seeds=1)
    os.environ.setdefault("PYTHONPATH", "src")
    jobs = [(recipe, seed) for recipe in options.only for seed in range(1, options.seeds + 1)]

    def train(job: tuple[str, int]) -> dict[str, Any]:
        recipe, seed = job
        settings = [f"engine.device={options.device}", f"engine.seed={seed}", f"data.scenes.held={options.held}"]
        return trained(recipe, f"{recipe}-seed-{seed}", options.runs, [*settings, *options.settings])

    rows: list[dict[str, Any]] = []
    for (recipe, seed), score in side_by_side(train, jobs, options.parallel).items():
        figures = {name.removeprefix("test "): value for name, value in score.items() if name.startswith("test ")}
        cost = {name: score[name] for name in ("parameters", "steps", "training seconds") if name in score}
        rows.append({"recipe": recipe, "who": "headway", "seed": seed} | figures | cost)
    scenes = Scenes(held=options.held)
    asked = drawn(scenes, HELD["test"], np.arange(options.held))
    rows += [row for row in simple(drawn(scenes, 1, np.arange(OTHERS)), asked) if row["recipe"] in options.only]
    name = "scenes" if set(options.only) == set(RECIPES) else "-".join(options.only)
    write(f"{name}-{options.device}", options.device, rows, options.out, scenes=options.held, others=OTHERS)


if __name__ == "__main__":
    main()

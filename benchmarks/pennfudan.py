"""People in streets: the 170 pictures of Penn-Fudan (Wang et al. 2007), five folds, 136 to learn from and 34 to judge.

    PYTHONPATH=src python benchmarks/pennfudan.py --source shared/data/pennfudan --device cuda --parallel 5

Boxes by `scenes-boxes` and masks by `scenes-masks`, at 128 × 128 pixels, each of which has learned from drawn scenes
first and from nothing else. Beside them what does not look at the picture: boxes at the five commonest places
(k-means over the training boxes), and the mask that most training pictures agree on.

`--source` has pennfudan256.tar.xz: FudanPed00001.jpg with FudanPed00001_mask.png, a number for each person.
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scores import trained
from side_by_side import mean, side_by_side, spread, training_options

from headway.data.annotated import Annotated, joined
from headway.data.annotated_files import read_annotated, save_annotated
from headway.evaluate.boxes import BoxScores, FoundBoxes
from headway.evaluate.masks import OverlapScores
from headway.tasks.detection import true_boxes
from headway.tasks.loading import load
from headway.tasks.segmentation import Segmentation

SIDE, FOLDS, PLACES = 128, 5, 5
SCENES = ["engine.steps=6000", "engine.batch=64", "schedule.peak=0.0008"]
FINE = ["engine.steps=1500", "engine.batch=32", "schedule.peak=0.0003", "schedule.warmup=100", "validation.every=250",
        "validation.score_every=250", "data.flip=true", "data.zoom=0.6"]  # fmt: skip
SHAPE = {
    "scenes-boxes": [f"model.image={SIDE}", "model.stem.layers=3"],
    "scenes-masks": [f"model.image={SIDE}", "model.patch=8"],
}


def pack(source: Path) -> Annotated:
    """All pictures, scaled to one size, with boxes around the people and their masks as one."""
    files: dict[str, Any] = {}
    with tarfile.open(source / "pennfudan256.tar.xz") as archive:
        for member in archive:
            raw = archive.extractfile(member)
            if raw is not None:
                files[Path(member.name).name] = Image.open(io.BytesIO(raw.read()))
    parts = []
    for name in sorted(name for name in files if name.endswith(".jpg")):
        people = np.asarray(files[name.replace(".jpg", "_mask.png")])
        boxes, objects = [], np.zeros(people.shape, np.int16)
        for number in range(1, int(people.max()) + 1):
            rows, columns = np.nonzero(people == number)
            if len(rows):
                edges = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
                boxes.append(np.array(edges, np.float32) / [*people.shape[::-1], *people.shape[::-1]])
                objects[rows, columns] = len(boxes)
        scaled = files[name].convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        nearest = Image.fromarray(objects.astype(np.uint8)).resize((SIDE, SIDE), Image.Resampling.NEAREST)
        numbers = np.asarray(nearest)[None]
        parts.append(Annotated(
            np.asarray(scaled).transpose(2, 0, 1)[None], ("person",), np.array(boxes, np.float32)[None],
            np.zeros((1, len(boxes)), np.int64), (numbers > 0).astype(np.uint8), numbers.astype(np.int16), ((),),
            (name,),
        ))  # fmt: skip
    return joined(parts)


def folds(source: Path, data: Path) -> None:
    """train-K.npz and test-K.npz of each fold; the order is one shuffle for all."""
    data.mkdir(parents=True, exist_ok=True)
    pictures = pack(source)
    order = np.random.default_rng(0).permutation(len(pictures))
    for fold in range(FOLDS):
        held = np.isin(np.arange(len(pictures)), order[fold::FOLDS])
        save_annotated(data / f"train-{fold}.npz", pictures.those(np.nonzero(~held)[0]))
        save_annotated(data / f"test-{fold}.npz", pictures.those(np.nonzero(held)[0]))


def fixed_boxes(train: Annotated, count: int) -> list[FoundBoxes]:
    """The commonest places of people, for any picture."""
    from sklearn.cluster import KMeans

    boxes = np.concatenate([one.boxes_D4 for one in true_boxes(train)])
    places = KMeans(PLACES, n_init=10, random_state=0).fit(boxes)
    shares = np.bincount(places.labels_, minlength=PLACES) / len(boxes)
    return [FoundBoxes(places.cluster_centers_, np.zeros(PLACES, int), shares)] * count


def fixed_mask(train: Annotated) -> Any:
    """Where training pictures have people, at the share of them that overlaps the training masks best."""
    mean_HW = (train.masks_NHW > 0).mean(0)
    shares = np.linspace(0.05, 0.95, 19)
    return max((mean_HW >= share for share in shares), key=lambda mask: overlap(train, mask))


def overlap(pictures: Annotated, given: Any) -> float:
    """IoU of people."""
    spread_NHW = np.broadcast_to(given, pictures.masks_NHW.shape).astype(np.uint8)
    return float(OverlapScores.of([(pictures.masks_NHW, spread_NHW)], 2).each[1])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--source", type=Path, help="folder of pennfudan256.tar.xz")
    parser.add_argument("--data", type=Path, default=Path("data/pennfudan"), help="folder of the packed pictures")
    options = training_options(parser, "pennfudan", seeds=1)
    if not (options.data / f"test-{FOLDS - 1}.npz").is_file():
        folds(options.source, options.data)
    device = [f"engine.device={options.device}"]

    def first(recipe: str) -> dict[str, Any]:
        return trained(recipe, f"drawn-{recipe}", options.runs, [*device, *SHAPE[recipe], *SCENES, *options.settings])

    def then(job: tuple[str, int]) -> dict[str, Any]:
        recipe, fold = job
        files = [f"data.{part}={options.data / f'{part}-{fold}.npz'}" for part in ("train", "test")]
        settings = [*device, *SHAPE[recipe], *FINE, *files, *options.settings]
        start = str(options.runs / f"drawn-{recipe}")
        return trained(recipe, f"{recipe}-fold-{fold}", options.runs, settings, init=start)

    side_by_side(first, list(SHAPE), options.parallel)
    jobs = [(recipe, fold) for fold in range(FOLDS) for recipe in SHAPE]
    found = side_by_side(then, jobs, options.parallel)
    rows = []
    for fold in range(FOLDS):
        train, test = (read_annotated([options.data / f"{part}-{fold}.npz"], 3, (SIDE, SIDE), "boxes")
                       for part in ("train", "test"))  # fmt: skip
        fixed = BoxScores.of(true_boxes(test), fixed_boxes(train, len(test)), 1)
        segmenter = load(options.runs / f"scenes-masks-fold-{fold}", options.device)
        masks = Segmentation.evaluate(segmenter, [str(options.data / f"test-{fold}.npz")], {}).values["each"]
        boxes = found["scenes-boxes", fold]
        rows.append({
            "fold": fold, "ap50": boxes["test ap50"], "map": boxes["test map"],
            "iou": round(masks["IoU of person"], 4), "fixed_ap50": round(fixed.ap50, 4),
            "fixed_map": round(fixed.map, 4), "fixed_iou": round(overlap(test, fixed_mask(train)), 4),
        })  # fmt: skip
    names = [name for name in rows[0] if name != "fold"]
    values = {name: [row[name] for row in rows] for name in names}
    rows.append({"fold": "mean"} | {name: mean(some) for name, some in values.items()})
    rows.append({"fold": "deviation"} | {name: spread(some) for name, some in values.items()})
    write(f"pennfudan-{options.device}", options.device, rows, options.out, pixels=SIDE)


if __name__ == "__main__":
    main()

"""Pictures and recordings in every form that headway reads, for files that are then damaged."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from worlds import pictures, sounds

from headway.data.scenes import Scenes, drawn

Make = Callable[[Path], None]


def many_forms_of_pictures(folder: Path) -> None:
    from PIL import Image

    pictures(folder)
    for label in ("dark", "light"):
        place = folder / "pictures" / label
        for number in range(8):
            (place / f"{number}.png").unlink()
        Image.open(place / "8.png").save(place / "8.jpg")
        Image.open(place / "9.png").convert("P").save(place / "9.png")
        Image.open(place / "10.png").convert("RGBA").save(place / "10.png")
        for suffix in ("webp", "avif", "tiff", "gif"):
            Image.open(place / "11.png").save(place / f"11.{suffix}")
        Image.fromarray(np.full((9, 7), 40_000, np.uint16)).save(place / "16.png")


def picture_table(folder: Path) -> None:
    pictures(folder)
    rows = [f"{place.relative_to(folder)},{place.parent.name}\n" for place in sorted(folder.glob("pictures/*/*.png"))]
    (folder / "all.csv").write_text("path,label\n" + "".join(rows), encoding="utf-8")


def picture_arrays(folder: Path) -> None:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (24, 8, 8, 3), dtype=np.uint8)
    np.savez_compressed(folder / "train.npz", pictures=pixels, labels=np.arange(24) % 3)


def many_forms_of_sounds(folder: Path) -> None:
    import soundfile

    sounds(folder)
    for label in ("low", "high"):
        place = folder / "sounds" / label
        samples, rate = soundfile.read(place / "0.wav")
        for suffix in ("flac", "ogg", "aiff"):
            soundfile.write(place / f"more.{suffix}", samples, rate)
        for number in range(2, 10):
            (place / f"{number}.wav").unlink()


def sound_arrays(folder: Path) -> None:
    random = np.random.default_rng(0)
    tones = (0.2 * random.standard_normal(24 * 600) * 32767).clip(-32767, 32767).astype(np.int16)
    shape = {"lengths": np.full(24, 600), "rate": np.array(8000), "labels": np.arange(24) % 3}
    np.savez_compressed(folder / "train.npz", sounds=tones, **shape)


def numbered_pictures(packed: bool) -> Make:
    def make(folder: Path) -> None:
        random = np.random.default_rng(0)
        arrays = {"images-idx3": random.integers(0, 2, (30, 8, 8), np.uint8) * 255, "labels-idx1": np.arange(30) % 3}
        for name, array in arrays.items():
            head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
            data = head + array.astype(np.uint8).tobytes()
            path = folder / f"train-{name}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(data) if packed else data)

    return make


def coco_scenes(folder: Path) -> None:
    """Pictures beside a .json of COCO's form, whose masks are polygons, runs and packed runs."""
    from PIL import Image
    from pycocotools import mask

    found = drawn(Scenes(most=2), 3, np.arange(9), 16)
    images = [{"id": row, "file_name": f"{row}.png", "width": 16, "height": 16} for row in range(len(found))]
    notes = []
    for row in range(len(found)):
        Image.fromarray(found.pixels_NCHW[row].transpose(1, 2, 0)).save(folder / f"{row}.png")
        for (left, top, right, bottom), kind, outline in zip(*found.boxes(row), found.outlines(row), strict=True):
            packed = mask.encode(np.asfortranarray(outline.astype(np.uint8)))
            a, b, c, d = (float(edge) * 16 for edge in (left, top, right, bottom))
            ends = np.nonzero(np.diff(outline.T.ravel().astype(np.int8)))[0] + 1
            runs = np.diff([0, *ends, outline.size]).tolist()
            kinds = ([[a, b, c, b, c, d, a, d]], {"size": [16, 16], "counts": packed["counts"].decode()},
                     {"size": [16, 16], "counts": ([0] if outline[0, 0] else []) + runs})  # fmt: skip
            notes.append({"image_id": row, "category_id": int(kind), "bbox": [a, b, c - a, d - b],
                          "segmentation": kinds[len(notes) % 3]})  # fmt: skip
    names = [{"id": number, "name": name} for number, name in enumerate(found.kinds)]
    facts = {"images": images, "annotations": notes, "categories": names}
    (folder / "all.json").write_text(json.dumps(facts), encoding="utf-8")

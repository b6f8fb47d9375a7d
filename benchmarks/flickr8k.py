"""Captions of Flickr8k's pictures at 64 × 64 pixels (Hodosh et al. 2013, the official 6,000, 1,000 and 1,000), by a
model that learns from nothing else, beside two that are simpler: the caption of the nearest training picture, and a
language model of the captions that does not see (the same model, shown one grey picture).

    PYTHONPATH=src python benchmarks/flickr8k.py --source shared/data/flickr8k --device cuda --parallel 2

`--source` has images64.tar.xz (AVIF) and captions.tsv.xz (split, file, caption). They are packed once as headway reads
them, into `--data`; Pillow 11.3 or later reads AVIF. The pictures are lossy: centre crops at 64 pixels, AVIF, quality
45, and what is reached with them says nothing of the whole pictures.
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import io
import lzma
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scenes import nearest
from scores import trained
from side_by_side import side_by_side, training_options

from headway.data.annotated import Annotated
from headway.data.annotated_files import read_annotated
from headway.evaluate.captions import CaptionScores

PARTS = {"train": "train", "valid": ("dev", "valid", "val", "validation"), "test": "test"}
SIDE = 64
RECIPE = "flickr8k-captions"


def pack(source: Path, data: Path) -> None:
    """train.npz, valid.npz and test.npz of pictures and captions, and those of one grey picture with each caption."""
    captions: dict[tuple[str, str], list[str]] = {}
    with lzma.open(source / "captions.tsv.xz", "rt", encoding="utf-8") as file:
        for line in file:
            part, name, text = line.rstrip("\n").split("\t")
            captions.setdefault((part, Path(name).stem), []).append(text)
    pictures: dict[tuple[str, str], Any] = {}
    with tarfile.open(source / "images64.tar.xz") as archive:
        for member in archive:
            if not member.isfile():
                continue
            raw = archive.extractfile(member)
            assert raw is not None
            with Image.open(io.BytesIO(raw.read())) as image:
                path = Path(member.name)
                pictures[path.parent.name, path.stem] = np.asarray(image.convert("RGB"), np.uint8)
    data.mkdir(parents=True, exist_ok=True)
    for part, names in PARTS.items():
        known = [key for key in captions if key[0] in ((names,) if isinstance(names, str) else names)]
        texts = np.array([[*captions[key], *[""] * 5][:5] for key in known], np.str_)
        seen = np.stack([pictures[key] for key in known])
        np.savez_compressed(data / f"{part}.npz", pictures=seen, captions=texts)
        np.savez_compressed(data / f"blind-{part}.npz", pictures=np.full_like(seen, 128), captions=texts)
        print(f"{part}: {len(known):,} pictures", flush=True)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--source", type=Path, help="folder of images64.tar.xz and captions.tsv.xz")
    parser.add_argument("--data", type=Path, default=Path("data/flickr8k"), help="folder of the packed pictures")
    options = training_options(parser, "flickr8k", seeds=1)
    if not (options.data / "blind-test.npz").is_file():
        pack(options.source, options.data)
    jobs = [(who, seed) for seed in range(1, options.seeds + 1) for who in ("", "blind-")]

    def train(job: tuple[str, int]) -> dict[str, Any]:
        who, seed = job
        files = [f"data.{part}={options.data / f'{who}{part}.npz'}" for part in PARTS]
        settings = [f"engine.device={options.device}", f"engine.seed={seed}", *files, *options.settings]
        return trained(RECIPE, f"{who}{RECIPE}-seed-{seed}", options.runs, settings)

    rows: list[dict[str, Any]] = []
    for (who, seed), score in side_by_side(train, jobs, options.parallel).items():
        figures = {name.removeprefix("test "): value for name, value in score.items() if name.startswith("test ")}
        cost = {name: score[name] for name in ("parameters", "steps", "training seconds") if name in score}
        rows.append({"who": "does not see" if who else "headway", "seed": seed} | figures | cost)
    read = lambda part: read_annotated([options.data / f"{part}.npz"], 3, (SIDE, SIDE), "captions")  # noqa: E731
    rows.append({"who": "nearest picture"} | copied(read("train"), read("test")))
    write(f"flickr8k-{options.device}", options.device, rows, options.out)


def copied(known: Annotated, asked: Annotated) -> dict[str, float]:
    """The figures of the first caption of the nearest training picture."""
    scores = CaptionScores.of([known.captions[i][0] for i in nearest(known, asked)], asked.captions)
    return {name: round(value, 4) for name, value in scores.figures().items()}


if __name__ == "__main__":
    main()

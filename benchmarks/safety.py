"""What safety costs: the training loop with a checkpoint every 50 steps beside the same loop with none.

Both variants use the same model, step and batch, and take turns. The disk's own rate is measured by writing as many
bytes with one thread and flushing them.

    PYTHONPATH=src python benchmarks/safety.py --device cuda
"""

from __future__ import annotations

from measure import arguments, interleaved, median, write

# isort: split
import os
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headway.batch import TextInputs, TokenBatch
from headway.models.transformer import SIZES, Transformer
from headway.recipes import RECIPES
from headway.tasks.objective import CrossEntropy
from headway.train.checkpoint import Checkpoints
from headway.train.log import Log
from headway.train.loop import Training
from headway.train.optimiser import Adam, Masters
from headway.train.snapshots import Snapshots
from headway.train.step import GraphStep, TrainStep, compiled
from headway.train.writer import Writer

EVERY = 50
CASES = {
    "cuda": {"size": "base", "vocabulary": 37_000, "rows": 256, "length": 64, "steps": 200},
    "cpu": {"size": "tiny", "vocabulary": 10_000, "rows": 16, "length": 16, "steps": 100},
}


class Timed(Checkpoints):
    """Checkpoints that count the seconds of their writing, in the background."""

    seconds = 0.0

    def _write(self, *what: Any) -> None:
        started = time.perf_counter()
        super()._write(*what)
        self.seconds += time.perf_counter() - started


def trained(folder: Path, objective: Any, masters: Masters, step: Any, every: int, said: list[str]) -> Training:
    """A loop that does nothing but steps, log lines and checkpoints."""
    recipe = RECIPES["translate"].make()
    never = 10**9
    run = replace(
        recipe,
        engine=replace(recipe.engine, steps=never, snapshot=never, checkpoint=every, keep=1),
        validation=replace(recipe.validation, every=never, score_every=never),
    )
    writer = Writer()
    checkpoints = Timed(folder / "checkpoints", 1, writer=writer, say=said.append)
    snapshots = Snapshots(folder / "snapshots", 1, writer=writer, say=said.append)
    folder.mkdir(exist_ok=True)
    log = Log(folder, quiet=True)
    log.say = said.append  # type: ignore[method-assign]
    return Training(run, objective, masters, step, lambda _: (None, {}), checkpoints, snapshots, log)


def disk_rate(folder: Path, size: int) -> float:
    """Bytes a second of one thread that writes and flushes."""
    block = os.urandom(1 << 24)
    start = time.perf_counter()
    with (folder / "rate").open("wb") as stream:
        for _ in range(max(1, size // len(block))):
            stream.write(block)
        stream.flush()
        os.fsync(stream.fileno())
    spent = time.perf_counter() - start
    (folder / "rate").unlink()
    return max(1, size // len(block)) * len(block) / spent


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    options = parser.parse_args()
    device, case = options.device, CASES[options.device]
    torch.manual_seed(0)
    size, vocabulary, steps = SIZES[str(case["size"])], int(case["vocabulary"]), int(case["steps"])
    shape = (int(case["rows"]), int(case["length"]))
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = Transformer(size, vocabulary, vocabulary).to(device, dtype)
    objective = CrossEntropy(0.1).build(model)
    masters = Masters(model.named_parameters(), Adam())
    step: Any = GraphStep(compiled(objective), masters) if device == "cuda" else TrainStep(objective, masters)
    ids = [torch.randint(4, vocabulary, shape, device=device) for _ in range(3)]
    batch = TokenBatch(ids[1], ids[2], inputs=TextInputs(ids[0]))
    root = Path(tempfile.mkdtemp(dir=options.folder))
    said: list[str] = []
    try:
        loops = {
            "no checkpoints": trained(root / "none", objective, masters, step, 10**9, said),
            f"a checkpoint every {EVERY} steps": trained(root / "some", objective, masters, step, EVERY, said),
        }

        def work(training: Training) -> None:
            for _ in range(steps):
                training.advance(batch)

        works = {name: lambda training=training: work(training) for name, training in loops.items()}
        times = interleaved(works, device, 1, options.repeats or 5)
        kept: Any = loops[f"a checkpoint every {EVERY} steps"].checkpoints
        kept.writer.wait()
        written = sum(file.stat().st_size for file in kept.place(kept.steps()[-1]).glob("*.safetensors"))
        left_out = len([line for line in said if "left out" in line])
        rate = disk_rate(root, written)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    due = (len(times["no checkpoints"]) + 1) * steps // EVERY
    disk = {
        "checkpoint_megabytes": round(written / 1e6),
        "due": due,
        "left_out": left_out,
        "writing_seconds_each": round(kept.seconds / max(due - left_out, 1), 2),
        "disk_megabytes_per_second": round(rate / 1e6),
    }
    print(disk, flush=True)
    write(f"safety-{device}", device, rows(times, steps, shape[0] * shape[1]), options.out, case=case, disk=disk)


def rows(times: dict[str, list[float]], steps: int, tokens: int) -> list[dict[str, Any]]:
    first = median(times["no checkpoints"])
    return [
        {
            "who": name,
            "milliseconds": round(median(values) / steps * 1e3, 3),
            "target_tokens_per_second": round(steps * tokens / median(values)),
            "slower_percent": round(100 * (median(values) / first - 1), 2),
        }
        for name, values in times.items()
    ]


if __name__ == "__main__":
    main()

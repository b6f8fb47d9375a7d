"""Timing and records that the benchmarks share: medians over interleaved repeats, results as small JSON."""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# isort: off
import headway  # noqa: F401 (first: it settles how long CPU threads spin, for all contestants alike)
import torch
# isort: on

RESULTS = Path(__file__).parent / "results"


def machine(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name().removeprefix("NVIDIA ")
    return f"{torch.get_num_threads()} CPU cores ({platform.machine()})"


def seconds(work: Callable[[], Any], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def interleaved(works: dict[str, Callable[[], Any]], device: str, warm: int, repeats: int) -> dict[str, list[float]]:
    """Each repeat runs every piece of work once, so that a busy moment of the machine touches all alike."""
    for work in works.values():
        for _ in range(warm):
            work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            times[name].append(seconds(work, device))
    return times


def write(name: str, device: str, rows: list[dict[str, Any]], out: str | None = None, **more: Any) -> None:
    loaded = [peer for peer in ("transformers", "timm", "sb3_contrib") if peer in sys.modules]
    known = {"python": platform.python_version(), "torch": torch.__version__}
    known |= {peer: sys.modules[peer].__version__ for peer in loaded}
    record = {
        "benchmark": name,
        "date": datetime.date.today().isoformat(),
        "machine": machine(device),
        "versions": known,
        "command": command(),
        **more,
        "rows": rows,
    }
    folder = Path(out) if out else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    for row in rows:
        print(json.dumps(row, ensure_ascii=False), flush=True)


def versions(python: str, packages: Sequence[str]) -> dict[str, str]:
    """Of packages that another interpreter has."""
    code = "import sys, importlib.metadata as m; print(*map(m.version, sys.argv[1:]))"
    told = subprocess.run([python, "-c", code, *packages], capture_output=True, text=True, check=True)
    return dict(zip(packages, told.stdout.split(), strict=True))


def command() -> str:
    """How this was started, with file names instead of one machine's paths."""
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    for place in ("--out", "--runs"):
        if place in words:
            at = words.index(place)
            words = words[:at] + words[at + 2 :]
    return " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *words])


def median(values: list[float]) -> float:
    return statistics.median(values)


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", help="folder for the result (default: benchmarks/results)")
    parser.add_argument("--repeats", type=int)
    return parser

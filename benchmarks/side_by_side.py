"""What benchmarks that train many models share: their options, trainings side by side, figures over seeds."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

Job = TypeVar("Job", bound=Hashable)
Found = TypeVar("Found")


def training_options(parser: ArgumentParser, runs: str, seeds: int = 3) -> Namespace:
    """The benchmark's own options and those of every training; the trainings share the cores."""
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--parallel", type=int, default=1, help="trainings at a time")
    parser.add_argument("--runs", type=Path, default=Path("runs", runs), help="folder of the trainings")
    parser.add_argument("--set", action="append", default=[], dest="settings", help="a setting of the trainings")
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // options.parallel)))
    return options


@contextmanager
def shared_gpu() -> Iterator[None]:
    """Kernels of several processes run at the same time, not in turns, where CUDA's multi-process service is there."""
    control = shutil.which("nvidia-cuda-mps-control")
    if not control or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory() as place:
        os.environ |= {"CUDA_MPS_PIPE_DIRECTORY": place, "CUDA_MPS_LOG_DIRECTORY": place}
        subprocess.run([control, "-d"], check=False)
        try:
            yield
        finally:
            subprocess.run([control], input=b"quit\n", check=False)
            del os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CUDA_MPS_LOG_DIRECTORY"]


def side_by_side(work: Callable[[Job], Found], jobs: Sequence[Job], parallel: int) -> dict[Job, Found]:
    """What the work finds for each job. When it is stopped, or one fails, `map` begins no other."""
    with shared_gpu() if parallel > 1 else nullcontext(), ThreadPoolExecutor(parallel) as pool:
        return dict(zip(jobs, pool.map(work, jobs), strict=True))


def grouped(found: dict[Any, Found]) -> dict[Any, dict[Any, Found]]:
    """By the first two values of a job: what differs within a group is the seed."""
    groups: dict[Any, dict[Any, Found]] = {}
    for job, score in found.items():
        groups.setdefault(job[:2], {})[job] = score
    return groups


def mean(values: Iterable[float], digits: int = 4) -> float:
    return round(statistics.mean(values), digits)


def spread(values: Sequence[float], digits: int = 4) -> float | None:
    """The standard deviation; None of a single value."""
    return round(statistics.stdev(values), digits) if len(values) > 1 else None

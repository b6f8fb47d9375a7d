"""Only one folder knows of several processes."""

import re
from pathlib import Path

import headway

SOURCE = Path(headway.__file__).parent


def test_only_parallel_touches_torch_distributed():
    knows = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"torch\.distributed|DistributedDataParallel|init_process_group", path.read_text(encoding="utf-8"))
    }
    assert knows and all(path.startswith("train/parallel/") for path in knows), knows

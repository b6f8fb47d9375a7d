"""OpenMP's threads, counted in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COUNTED = """
import os, threading, torch
from headway.openmp import _libraries, rest

def threads():
    return len(os.listdir("/proc/self/task"))

def computed():
    torch.set_num_threads(4)
    before = threads()
    large = torch.ones(1 << 22)
    right = round(float(large.exp().log().mean()), 3) == 1
    after = threads()
    rest()
    left = threads()
    return right, after - before, left - before, round(float(large.exp().log().mean()), 3) == 1

answers = [computed()]
other = threading.Thread(target=lambda: answers.append(computed()))
other.start()
other.join()
print(len(_libraries()), answers)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads as Linux tells them")
def test_threads_that_were_kept_end_and_come_back() -> None:
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)
    libraries, answers = done.stdout.split(" ", 1)
    for right, made, left, again in eval(answers):
        assert right and again
        assert int(libraries) == 0 or (made == 3 and left == 0)

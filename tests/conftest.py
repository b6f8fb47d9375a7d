"""One thread, since the models in these tests are small and share the machine; and torch's global switches stay put."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a child of tests/fuzz that is forked would wait for threads it has not

import pytest
import torch

# name: (read, write). A result of one test must not depend on which tests ran before it in the same process.
SWITCHES = {
    "oneDNN": (lambda: torch.backends.mkldnn.enabled, lambda on: setattr(torch.backends.mkldnn, "enabled", on)),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "deterministic algorithms": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "float32 products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
}
AT_START = {name: read() for name, (read, _) in SWITCHES.items()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """A test that leaves torch's global state changed fails, and the state is restored for the next one."""
    try:
        return (yield)
    finally:
        changed = []
        for name, before in AT_START.items():
            read, write = SWITCHES[name]
            if (after := read()) != before:
                changed.append(f"{name} ({before} before, {after} after)")
                write(before)
        if changed:
            pytest.fail(f"this test left torch's global state changed: {', '.join(changed)}", pytrace=False)


@pytest.fixture
def without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """For products of bfloat16 on the CPU.

    Where the CPU has no bfloat16 instructions, torch switches oneDNN off for the whole process at the first of them.
    """
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real one, for the tests of the page: `browsing.need_browser` skips where there is none."""
    from browsing import browsing

    with browsing() as found:
        yield found

"""Writing in the background: tensors are copied between two steps, and a thread writes the copies to the disk."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import torch
from torch import Tensor

Named = dict[str, Tensor]
Staged = Callable[[], dict[str, Named]]


def _each(files: dict[str, Named], change: Callable[[tuple[str, str], Tensor], Tensor]) -> dict[str, Named]:
    """Every tensor changed; `change` gets its file and name too."""
    return {file: {name: change((file, name), t) for name, t in named.items()} for file, named in files.items()}


class Stage:
    """Copies tensors. The training may change them as soon as `take` has returned.

    From a GPU they first go to other memory of the GPU, which takes next to no time, and from there, while it
    computes on, to pinned memory that is kept for the next time.
    """

    def __init__(self) -> None:
        self.pinned: dict[tuple[str, str], Tensor] = {}
        self.stream: torch.cuda.Stream | None = None

    def take(self, files: dict[str, Named]) -> Staged:
        """A function for the writing thread that gives the copies, on the CPU."""
        on_gpu = next((t.device for named in files.values() for t in named.values() if t.is_cuda), None)
        if on_gpu is None:
            copies = _each(files, lambda _, t: t.detach().clone())
            return lambda: copies
        if self.stream is None:
            self.stream = torch.cuda.Stream(on_gpu)
        try:
            copies = _each(files, lambda _, t: self._apart(t))
        except torch.OutOfMemoryError:  # no room for a second copy: the training waits for the first to arrive
            there = _each(files, lambda _, t: t.detach().to("cpu", copy=True))
            return lambda: there
        self.stream.wait_stream(torch.cuda.current_stream(on_gpu))
        with torch.cuda.stream(self.stream):
            found = _each(copies, self._fetch)
            arrived = torch.cuda.Event()
            arrived.record(self.stream)

        def wait() -> dict[str, Named]:
            arrived.synchronize()
            copies.clear()
            return found

        return wait

    def _apart(self, tensor: Tensor) -> Tensor:
        """Another copy on the same device, which the copying stream may use."""
        copy = tensor.detach().clone()
        if copy.is_cuda:
            assert self.stream is not None
            copy.record_stream(self.stream)
        return copy

    def _fetch(self, key: tuple[str, str], tensor: Tensor) -> Tensor:
        if not tensor.is_cuda:
            return tensor
        room = self.pinned.get(key)
        if room is None or room.shape != tensor.shape or room.dtype != tensor.dtype:
            room = self.pinned[key] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return room.copy_(tensor, non_blocking=True)


class Writer:
    """One thread that runs jobs in order.

    A job handles its own disk errors. Any other error is a bug: it is raised where the job is waited for.
    """

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], None]) -> None:
        self._raise()
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="writer", daemon=True)
            self._thread.start()
        self._waiting.put(work)

    def wait(self) -> None:
        self._waiting.join()
        self._raise()

    def _raise(self) -> None:
        failed, self._error = self._error, None
        if failed is not None:
            raise failed

    def _serve(self) -> None:
        while (work := self._waiting.get()) is not None:
            try:
                work()
            except BaseException as error:
                self._error = error
            finally:
                self._waiting.task_done()
        self._waiting.task_done()

    def close(self) -> None:
        """Finish all jobs and end the thread."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

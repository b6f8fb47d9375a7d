"""A disk without room: training goes on, nothing that was there is lost, and the result is the same to the bit."""

from __future__ import annotations

import errno
import io
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from killing import result
from running import World

from headway.errors import InputError
from headway.train.log import Log
from headway.train.sealed import verify
from headway.train.snapshots import Snapshots
from headway.train.writer import Writer
from small_runs import before_each_step

Fill = Callable[[bool], None]


class Crash(Exception):
    """As if the process had been killed."""


@dataclass
class Disk:
    """A folder, and how to take its room away."""

    folder: Path
    fill: Fill


@pytest.fixture
def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """While it is full, nothing that is written reaches the disk."""
    flush, full = os.fsync, False

    def fsync(handle: int) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(handle)

    def fill(now: bool) -> None:
        nonlocal full
        full = now

    monkeypatch.setattr(os, "fsync", fsync)
    return Disk(tmp_path, fill)


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Disk]:
    """A disk of 8 MB that is filled by a file of somebody else."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    made = mount and subprocess.run([mount, "-t", "tmpfs", "-o", "size=8m", "tmpfs", place], capture_output=True)
    if not made or made.returncode:
        pytest.skip("a small disk cannot be made here: mounting a tmpfs takes root")

    def fill(now: bool) -> None:
        (place / "filler").unlink(missing_ok=True)
        if now:
            with (place / "filler").open("wb", buffering=0) as stream:
                try:
                    while True:
                        stream.write(bytes(4096))
                except OSError as error:
                    assert error.errno == errno.ENOSPC

    try:
        yield Disk(place, fill)
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.fixture(params=["simulated", "real"])
def disk(request: pytest.FixtureRequest) -> Disk:
    found: Disk = request.getfixturevalue(request.param)
    return found


def between(disk: Disk, first: int, last: int, out: Path) -> Callable[[object, int], None]:
    """No room from step `first` on until step `last`; the checkpoint of step 6 is whole all the time."""

    def at(training: object, step: int) -> None:
        if step == first:
            training.checkpoints.writer.wait()  # type: ignore[attr-defined]
            disk.fill(True)
        if first <= step <= last:
            verify(out / "checkpoints/step-6")
        if step == last:
            training.checkpoints.writer.wait()  # type: ignore[attr-defined]
            disk.fill(False)

    return at


def test_room_that_comes_back_before_the_end_leaves_no_trace(
    world: World, disk: Disk, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = disk.folder / "run"
    before_each_step(monkeypatch, between(disk, 7, 17, out))
    world.train(out)
    for step in (8, 12, 16):
        assert world.heard(f"the snapshot of step {step} could not be written (no room left on the disk): it is kept")
    told = ("no checkpoint at step 12: no room left", "the checkpoint of step 12 could not be written (no room left")
    assert any(map(world.heard, told)), world.lines
    assert result(out) == result(undisturbed)


def test_a_run_killed_after_the_room_came_back_has_lost_nothing(
    world: World, disk: Disk, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next checkpoint brings along the snapshots that were only in memory."""
    out = disk.folder / "run"
    with monkeypatch.context() as patch:
        crash = between(disk, 7, 17, out)

        def at(training: object, step: int) -> None:
            crash(training, step)
            if step == 19:
                training.checkpoints.writer.wait()  # type: ignore[attr-defined]
                raise Crash

        before_each_step(patch, at)
        with pytest.raises(Crash):
            world.train(out)
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["step-18", "step-6"]
    world.train(out, resume=True)
    assert world.heard("resuming from step 18") and not world.heard("broken")
    assert result(out) == result(undisturbed)


def test_without_room_to_the_end_the_same_command_finishes_when_there_is_some(
    world: World, disk: Disk, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = disk.folder / "run"
    with monkeypatch.context() as patch:
        before_each_step(patch, between(disk, 7, 99, out))
        with pytest.raises((InputError, OSError), match=r"[Nn]o (room|space) left"):
            world.train(out)
    verify(out / "checkpoints/step-6")
    assert not (out / "model").exists()
    disk.fill(False)
    world.train(out, resume=True)
    assert world.heard("resuming from step 6")
    assert result(out) == result(undisturbed)


def test_a_disk_that_is_full_from_the_start_is_told_and_training_goes_on(
    world: World, simulated: Disk, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_each_step(monkeypatch, lambda _, step: simulated.fill(step < 20))
    out = world.train(simulated.folder / "run")
    assert world.heard("no checkpoint at step 6: no room left on the disk; training continues")
    found, expected = result(out), result(undisturbed)
    assert found["checkpoints"] == ["step-24"] and expected["checkpoints"] == ["step-18", "step-24"]
    assert all(found[key] == expected[key] for key in ("weights", "log", "score"))


def test_a_write_that_fails_only_while_a_checkpoint_is_written(
    world: World, tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has room for a line more, the checkpoint has none."""
    from headway.train import sealed

    write_tensors, full = sealed.write_tensors, False

    def write(path: Path, tensors: object) -> object:
        if full and "checkpoints" in path.parts:
            path.write_bytes(b"the first few bytes")
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        return write_tensors(path, tensors)  # type: ignore[arg-type]

    def at(training: object, step: int) -> None:
        nonlocal full
        training.checkpoints.writer.wait()  # type: ignore[attr-defined]
        full = 7 <= step < 17

    monkeypatch.setattr(sealed, "write_tensors", write)
    before_each_step(monkeypatch, at)
    out = world.train(tmp_path / "run")
    line = "the checkpoint of step 12 could not be written (no room left on the disk); that of step 6 stays"
    assert world.heard(line)
    assert result(out) == result(undisturbed)


def test_snapshots_wait_in_memory_and_only_those_that_are_wanted(tmp_path: Path, simulated: Disk) -> None:
    writer = Writer()
    snapshots = Snapshots(tmp_path / "snapshots", 2, writer=writer, say=print)
    simulated.fill(True)
    for step in (1, 2, 3):
        snapshots.save(step, {"w": torch.full((3,), float(step))})
    mean, steps = snapshots.average(2)
    assert steps == [2, 3] and mean["w"].tolist() == [2.5] * 3
    simulated.fill(False)
    snapshots.save(4, {"w": torch.full((3,), 4.0)})
    writer.close()
    assert not snapshots.unsaved
    assert sorted(path.name for path in (tmp_path / "snapshots").iterdir()) == ["step-3", "step-4"]
    assert snapshots.average(2)[0]["w"].tolist() == [3.5] * 3


def test_lines_for_a_person_that_find_no_room_end_no_run() -> None:
    """`headway train … 2> run.txt` on the disk that is full. They come when there is room."""

    class File(io.StringIO):
        full = True

        def write(self, text: str) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(text)

    log = Log()
    log.console.file = file = File()
    log.say("step 100")
    log.say("step 200")
    file.full = False
    log.say("step 300")
    assert file.getvalue() == "step 100\nstep 200\nstep 300\n"


def test_tensorboard_without_room_ends_no_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")

    class Full:
        def add_scalar(self, *_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    log = Log(tmp_path, quiet=True)
    log.event("train", 1, loss=1.0)
    log._writer = Full()
    log.event("train", 2, loss=1.0)
    log.event("train", 3, loss=1.0)
    log.close()
    assert (tmp_path / "log.jsonl").read_text(encoding="utf-8").count("\n") == 3

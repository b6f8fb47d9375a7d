"""Where results go: what was there stays whole, whatever fails, be it the disk or the reader of a pipe."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from calling import DEVICE, Headway, World, listing, process, write
from safetensors import SafetensorError

from headway.cli.place import LOCK, locked

Refuses = Callable[..., str]
SHORT = ["--set", "engine.steps=4", "engine.snapshot=2", "validation.every=2", "validation.score_every=2"]


@pytest.fixture
def earlier(world: World, tmp_path: Path) -> Path:
    """A run that is there already."""
    return Path(shutil.copytree(world.run, tmp_path / "run"))


def test_a_folder_that_is_there_is_left_alone(refuses: Refuses, world: World, earlier: Path) -> None:
    before = listing(earlier.parent)
    assert "--overwrite" in refuses(*world.train(earlier))
    assert listing(earlier.parent) == before


@pytest.mark.parametrize("verb", ["train", "demo"])
def test_overwrite_never_takes_a_folder_that_is_no_run(
    refuses: Refuses, world: World, tmp_path: Path, verb: str
) -> None:
    write(tmp_path, "thesis.txt", ["years of work"])
    before = listing(tmp_path)
    for place in (tmp_path, tmp_path / "thesis.txt"):
        call = world.train(place) if verb == "train" else ["demo", "--out", place]
        assert "left alone" in refuses(*call, "--overwrite")
        assert listing(tmp_path) == before


def test_a_demo_that_was_stopped_goes_on_by_its_own_command(
    headway: Headway, refuses: Refuses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, resumed = tmp_path / "demo", []

    def run_demo(out: Path, log: object, device: str, steps: int | None, resume: bool) -> str:
        resumed.append(resume)
        (out / "run.json").write_text('{"recipe": "demo"}', encoding="utf-8")
        (out / "checkpoints" / f"step-{len(resumed)}").mkdir(parents=True)
        if len(resumed) < 3:
            raise KeyboardInterrupt
        (out / "report.txt").write_text("done", encoding="utf-8")
        return "done"

    monkeypatch.setattr("headway.recipes.demo.run_demo", run_demo)
    for _ in range(2):
        assert f"headway demo --out {place} resumes" in headway("demo", "--out", place).err
    assert headway("demo", "--out", place).out == "done\n"
    assert resumed == [False, True, True]
    assert "--overwrite" in refuses("demo", "--out", place)


def test_overwrite_replaces_a_run_and_leaves_nothing_of_it(headway: Headway, world: World, earlier: Path) -> None:
    write(earlier, "old-note", [])
    assert headway(*world.train(earlier, *SHORT, "--overwrite")).code == 0
    assert not (earlier / "old-note").exists()
    assert [path.name for path in earlier.parent.iterdir()] == ["run"]


def test_an_empty_folder_is_as_good_as_none_and_is_empty_again_after_a_failure(
    headway: Headway, refuses: Refuses, world: World, tmp_path: Path
) -> None:
    (tmp_path / "x").mkdir()
    refuses(*world.train(tmp_path / "x", "--test", "nothing", "there"), after_work=True)
    assert listing(tmp_path) == {"x": None}
    assert headway(*world.train(tmp_path / "x", *SHORT)).code == 0


def test_a_new_run_may_start_from_the_one_that_it_replaces(headway: Headway, world: World, earlier: Path) -> None:
    """The folder that is to be replaced holds the weights to start from: it is there until the new run is whole."""
    assert headway(*world.train(earlier, *SHORT, "--init", earlier, "--overwrite")).code == 0
    assert [path.name for path in earlier.parent.iterdir()] == ["run"]
    assert json.loads((earlier / "run.json").read_text())["init"] == str(earlier)


def test_the_same_command_resumes_a_run_that_was_to_replace_another(
    headway: Headway, world: World, earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted, it is beside the earlier run, which is as it was; then it takes its place."""
    before, new = listing(earlier), earlier.with_name("run.new")
    command = world.train(earlier, *SHORT, "engine.checkpoint=2", "--overwrite")
    with monkeypatch.context() as patch:
        patch.setattr("headway.train.job.Job.finish", interrupt)
        answer = headway(*command)
    assert answer.code == 130 and "run stays as it was" in answer.err and f"{new} --resume" in answer.err
    assert listing(earlier) == before and (new / "checkpoints" / "step-4").is_dir()
    again = headway(*command)
    assert again.code == 0 and "resuming from step 4" in again.err and f"model: {earlier / 'model'}" in again.out
    assert [path.name for path in earlier.parent.iterdir()] == ["run"] and listing(earlier) != before


def test_the_command_that_the_last_line_names_puts_the_run_where_out_said(
    headway: Headway, world: World, earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(earlier.parent)
    with monkeypatch.context() as patch:
        patch.setattr("headway.train.job.Job.finish", interrupt)
        answer = headway(*world.train(Path("run"), *SHORT, "engine.checkpoint=2", "--overwrite"))
    [line] = [line for line in answer.err.splitlines() if "--resume" in line]
    assert line == (
        "headway: not finished; run stays as it was; the same command, or headway train run.new --resume, "
        "resumes from step 4"
    )
    assert "failed" not in answer.err
    listed = json.loads(headway("runs", ".", "--json").out)
    [stopped] = [run for run in listed if run["folder"] == "run.new"]
    assert stopped["state"] == "stopped" and stopped["next"] == "headway train run.new --resume"
    again = headway("train", "run.new", "--resume")
    assert again.code == 0 and "model: run/model" in again.out
    assert [path.name for path in earlier.parent.iterdir()] == ["run"]
    assert json.loads((earlier / "model/headway.json").read_text())["score"]["steps"] == 4
    assert not list(earlier.glob(".replaces"))


def test_a_resumed_run_never_replaces_what_is_no_run(
    headway: Headway, refuses: Refuses, world: World, earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("headway.train.job.Job.finish", interrupt)
        headway(*world.train(earlier, *SHORT, "engine.checkpoint=2", "--overwrite"))
    shutil.rmtree(earlier)
    earlier.mkdir()
    write(earlier, "thesis.txt", ["years of work"])
    assert "left alone" in refuses("train", earlier.with_name("run.new"), "--resume")
    assert (earlier / "thesis.txt").is_file()


IGNORED = """
import os, signal, sys, time
from headway.cli.app import Ended, _handle_signals

class Callback:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)  # the handler raises here, where Python ignores it

_handle_signals()
try:
    callback = Callback()
    del callback
    time.sleep(60)
except Ended as ended:
    print("ended by", *ended.args)
"""


def test_a_signal_whose_exception_is_ignored_ends_the_process_all_the_same() -> None:
    found = subprocess.run([sys.executable, "-c", IGNORED], capture_output=True, timeout=50, text=True)
    assert (found.stdout, found.stderr) == (f"ended by {int(signal.SIGTERM)}\n", "")


@pytest.mark.parametrize("cut", [0, 1, 2], ids=["before", "between", "after"])
def test_a_kill_while_a_run_takes_its_place_loses_nothing(
    headway: Headway, world: World, earlier: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """Between the renames the new run is whole, and the same command puts it where --out said."""
    command, moves = world.train(earlier, *SHORT, "--overwrite"), []

    def take_place(goal: Path, place: Path) -> None:
        old = goal.with_name(f".{goal.name}.old-1")
        moves.extend([(goal, old), (place, goal)])
        for source, target in moves[:cut]:
            source.rename(target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("headway.cli.place.take_place", take_place)
        assert headway(*command).code == 130
    again = headway(*command[:-1])
    assert again.code == (2 if cut == 0 else 0)  # before: another run is there, --overwrite takes its place
    assert headway(*command).code == 0
    assert [path.name for path in earlier.parent.iterdir()] == ["run"]


def test_whoever_waits_for_a_lock_does_not_take_that_of_a_replaced_folder(tmp_path: Path) -> None:
    """A second process waits for the lock; the folder is replaced meanwhile; the lock of the old one is not enough."""
    place = tmp_path / "run"
    entered: list[int] = []

    def second() -> None:
        with locked(place):
            entered.append((place / LOCK).stat().st_ino)

    with locked(place):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.2)
        place.rename(tmp_path / "old")
        place.mkdir()
        first = (tmp_path / "old" / LOCK).stat().st_ino
        with locked(place):
            time.sleep(0.2)
            assert entered == []
    thread.join()
    assert len(entered) == 1 and entered[0] != first


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def no_room(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def no_room_in_rust(*_: Any, **__: Any) -> None:
    raise SafetensorError('I/O error: Os { code: 28, kind: StorageFull, message: "No space left on device" }')


@pytest.mark.parametrize(
    ("what", "failure"),
    [
        ("headway.train.job.write_run", no_room),
        ("headway.train.log.Log.event", no_room),
        ("headway.data.mapped.IdsWriter.append", no_room),
    ],
)
@pytest.mark.parametrize("there", [False, True], ids=["new", "overwrite"])
def test_a_full_disk_before_the_first_step_leaves_things_as_they_were(
    refuses: Refuses,
    world: World,
    earlier: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    failure: Callable[..., None],
    there: bool,
) -> None:
    before = listing(earlier.parent)
    monkeypatch.setattr(what, failure)
    monkeypatch.setenv("HEADWAY_CACHE", str(earlier.parent.parent / f"{earlier.parent.name}-cache"))
    out = earlier if there else earlier.parent / "new"
    line = refuses(*world.train(out, *SHORT, "--overwrite"), after_work=True)
    assert "no room left on the disk" in line
    assert listing(earlier.parent) == before


def test_a_full_disk_at_the_end_keeps_the_checkpoints_beside_the_earlier_run(
    refuses: Refuses, world: World, earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = listing(earlier)
    monkeypatch.setattr("headway.folder.save_file", no_room_in_rust)
    assert "no room left" in refuses(*world.train(earlier, *SHORT, "--overwrite"), after_work=True)
    assert listing(earlier) == before
    failed = earlier.with_name("run.new")
    assert sorted(path.name for path in earlier.parent.iterdir()) == ["run", failed.name]
    assert sorted(path.name for path in (failed / "checkpoints").iterdir()) == ["step-4"]
    assert not (failed / "model").exists()


def test_an_interrupt_is_one_line_and_leaves_nothing(
    headway: Headway, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.tasks.translation.Translation._files", interrupt)
    answer = headway(*world.train(tmp_path / "x"))
    assert answer.code == 130 and answer.line == "interrupted"
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_after_a_checkpoint_says_how_to_go_on(
    headway: Headway, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.folder.save_file", interrupt)
    answer = headway(*world.train(tmp_path / "x", *SHORT))
    kept, last = answer.err.splitlines()[-2:]
    assert answer.code == 130 and last == "headway: interrupted"
    assert kept == f"headway: not finished; headway train {tmp_path / 'x'} --resume resumes from step 4"
    assert (tmp_path / "x" / "checkpoints" / "step-4").is_dir()


def test_a_schedulers_signal_gives_the_earlier_run_its_name_back(world: World, earlier: Path) -> None:
    before = listing(earlier)
    call = world.train(earlier, "--set", "engine.steps=100000", "--overwrite", "--threads", 1)
    command = [sys.executable, "-m", "headway", *map(str, call)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stderr is not None
        assert any(b"parameters on" in line for line in running.stderr)
        running.terminate()
        said = running.stderr.read()
        assert running.wait(60) == 128 + signal.SIGTERM
    assert said.endswith(b"headway: ended by SIGTERM\n"), said
    assert listing(earlier) == before
    assert {path.name for path in earlier.parent.iterdir()} <= {"run", "run.new"}


def test_out_of_memory_is_a_failure_with_advice(
    headway: Headway, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("headway.tasks.translation.Translation._files", too_much)
    answer = headway(*world.train(tmp_path / "x"))
    assert answer.code == 1 and "engine.batch" in answer.line


needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")


@needs_full
def test_standard_output_on_a_full_disk_is_one_line(world: World) -> None:
    with Path("/dev/full").open("wb") as full:
        call = ["translate", world.run, world.root / "test.en", "--threads", 1, *DEVICE]
        answer = process(*call, stdout=full, stderr=subprocess.PIPE, capture_output=False)
    assert answer.returncode == 2
    assert answer.stderr == b"headway: no room left on the disk: make room and start again\n"


@needs_full
def test_a_device_and_a_link_are_written_to_and_never_replaced(
    refuses: Refuses, headway: Headway, world: World, tmp_path: Path
) -> None:
    """By way of links, so that a mistake could not harm the devices themselves."""
    write(tmp_path, "real", ["from before"])
    for name, goal in (("full", "/dev/full"), ("null", "/dev/null"), ("link", tmp_path / "real")):
        (tmp_path / name).symlink_to(goal)
    call = ["translate", world.run, world.root / "test.en", *DEVICE, "--output"]
    assert "no room left" in refuses(*call, tmp_path / "full")
    assert headway(*call, tmp_path / "null").code == headway(*call, tmp_path / "link").code == 0
    assert all((tmp_path / name).is_symlink() for name in ("full", "null", "link"))
    assert len((tmp_path / "real").read_text(encoding="utf-8").splitlines()) == 20


def test_an_output_that_cannot_be_finished_keeps_the_earlier_file(
    refuses: Refuses, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a.fr", ["from before"])
    before = listing(tmp_path)
    monkeypatch.setattr("headway.atomic.os.replace", no_room)
    for call in (["translate", world.run, world.root / "test.en"], ["evaluate", world.run, *world.files("test")]):
        assert "no room left" in refuses(*call, *DEVICE, "--output", tmp_path / "a.fr")
        assert listing(tmp_path) == before


def test_a_reader_that_leaves_is_one_line_without_noise(world: World) -> None:
    """`headway translate MODEL FILE | head -1`, with far more output than a pipe holds."""
    how = ["--json", "--attention", "--beam-size", "1", "--threads", "1", *DEVICE]
    command = [sys.executable, "-m", "headway", "translate", str(world.run), str(world.root / "valid.en"), *how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline().startswith(b'{"source"')
        running.stdout.close()
        noise = running.stderr.read()
        assert running.wait(60) == 2
    assert noise.startswith(b"headway: the reader of the output has closed it") and noise.count(b"\n") == 1, noise


def test_a_pipe_that_is_closed_from_the_start_is_told_too(world: World) -> None:
    read, write_end = os.pipe()
    os.close(read)
    try:
        answer = process("recipes", stdout=write_end, capture_output=False, stderr=subprocess.PIPE)
    finally:
        os.close(write_end)
    assert answer.returncode == 2
    assert answer.stderr.count(b"\n") == 1 and b"broken pipe" in answer.stderr

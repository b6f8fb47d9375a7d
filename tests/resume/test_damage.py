"""A damaged checkpoint is never used in silence: it is named, set aside, and the one before it is taken."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from killing import result
from running import World
from safetensors.torch import load_file

from headway.cli.verify import verify as verify_folder
from headway.errors import InputError
from headway.train import sealed
from headway.train.checkpoint import Checkpoints
from headway.train.loop import Training
from headway.train.sealed import Broken, beside, verify, write_sealed, write_tensors
from headway.train.snapshots import Snapshots
from headway.train.writer import Writer
from small_runs import before_each_step
from small_world import surroundings


class Crash(Exception):
    """As if the process had been killed."""


@pytest.fixture(scope="session")
def crashed(world: World, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that ended between steps 19 and 20, with checkpoints of steps 12 and 18."""

    def crash(_: object, step: int) -> None:
        if step == 20:
            raise Crash

    out = tmp_path_factory.mktemp("crashed") / "run"
    with surroundings(cache), pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        before_each_step(patch, crash)
        world.train(out)
    return out


@pytest.fixture
def damaged(crashed: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(crashed, tmp_path / "damaged"))


def newest(checkpoints: Path) -> tuple[int | None, list[str]]:
    """The step that would be gone on from, and what is said."""
    lines: list[str] = []
    found = Checkpoints(checkpoints, 2, writer=Writer(), say=lines.append).newest()
    return (found.step if found else None), lines


def truncate(path: Path, dice: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: dice.randrange(len(data))])


def flip(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [truncate, flip])
def test_damage_at_fifty_places_is_always_found(
    crashed: Path, tmp_path: Path, damage: Callable[[Path, random.Random], None]
) -> None:
    dice = random.Random(5)
    names = sorted(path.name for path in (crashed / "checkpoints/step-18").iterdir())
    assert len(names) >= 7 and "manifest.json" in names
    for number in range(50):
        copy = shutil.copytree(crashed / "checkpoints", tmp_path / f"{number}")
        name = names[number % len(names)]  # every file, the small ones too
        damage(copy / "step-18" / name, dice)
        step, lines = newest(copy)
        assert step == 12, (number, name)
        assert len(lines) == 1 and "step 18 is broken" in lines[0] and "broken-step-18" in lines[0]
        assert sorted(path.name for path in copy.iterdir()) == ["broken-step-18", "step-12"]
        shutil.rmtree(copy)


def test_each_byte_of_a_manifest_counts(crashed: Path, tmp_path: Path) -> None:
    """Also white space, and the line end at its end, which JSON would forgive."""
    copy = shutil.copytree(crashed / "checkpoints/step-18", tmp_path / "step-18")
    path = copy / "manifest.json"
    whole = path.read_bytes()
    verify(copy)
    for at in range(len(whole)):
        path.write_bytes(whole[:at])
        with pytest.raises(Broken):
            verify(copy)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        with pytest.raises(Broken):
            verify(copy)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("name", ["manifest.json", "state-0.json", "weights-0.safetensors"])
@pytest.mark.parametrize("harm", [Path.unlink, empty, folder_instead])
def test_missing_and_empty_files(damaged: Path, name: str, harm: Callable[[Path], None]) -> None:
    harm(damaged / "checkpoints/step-18" / name)
    step, [line] = newest(damaged / "checkpoints")
    assert step == 12 and name in line


def test_a_file_that_is_not_in_the_manifest_is_not_used(damaged: Path) -> None:
    place = damaged / "checkpoints/step-18"
    shutil.copy(place / "weights-0.safetensors", place / "weights-1.safetensors")
    step, [line] = newest(damaged / "checkpoints")
    assert step == 12 and "weights-1.safetensors does not belong to it" in line


def test_other_folders_are_no_checkpoints(damaged: Path) -> None:
    checkpoints = damaged / "checkpoints"
    (checkpoints / "step-99").mkdir()
    (checkpoints / "step-x").mkdir()
    (checkpoints / ".step-30.writing").mkdir()
    (checkpoints / "notes").mkdir()
    step, [line] = newest(checkpoints)
    assert step == 18 and "step 99 is broken (manifest.json is missing)" in line
    assert not (checkpoints / ".step-30.writing").exists() and (checkpoints / "notes").exists()


def test_one_of_a_later_headway_is_refused_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "FORMAT", 99)
    write_sealed(tmp_path / "step-5", {}, {})
    monkeypatch.undo()
    with pytest.raises(InputError, match="upgrade headway"):
        newest(tmp_path)
    assert (tmp_path / "step-5").is_dir()


def test_a_run_goes_on_from_the_one_before_and_comes_to_the_same(
    world: World, damaged: Path, undisturbed: Path
) -> None:
    flip(damaged / "checkpoints/step-18/optimiser.exp_avg-0.safetensors", random.Random(1))
    world.train(damaged, resume=True)
    assert world.heard("step 18 is broken (optimiser.exp_avg-0.safetensors was changed)")
    assert world.heard("resuming from step 12")
    found, expected = result(damaged), result(undisturbed)
    found["checkpoints"].remove("broken-step-18")
    assert found == expected


def test_without_a_whole_one_the_run_starts_again_and_the_broken_ones_stay(
    world: World, damaged: Path, undisturbed: Path
) -> None:
    for step in (12, 18):
        (damaged / f"checkpoints/step-{step}/manifest.json").unlink()
    world.train(damaged, resume=True)
    assert world.heard("no checkpoint to resume from")
    found = result(damaged)
    assert {"broken-step-12", "broken-step-18"} <= set(found.pop("checkpoints"))
    assert found == {key: value for key, value in result(undisturbed).items() if key != "checkpoints"}


def test_a_broken_snapshot_is_named_and_left_out_of_the_average(world: World, damaged: Path) -> None:
    flip(damaged / "snapshots/step-16/weights.safetensors", random.Random(1))
    world.train(damaged, resume=True)
    assert world.heard("the snapshot of step 16 is broken (weights.safetensors was changed): it is left out")
    assert world.heard("mean of the last 2 snapshots (steps 20 to 24)")


def test_a_run_whose_snapshots_are_all_broken_takes_its_last_weights(
    world: World, undisturbed: Path, tmp_path: Path
) -> None:
    """Killed after the last checkpoint, before the model was written."""
    out = Path(shutil.copytree(undisturbed, tmp_path / "run"))
    shutil.rmtree(out / "model")
    expected = load_file(out / "snapshots/step-24/weights.safetensors")
    for path in (out / "snapshots").iterdir():
        (path / "manifest.json").unlink()
    world.train(out, resume=True)
    assert world.heard("the best snapshot, of step") and world.heard("left out of the average")
    found = load_file(out / "model/model.safetensors")
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)


def test_the_due_one_is_left_out_while_the_last_is_still_being_written(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes the checkpoint of step 6 only when step 17 is reached; training does not wait for it."""
    ready = threading.Event()
    write_parts = sealed.write_parts

    def slow(folder: Path, *what: object) -> object:
        if folder.name == ".step-6.writing":
            assert ready.wait(60)
        return write_parts(folder, *what)  # type: ignore[arg-type]

    def at(training: Training, step: int) -> None:
        if step == 17:
            ready.set()
            training.checkpoints.writer.wait()

    monkeypatch.setattr("headway.train.checkpoint.write_parts", slow)
    before_each_step(monkeypatch, at)
    # Snapshots wait for the writer, because none may be left out: here there is one only, at the end.
    out = world.train(tmp_path / "run", "engine.snapshot=100", "validation.score_every=100")
    left_out = [line for line in world.lines if "is left out" in line]
    assert (
        len(left_out) == 1 and "the checkpoint of step 12 is left out: the last is still being written" in left_out[0]
    )
    assert result(out)["checkpoints"] == ["step-18", "step-24"]


@pytest.mark.parametrize(
    ("last", "every", "stay"),
    [(1, 0, [9]), (2, 0, [8, 9]), (2, 3, [3, 6, 8, 9]), (3, 4, [4, 7, 8, 9]), (99, 0, range(1, 10))],
)
def test_the_last_and_every_kth_are_kept(tmp_path: Path, last: int, every: int, stay: list[int]) -> None:
    writer = Writer()
    checkpoints = Checkpoints(tmp_path, last, every, writer=writer, say=print)
    for step in range(1, 10):
        facts = {"snapshots": [step], "best_snapshot": 1}
        checkpoints.save(step, {"weights": {"w": torch.tensor(step)}}, {}, facts)
    writer.close()
    assert checkpoints.steps() == list(stay)
    assert checkpoints.needed_snapshots() == {1, *stay}
    found = checkpoints.newest()
    assert found is not None and found.own("weights")["w"].item() == 9


def test_snapshots_that_a_kept_checkpoint_needs_stay(tmp_path: Path) -> None:
    writer = Writer()
    snapshots = Snapshots(tmp_path, 2, writer=writer, say=print)
    snapshots.needed = lambda: {1, 3}
    for step in range(1, 7):
        snapshots.save(step, {"w": torch.tensor(float(step))})
    writer.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-1", "step-3", "step-5", "step-6"]


def test_the_library_reads_what_is_written(tmp_path: Path) -> None:
    dice = torch.Generator().manual_seed(0)
    tensors = {"odd bytes": torch.arange(5, dtype=torch.uint8), "ünïcode/name": torch.ones(3)}
    for dtype in sealed.TYPES:
        values = torch.randn(3, 5, generator=dice) * 9
        tensors |= {
            f"{dtype}": values.to(dtype),
            f"{dtype} scalar": values[0, 0].to(dtype),
            f"{dtype} empty": values[:0].to(dtype),
            f"{dtype} odd": values.flatten()[:7].to(dtype),
        }
    path = tmp_path / "a.safetensors"
    seal = write_tensors(path, tensors)
    assert seal["bytes"] == path.stat().st_size
    found = load_file(path)
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name
    write_tensors(path, {})
    assert load_file(path) == {}


def test_what_fails_for_another_reason_than_the_disk_is_raised_where_it_is_waited_for() -> None:
    writer = Writer()

    def mistake() -> None:
        raise ZeroDivisionError

    writer.submit(mistake)
    with pytest.raises(ZeroDivisionError):
        writer.wait()
    done: list[int] = []
    writer.submit(lambda: done.append(1))
    writer.close()
    assert done == [1]


def test_a_failed_write_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("headway.train.sealed.os.fsync", fails)
    with pytest.raises(OSError, match="Input/output"):
        write_sealed(tmp_path / "step-1", {"w": {"w": torch.ones(2)}}, {})
    assert not beside(tmp_path / "step-1").exists() and list(tmp_path.iterdir()) == []


def test_a_changed_vocabulary_of_an_unfinished_run_is_named(world: World, cache: Path, damaged: Path) -> None:
    """Another one would give other weights."""
    path = next((damaged / "data").glob("*.tokenizer.json"))
    path.write_text(path.read_text(encoding="utf-8").replace('"vocab"', '"vocab" '), encoding="utf-8")
    with surroundings(cache), pytest.raises(InputError, match=r"tokenizer.json was changed after it was written"):
        world.train(damaged, resume=True)
    with pytest.raises(InputError, match=r"tokenizer.json was changed after it was written"):
        verify_folder(str(damaged))

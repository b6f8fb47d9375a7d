"""Several processes: the same losses as one; saved on some, resumed on others; a killed one brought back."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from killing import TRANSLATE, Place, result
from processes import events, start, together, torchrun, wait_for, workers
from safetensors.torch import load_file

from headway.batch import IGNORED, TextInputs, TokenBatch
from headway.tasks.loading import load
from headway.text.tokenizer import PAD
from headway.train import checkpoint
from headway.train.checkpoint import Checkpoint, Checkpoints
from headway.train.parallel.processes import shares
from headway.train.parallel.ranks import Ranks
from headway.train.sealed import Files, verify
from headway.train.writer import Writer

# Without dropout the number of processes changes nothing but the order of sums. A key's bias has no gradient but
# rounding, which Adam's own epsilon would blow up to full steps.
SAME = (
    *TRANSLATE, "model.dropout=0", "optimiser.epsilon=1e-5", "engine.steps=50", "engine.log=1", "engine.average=1",
    "engine.snapshot=25", "engine.checkpoint=10", "engine.keep=3", "validation.every=25", "validation.score_every=50",
)  # fmt: skip
SAVED = (*SAME, "engine.parallel=fsdp", "engine.steps=24", "engine.log=7")
WAYS = {f"{how}-{pieces}": (f"engine.parallel={how}", f"engine.accumulate={pieces}")
        for how, pieces in (("ddp", 1), ("fsdp", 2))}  # fmt: skip
RANDOM = (*TRANSLATE, "engine.steps=60")


def resume(out: str, *settings: str) -> list[str]:
    """As `Place.command`."""
    return [sys.executable, "-m", "headway", "train", out, "--resume", "--threads", "1", "--set", *settings]


class Runs:
    """All that a few processes are started for, once: starting takes longer than training."""

    def __init__(self, place: Place) -> None:
        self.place = place
        ways = [place.command(name, (*SAME, *way)) for name, way in WAYS.items()]
        self.said = together(place, 2, ["", "", "", "end"], *ways, place.command("saved", SAVED))
        for copy in ("on-1", "on-3"):  # as it was before it came to its end
            shutil.copytree(place.root / "saved", place.root / copy)
            for later in ("model", "checkpoints/step-24"):
                shutil.rmtree(place.root / copy / later)
        together(place, 1, place.command("one", SAME), resume("on-1", "engine.steps=50"))
        together(place, 3, resume("on-3", "engine.steps=50"), ["", "", "", "masters"])

    def folder(self, name: str) -> Path:
        return self.place.root / name

    def calm(self, how: str = "ddp") -> Path:
        """A run that nothing disturbs."""
        name = f"calm-{how}"
        if not self.folder(name).exists():
            together(self.place, 2, self.place.command(name, (*RANDOM, f"engine.parallel={how}")))
        return self.folder(name)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    return Runs(Place.make(tmp_path_factory.mktemp("processes")))


@pytest.mark.parametrize("way", WAYS)
def test_two_processes_learn_as_one_does(runs: Runs, way: str) -> None:
    one, two = events(runs.folder("one")), events(runs.folder(way))
    assert list(one) == list(two) == list(range(1, 51))
    for step, event in one.items():
        assert two[step]["tokens"] == event["tokens"]
        assert two[step]["loss"] == pytest.approx(event["loss"], abs=1e-5)
        assert two[step]["gradient"] == pytest.approx(event["gradient"], abs=1e-5)
    weights, expected = (load_file(runs.folder(name) / "model/model.safetensors") for name in (way, "one"))
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-4)


@pytest.mark.parametrize("processes", [1, 3])
def test_saved_on_two_processes_and_resumed_on_another_number(runs: Runs, processes: int) -> None:
    """From the middle of a log line's steps, whose sums come from both."""
    each, found = events(runs.folder("one")), events(runs.folder(f"on-{processes}"))
    assert list(found) == [*range(7, 50, 7), 50]
    before = 0
    for step, event in found.items():
        steps = range(before + 1, step + 1)
        tokens = [each[s]["tokens"] - (each[s - 1]["tokens"] if s > 1 else 0) for s in steps]
        mean = sum(each[s]["loss"] * count for s, count in zip(steps, tokens, strict=True)) / sum(tokens)
        assert event["loss"] == pytest.approx(mean, abs=1e-5)
        before = step
    assert len(list((runs.folder(f"on-{processes}") / "checkpoints/step-50").glob("weights-*"))) == processes


@pytest.mark.parametrize("name", ["fsdp-2", "on-3"])
def test_the_model_of_shards_is_a_plain_folder(runs: Runs, name: str) -> None:
    source = (runs.folder("test.en")).read_text(encoding="utf-8").splitlines()[:3]
    assert load(runs.folder(name), "cpu").translate(source) == load(runs.folder("one"), "cpu").translate(source)


def test_only_the_first_process_speaks(runs: Runs) -> None:
    first, second = runs.said
    assert "step 50:" in first and "validation BLEU" in first and "Warning" not in first
    assert second == ""


@pytest.mark.parametrize(
    ("how", "rank"),
    [("ddp", 1), ("ddp", 0), ("fsdp", 1)],
)
@pytest.mark.long  # tests/fuzz kills one of two too
def test_a_killed_process_is_brought_back(runs: Runs, how: str, rank: int) -> None:
    """The others end, torchrun starts all again from the last checkpoint; dropout goes on where it was."""
    place, out = runs.place, f"killed-{how}-{rank}"
    settings = (*RANDOM, f"engine.parallel={how}")
    with torchrun(place, place.command(out, settings), 2, "--max-restarts", "2") as running:
        wait_for(place.root / out / "checkpoints/step-18", running)
        os.kill(workers(running.pid)[rank], signal.SIGKILL)
        said, _ = running.communicate(timeout=600)
    assert running.returncode == 0, said
    assert said.count("resuming from step") == 1
    assert result(place.root / out) == result(runs.calm(how))


@pytest.mark.long
def test_bad_input_is_said_once_and_ends_the_job(runs: Runs) -> None:
    (runs.place.root / "bad.en").write_bytes(b"a line\n\xff\n")
    command = [part.replace("train.en", "bad.en") for part in runs.place.command("bad", SAME)]
    with torchrun(runs.place, command, 2) as running:
        said, _ = running.communicate(timeout=300)
    assert running.returncode != 0
    assert said.count("headway:") == 1 and "headway: bad.en, line 2: not UTF-8" in said
    assert not runs.folder("bad").exists()


@pytest.mark.long
def test_a_process_that_fails_alone_says_why_and_nobody_waits(runs: Runs) -> None:
    """Without a launcher that would end the first."""
    nowhere = {1: {"HEADWAY_CACHE": "/dev/null/cache"}}
    first, second = start(runs.place, 2, runs.place.command("alone", SAME), own=nowhere)
    said = [running.communicate(timeout=300)[0] for running in (first, second)]
    assert (first.returncode, second.returncode) == (1, 2), said
    assert "headway: another process of this run has ended" in said[0] and "Traceback" not in said[0]
    assert said[1].startswith("headway: cannot write") and said[1].count("\n") == 1


ODD = {
    "few rows": ("engine.batch=64", "engine.accumulate=2"),
    "recompute": ("engine.recompute=true",),
    "parts": ("objective=r-drop", "optimiser=adamw", "engine.clip=0.5", "model.embeddings=separate", "model.norm=pre"),
    "held out": ("data.hold_out=20",),
}


@pytest.mark.long
def test_three_processes_learn_as_one_does_in_odd_cases(runs: Runs) -> None:
    """More processes than rows, so that some have nothing; rows of weights that cannot be dealt out evenly."""

    def command(where: str, name: str, *more: str) -> list[str]:
        found = runs.place.command(f"{where} {name}", (*SAME, "engine.steps=15", *ODD[name], *more))
        if name == "held out":
            del found[found.index("--valid") : found.index("--source")]
        return found

    together(runs.place, 1, *(command("one", name) for name in ODD))
    for how in ("ddp", "fsdp"):
        together(runs.place, 3, *(command(how, name, f"engine.parallel={how}") for name in ODD))
        for name in ODD:
            one, three = (events(runs.folder(f"{where} {name}")) for where in ("one", how))
            assert [three[step]["loss"] for step in one] == pytest.approx([e["loss"] for e in one.values()], abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_torchrun_stops_all_with_a_checkpoint(runs: Runs, number: int) -> None:
    place, out = runs.place, f"stopped-{number}"
    command = place.command(out, RANDOM)
    with torchrun(place, command, 2) as running:
        wait_for(place.root / out / "checkpoints/step-12", running)
        running.send_signal(number)
        said, _ = running.communicate(timeout=300)
    assert running.returncode != 0, said
    assert said.count("stopped after step") == 1
    together(place, 2, command)
    found, calm = result(place.root / out), result(runs.calm())
    assert {**found, "checkpoints": None} == {**calm, "checkpoints": None}


@pytest.mark.long
def test_a_finished_run_is_reported_by_torchrun_once(runs: Runs) -> None:
    runs.calm()
    with torchrun(runs.place, runs.place.command("calm-ddp", (*RANDOM, "engine.parallel=ddp")), 2) as running:
        said, _ = running.communicate(timeout=300)
    assert running.returncode == 0 and said.count("finished before") == 1


class Two:
    """The checkpoints of two processes, in one."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self.writers = [Writer(), Writer()]
        self.both = [
            Checkpoints(folder, 2, writer=writer, say=self.said.append, rank=rank, processes=2)
            for rank, writer in enumerate(self.writers)
        ]

    def save(self, step: int) -> None:
        for rank, checkpoints in enumerate(self.both):
            rows = torch.full((2 - rank, 2), float(rank))
            files = {"weights": {"w": rows}, "optimiser.step": {"w": torch.tensor(float(step))}}
            checkpoints.save(step, files, {"w": {"start": 2 * rank, "shape": [3, 2]}}, {"rank": rank})
        for writer in self.writers:
            writer.wait()


def test_a_checkpoint_is_whole_when_all_have_written_their_part(tmp_path: Path) -> None:
    two = Two(tmp_path)
    two.save(5)
    verify(tmp_path / "step-5")
    found = Checkpoint(tmp_path / "step-5")
    assert found.whole("weights")["w"].tolist() == [[0, 0], [0, 0], [1, 1]]
    assert found.whole("optimiser.step")["w"] == 5
    assert two.said == [] and [path.name for path in tmp_path.iterdir()] == ["step-5"]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_part_that_cannot_be_written_leaves_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    two = Two(tmp_path)
    write = checkpoint.write_parts

    def full(folder: Path, files: Files, facts: dict[str, Any]) -> Any:
        if f"state-{failing}" in facts:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(folder, files, facts)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_parts", full)
        two.save(5)
    assert len(two.said) == 1 and "could not be written" in two.said[0] and not any(tmp_path.iterdir())
    two.save(6)
    verify(tmp_path / "step-6")


def pairs(rows: int) -> TokenBatch:
    labels_BT = torch.arange(1, rows + 1)[:, None].expand(rows, 3) + PAD + 1
    return TokenBatch(labels_BT, labels_BT, inputs=TextInputs(labels_BT), examples=tuple(range(rows)))


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 24])
@pytest.mark.parametrize(("parts", "count"), [(1, 2), (2, 2), (1, 3), (3, 4)])
def test_shares_are_the_batch_each_row_once_and_as_many_pieces_everywhere(rows: int, parts: int, count: int) -> None:
    batch = pairs(rows)
    shared = [shares(batch, parts, Ranks(rank, count)) for rank in range(count)]
    assert {len(pieces) for pieces in shared} == {parts}
    pieces = [piece for pieces in shared for piece in pieces]
    assert sum(piece.tokens for piece in pieces) == batch.tokens
    assert sorted(number for piece in pieces for number in piece.examples) == list(batch.examples)
    empty = [piece for piece in pieces if not piece.tokens]
    assert len(empty) == max(parts * count - rows, 0)
    assert all(len(piece.labels_BT) == 1 and (piece.labels_BT == IGNORED).all() for piece in empty)

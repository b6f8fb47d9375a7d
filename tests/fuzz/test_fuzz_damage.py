"""Damaged folders: what a command says of one is the truth of the whole one, or one clear line; never something else.

A short round damages every sixth folder a few times; HEADWAY_FUZZ=N does it N times as often.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from attacked import drawn
from damaged import damage
from forked import ROUNDS, Outcome, Record, call, load_modules
from lines import fault
from worlds import WORLDS, World, result

TIMES = 3  # that each folder is damaged in a short round
FREE = ("README.md",)  # for people: it may say anything


@dataclass
class Trained:
    """A finished run of a world, its cache, and what its model answers."""

    world: World
    root: Path
    answers: list[str]

    @staticmethod
    def make(world: World, root: Path) -> Trained:
        world.make(root)
        found = Trained(world, root, [])
        first = load_modules(world.train("run"), root, found.environment("cache"))
        assert first.code == 0, first.err
        outcomes = found.use("run/model")
        assert all(outcome.code == 0 for outcome in outcomes), outcomes
        found.answers = [outcome.out for outcome in outcomes]
        return found

    def environment(self, cache: str) -> dict[str, str]:
        return {"HEADWAY_CACHE": str(self.root / cache), "HEADWAY_DATA": ""}

    def call(self, words: list[str], cache: str = "cache") -> Outcome:
        return call(words, cwd=self.root, seconds=60, memory=4 << 30, environment=self.environment(cache))

    def use(self, model: str) -> list[Outcome]:
        return [self.call([model if word == "MODEL" else word for word in use]) for use in self.world.uses]


@pytest.fixture(scope="module", params=drawn(WORLDS, first=1))
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained.make(WORLDS[request.param], tmp_path_factory.mktemp(request.param))


def test_a_damaged_model_answers_as_the_whole_one_or_says_what_is_wrong(
    trained: Trained, record_property: Record
) -> None:
    faults = []
    record_property("cases", TIMES * ROUNDS)
    for seed in range(TIMES * ROUNDS):
        place = trained.root / "damaged"
        shutil.copytree(trained.root / "run" / "model", place)
        done = damage(place, seed, FREE)
        for outcome, answer in zip(trained.use("damaged"), trained.answers, strict=True):
            found = fault(outcome)
            if found is None and outcome.code == 0 and outcome.out != answer:
                found = f"answers {outcome.out[:80]!r} instead of {answer[:80]!r}"
            if found:
                faults.append(f"seed {seed}, {done}: {found}\n    {outcome.err[-300:].strip()}")
        shutil.rmtree(place)
    assert not faults, "\n".join(faults)


def test_a_damaged_store_is_built_again(trained: Trained, record_property: Record) -> None:
    """A run on a damaged cache comes to what a run on a whole one comes to."""
    assert (trained.root / "cache").exists() == trained.world.stores
    if not trained.world.stores:
        return
    expected, times = result(trained.root / "run"), max(1, TIMES * ROUNDS // 3)
    faults = []
    record_property("cases", times)
    for seed in range(times):
        shutil.copytree(trained.root / "cache", trained.root / "other")
        done = damage(trained.root / "other", seed)
        outcome = trained.call(trained.world.train("again"), "other")
        found = fault(outcome)
        if found is None and outcome.code == 0:
            again = result(trained.root / "again")
            found = next((f"another {key}" for key in expected if key != "log" and again[key] != expected[key]), None)
        if found or outcome.code:
            faults.append(f"seed {seed}, {done}: {found or 'refused'}\n    {outcome.err[-300:].strip()}")
        for name in ("other", "again"):
            shutil.rmtree(trained.root / name, ignore_errors=True)
    assert not faults, "\n".join(faults)


def test_a_damaged_run_is_resumed_to_the_same_end_or_says_what_is_wrong(
    trained: Trained, record_property: Record
) -> None:
    """Of an unfinished run: settings, log, checkpoints, snapshots."""
    expected, times = result(trained.root / "run"), max(1, TIMES * ROUNDS // 3)
    faults = []
    record_property("cases", times)
    for seed in range(times):
        shutil.copytree(trained.root / "run", trained.root / "cut")
        shutil.rmtree(trained.root / "cut" / "model")
        done = damage(trained.root / "cut", seed, (".lock",))
        outcome = trained.call(trained.world.train("cut"))
        found = fault(outcome)
        if found is None and outcome.code == 0:
            again = result(trained.root / "cut")
            found = next((f"another {key}" for key in ("weights", "score") if again[key] != expected[key]), None)
            found = None if "is broken" in outcome.err else found  # a snapshot that the average has to do without
        if found:
            faults.append(f"seed {seed}, {done}: {found}\n    {outcome.err[-300:].strip()}")
        shutil.rmtree(trained.root / "cut")
    assert not faults, "\n".join(faults)

"""Command lines drawn at random from what the commands declare: whatever is typed, an answer or one clear line.

A short round draws some sixty of them; HEADWAY_FUZZ=N draws N times as many.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis.strategies as some
import pytest
import typer
from forked import ROUNDS, Record, call, load_modules
from hypothesis import HealthCheck, given, seed, settings
from lines import fault
from worlds import WORLDS

from headway.cli.app import app

RECIPES = (
    "gpt",
    "markov",
    "translate",
    "tag",
    "classify",
    "nosuch",
    "ladder",
    "classify-pictures",
    "scenes-boxes",
    "scenes-objects",
    "babi",
    "answer",
)
ACTED_IN = ("lane-keeping", "CartPole-v1", "Pendulum-v1", "nosuch-v1", "nosuch:x-v0", "x/y")
COMMANDS: dict[str, Any] = dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
DRAWN = tuple(name for name in COMMANDS if name != "demo")  # it trains for minutes, whatever else is said
LIVE = ("explore",)  # a server: with --html only
NUMBERS = (
    "0", "1", "2", "-1", "3.5", ".5", "1e4", "1e309", "nan", "inf", "-inf", "1e400", "9" * 12, "9" * 40, "0x10", "1_0",
    "٣", "ten", "", " ", "1e-400", "2147483648", "9223372036854775808",
)  # fmt: skip
WORDS = (
    "cpu",
    "cuda",
    "x",
    "",
    " ",
    "-",
    "--",
    "é" * 40,
    "a=b",
    "\udcff",
    "\n",
    "$HOME",
    "~",
    "%s%n",
    "{}",
    "a" * 3000,
)
PLACES = (
    "MODEL", "RUN", "text.txt", "train.en", "missing", "missing/deep", ".", "..", "/", "/dev/null", "/proc/self/mem",
    "binary", "empty", "folder", "https://x.invalid/y", "hf://x/y", "-", "",
)  # fmt: skip
SETTINGS = (
    "engine.steps", "engine.batch", "engine.seconds", "engine.workers", "engine.keep", "model.width", "model.layers",
    "model.heads", "model.max_length", "model.dropout", "schedule.peak", "schedule.warmup", "optimiser", "objective",
    "data.text.size", "data.text.kind", "init", "engine.frozen", "engine.dtype", "validation.every", "nosuch", "model",
    "data.hold_out", "engine.seed", "search.beam", "model.hops", "data.noise", "head.tied",
    "data.window", "data.stride", "data.longest", "data.no_answer",
)  # fmt: skip


def values(option: Any) -> some.SearchStrategy[str]:
    if "--set" in option.opts:
        return some.builds("{}={}".format, some.sampled_from(SETTINGS), some.sampled_from(NUMBERS + WORDS))
    return some.sampled_from(NUMBERS) | some.sampled_from(WORDS) | some.sampled_from(PLACES)


@some.composite
def lines(draw: Any, names: tuple[str, ...] = DRAWN) -> list[str]:
    name = draw(some.sampled_from(names))
    found = [name]
    first = some.sampled_from({"train": RECIPES, "compare": RECIPES, "collect": ACTED_IN}.get(name, PLACES))
    found += draw(some.lists(first | some.sampled_from(PLACES), max_size=3))
    options = [option for option in COMMANDS[name].params if option.param_type_name == "option"]
    for option in draw(some.lists(some.sampled_from(options), max_size=4, unique=True)) if options else ():
        found.append(draw(some.sampled_from(option.opts)))
        if not option.is_flag:
            found.append(draw(values(option)))
    if name in LIVE and "--html" not in found:
        found += ["--html", "page.html"]
    return [word.replace("\0", "") for word in found]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, an unfinished one's place, and files that hold all sorts of things."""
    root = tmp_path_factory.mktemp("lines")
    for name in ("gpt", "translate"):
        WORLDS[name].make(root)
    (root / "binary").write_bytes(bytes(range(256)) * 8)
    (root / "empty").touch()
    (root / "folder").mkdir()
    outcome = load_modules(WORLDS["gpt"].train("run"), root, {"HEADWAY_CACHE": str(root / "cache")})
    assert outcome.code == 0, outcome.err
    return root


def asked(line: list[str]) -> list[str]:
    """Runs are short where nobody said how long: what is tried are the words, not the training."""
    words = ["run/model" if word == "MODEL" else "run" if word == "RUN" else word for word in line]
    if words[0] in ("train", "compare") and "--dry-run" not in words:
        words += ["--set", "engine.steps=1", "model.width=16"] if "--set" not in words else ["--dry-run"]
    if words[0] == "collect":
        words = [*words, "--episodes", "2", "--steps", "5"]  # the last one counts
    return words


@seed(16)
@settings(
    max_examples=60 * ROUNDS, deadline=None, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(line=lines())
def test_any_command_line_gives_an_answer_or_one_clear_line(
    line: list[str], place: Path, record_property: Record
) -> None:
    record_property("cases", 1)
    environment = {"HEADWAY_CACHE": str(place / "cache"), "HEADWAY_DATA": ""}
    outcome = call(asked(line), cwd=place, seconds=60, memory=4 << 30, environment=environment)
    assert fault(outcome) is None, f"{fault(outcome)}: headway {asked(line)}\n{outcome.err[-600:]}"

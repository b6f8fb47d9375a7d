"""What the command says of itself, how quickly, and that it keeps to itself."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from calling import DEVICE, Headway, World

import headway as package
from headway.cli.app import COMMANDS, GROUPS
from headway.recipes import RECIPES
from headway.recipes.grammar import splits

VERBS = ("demo", "train", "translate", "evaluate", "recipes", "runs", "plot", "cost")


def test_help_answers_without_what_is_slow_to_import() -> None:
    script = (
        "import sys\nfrom headway.cli.app import main\ntry:\n    main(['--help'])\nfinally:\n"
        "    slow = {'torch', 'numpy', 'matplotlib', 'tokenizers', 'sacrebleu'}\n"
        "    print(sorted(slow & {*sys.modules}), file=sys.stderr)"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=300, check=True)
    assert answer.stderr == b"[]\n"
    assert all(verb in answer.stdout.decode() for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_under_its_own_name(headway: Headway, verb: str) -> None:
    answer = headway(verb, "--help")
    assert answer.code == 0 and answer.err == ""
    assert answer.out.startswith(f"Usage: headway {verb}")


def test_version(headway: Headway) -> None:
    assert headway("--version").out == f"{package.__version__}\n"


def test_nothing_asked_shows_the_commands_by_group_as_wrong_use(headway: Headway) -> None:
    answer = headway()
    assert answer.code == 2 and answer.out == ""
    assert answer.err.startswith("Usage: headway") and len(answer.err.splitlines()) < 15
    for title, group in GROUPS.items():
        [line] = [line for line in answer.err.splitlines() if line.startswith(f"  {title}  ")]
        assert line.endswith(f"  {', '.join(group)}")
    shown = [line.partition("   ")[0].strip() for line in answer.err.splitlines() if line.startswith("  headway ")]
    assert len(shown) > 2 and {line.split()[1] for line in shown} <= COMMANDS.keys()


def test_help_has_each_command_in_one_line_of_its_group(headway: Headway) -> None:
    lines = headway("--help").out.splitlines()
    at = {title: lines.index(f"{title}:") for title in GROUPS}
    for title, group in GROUPS.items():
        rows = lines[at[title] + 1 : at[title] + 1 + len(group)]
        assert [row.split()[0] for row in rows] == list(group)
        assert [row.split(None, 1)[1] for row in rows] == list(group.values())
    assert "classify" not in "".join(lines) and headway("classify", "--help").code == 0


def test_an_unknown_verb_or_option_is_one_line(headway: Headway) -> None:
    for arguments, word in ((["translat"], "translat"), (["recipes", "--jsn"], "--jsn"), (["train"], "recipe")):
        answer = headway(*arguments)
        assert answer.code == 2 and word in answer.line.lower()


def test_debug_shows_where_an_error_came_from(headway: Headway) -> None:
    with pytest.raises(Exception, match="there is no recipe"):
        headway("--debug", "train", "nothing-like-it")


def test_recipes_lists_every_recipe(headway: Headway) -> None:
    answer = headway("recipes")
    assert answer.code == 0 and answer.err == ""
    assert all(name in answer.out for name in RECIPES)
    rows = json.loads(headway("recipes", "--json").out)
    assert [row["name"] for row in rows] == list(RECIPES)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every attempt to reach another machine, refused and kept."""
    tried: list[object] = []

    def refuse(*arguments: object, **named: object) -> None:
        tried.append(arguments)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return tried


def test_no_verb_opens_a_connection(
    headway: Headway, world: World, tmp_path: Path, connections: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.recipes.demo.splits", lambda: splits(train=60, valid=10, test=10))
    calls = (
        ["recipes"],
        world.train(tmp_path / "run", "--set", "engine.steps=2", "engine.tensorboard=true"),
        ["translate", world.run, world.root / "test.en", *DEVICE],
        ["evaluate", world.run, *world.files("test"), *DEVICE],
        ["runs", tmp_path],
        ["plot", tmp_path / "run"],
        ["demo", "--out", tmp_path / "demo", "--steps", 2, *DEVICE],
    )
    for call in calls:
        answer = headway(*call)
        assert answer.code == 0, answer
    assert connections == []
    assert (tmp_path / "demo" / "report.txt").read_text(encoding="utf-8") == answer.out
    assert {"alignment.png", "heads.png", "model"} <= {path.name for path in (tmp_path / "demo").iterdir()}
    for name in ("test.en", "test.gold", "test.antecedents"):  # what `headway analyse` reads, line by line
        assert len((tmp_path / "demo" / "data" / name).read_text(encoding="utf-8").splitlines()) == 10


def test_data_that_is_not_at_hand_is_named_with_the_ways_to_get_it(
    headway: Headway, tmp_path: Path, connections: list[object]
) -> None:
    answer = headway("train", "multi30k-en-de", "--out", tmp_path / "run", *DEVICE)
    assert answer.code == 2
    for word in ("multi30k/tok/train.lc.norm.tok.en", "HEADWAY_DATA", "--download", "https://"):
        assert word in answer.line
    assert connections == [] and list(tmp_path.iterdir()) == []


def test_only_download_contacts_the_network_and_says_when_it_cannot(
    headway: Headway, tmp_path: Path, connections: list[object]
) -> None:
    answer = headway("train", "multi30k-en-de", "--download", "--out", tmp_path / "run", *DEVICE)
    assert answer.code == 2 and "could not fetch https://" in answer.line
    assert len(connections) > 0 and list(tmp_path.iterdir()) == []

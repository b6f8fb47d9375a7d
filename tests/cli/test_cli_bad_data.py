"""Bad text files: one line that names file and line, exit code 2, and nothing left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from calling import DEVICE, SMALL, Headway, World, listing, write

Refuses = Callable[..., str]
GOOD = ["the red car", "the old dog", "a small house"] * 20


def spoil(folder: Path, kind: str) -> tuple[Path, Path, tuple[str, ...]]:
    """Two files of which one is bad, and what the error line has to say of it."""
    source, target = write(folder, "a.en", GOOD), write(folder, "a.fr", GOOD)
    match kind:
        case "lengths":
            write(folder, "a.fr", GOOD[:-7])
            return source, target, (str(source), str(target), "60", "53")
        case "encoding":
            target.write_bytes(b"le chat\n" * 41 + b"la for\xeat\n" + b"le chien\n" * 18)
            return source, target, (str(target), "line 42", "UTF-8")
        case "empty":
            source.write_bytes(b"")
            return source, target, (str(source), "empty")
        case "blank":
            for name in ("a.en", "a.fr"):
                write(folder, name, [" "] * 60)
            return source, target, ("empty",)
        case "missing":
            return folder / "aa.en", target, (str(folder / "aa.en"), "did you mean 'a.en'")
        case "folder":
            (folder / "c").mkdir()
            return source, folder / "c", (str(folder / "c"), "folder")
        case "markup":
            return source, write(folder, "a.xml", GOOD), ("a.xml",)
        case _:
            packed = folder / "a.fr.gz"
            packed.write_bytes(b"\x1f\x8b cut short")
            return source, packed, (str(packed), ".gz")


KINDS = ("lengths", "encoding", "empty", "missing", "folder", "markup", "gz")


@pytest.mark.parametrize(
    ("part", "kind"), [*product(("--data", "--valid"), (*KINDS, "blank")), *product(("--test",), KINDS)]
)
def test_training_refuses_bad_files_of_any_part(
    refuses: Refuses, world: World, tmp_path: Path, part: str, kind: str
) -> None:
    source, target, words = spoil(tmp_path, kind)
    parts = {"--data": world.files("train"), "--valid": world.files("valid")} | {part: [source, target]}
    files = [argument for option, paths in parts.items() for argument in (option, *paths)]
    before = listing(tmp_path)
    line = refuses("train", "translate", *files, *DEVICE, *SMALL, "--out", tmp_path / "runs" / "x", after_work=True)
    assert all(word in line for word in words), line
    assert listing(tmp_path) == before


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_refuses_bad_files(refuses: Refuses, world: World, tmp_path: Path, kind: str) -> None:
    source, target, words = spoil(tmp_path, kind)
    before = listing(tmp_path)
    line = refuses("evaluate", world.run, source, target, *DEVICE, "--output", tmp_path / "kept.fr")
    assert all(word in line for word in words), line
    assert listing(tmp_path) == before


@pytest.mark.parametrize("kind", ["encoding", "empty", "missing", "folder", "gz"])
def test_translation_refuses_bad_files_and_keeps_the_earlier_output(
    refuses: Refuses, world: World, tmp_path: Path, kind: str
) -> None:
    source, target, words = spoil(tmp_path, kind)
    bad = source if kind in ("empty", "missing") else target
    write(tmp_path, "kept.fr", ["from before"])
    before = listing(tmp_path)
    line = refuses("translate", world.run, bad, "--output", tmp_path / "kept.fr", *DEVICE)
    assert all(word in line for word in words), line
    assert listing(tmp_path) == before


def test_no_data_at_all(refuses: Refuses, tmp_path: Path) -> None:
    assert "--data" in refuses("train", "translate", "--out", tmp_path / "x", *DEVICE)
    assert "`headway demo`" in refuses("train", "demo", "--out", tmp_path / "x", *DEVICE)
    assert "--data needs a value" in refuses("train", "translate", "--data", "--out", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_what_is_to_be_judged_on_is_looked_at_before_anything_is_encoded(refuses: Refuses, tmp_path: Path) -> None:
    files = [write(tmp_path, f"good.{side}", GOOD) for side in ("en", "fr")]
    for part in ("--valid", "--test"):
        more = ["--valid", *files] if part == "--test" else []
        given = ("--data", *files, *more, part, tmp_path / "no.en", tmp_path / "no.fr")
        line = refuses("train", "translate", *given, *SMALL, *DEVICE, "--out", tmp_path / "x")
        assert "no file" in line and "no.en" in line


def test_too_few_pairs_to_hold_some_out(refuses: Refuses, tmp_path: Path) -> None:
    for name, rows in (("few", GOOD[:5]), ("same", ["one and the same"] * 60)):
        files = [write(tmp_path, f"{name}.{side}", rows) for side in ("en", "fr")]
        line = refuses("train", "translate", "--data", *files, *SMALL, *DEVICE, "--out", tmp_path / "x")
        assert "too few" in line and "--valid" in line
        assert not (tmp_path / "x").exists()


LONG = " ".join(["the old dog and the red car"] * 30)


def test_training_leaves_out_what_is_too_long_and_names_it(headway: Headway, world: World, tmp_path: Path) -> None:
    """In all three parts, never cut: the counts are of whole pairs."""
    files = []
    for part, at in (("train", 17), ("valid", 4), ("test", 2)):
        for path in world.files(part):
            rows = path.read_text(encoding="utf-8").splitlines()
            rows[at - 1] = LONG
            files += [write(tmp_path, path.name, rows)]
    options = [
        a for option, at in (("--data", 0), ("--valid", 2), ("--test", 4)) for a in (option, *files[at : at + 2])
    ]
    answer = headway("train", "translate", *options, *DEVICE, *SMALL, "--out", tmp_path / "run")
    assert answer.code == 0, answer
    for words in ("train: 1 pairs longer than 63", "(pairs 17)", "valid: 1 pairs longer", "(pairs 4)"):
        assert words in answer.err
    assert "test: 1 sources longer than 63 tokens are not scored (pairs 2)" in answer.err
    events = [json.loads(row) for row in (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    data = {event["part"]: event for event in events if event["event"] == "data"}
    assert data["train"]["skipped"]["too_long"] == 1 and data["train"]["too_long"] == [17]
    assert data["train"]["pairs"] == 299
    scored = {event["part"]: event for event in events if event["event"] == "scored"}
    assert scored["test"]["too_long"] == [2] and scored["test"]["pairs"] == 19
    assert "test BLEU" in answer.out


def test_translation_names_the_line_that_is_too_long(refuses: Refuses, world: World, tmp_path: Path) -> None:
    source = write(tmp_path, "a.en", [*GOOD[:6], LONG, GOOD[7]])
    line = refuses("translate", world.run, source, "--output", tmp_path / "a.fr", *DEVICE)
    assert f"{source}, line 7 has" in line and "63" in line
    assert [path.name for path in tmp_path.iterdir()] == ["a.en"]


def test_evaluation_names_the_sentence_that_is_too_long(refuses: Refuses, world: World, tmp_path: Path) -> None:
    files = [write(tmp_path, f"a.{side}", [*GOOD[:2], LONG]) for side in ("en", "fr")]
    assert "sentence 3" in refuses("evaluate", world.run, *files, *DEVICE)

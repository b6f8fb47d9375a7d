"""A language model by command: trained on a text, written with, measured, resumed; bad input in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import DEVICE, Headway, World, listing, write

from headway.recipes.grammar import sample
from headway.tasks.loading import load

Refuses = Callable[..., str]
SMALL = [
    "--set", "engine.steps=40", "engine.batch=512", "engine.snapshot=20", "engine.log=10", "engine.checkpoint=10",
    "model.layers=1", "model.width=32", "model.heads=2", "model.max_length=32", "validation.every=20",
    "validation.score_every=20", "schedule.warmup=5", "schedule.peak=0.01",
]  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [sentence.source for sentence in sample(300, seed=3)]
    return write(tmp_path_factory.mktemp("text"), "text.txt", rows)


def train(text: Path, out: Path, *more: object) -> list[object]:
    return ["train", "gpt", "--data", text, *DEVICE, *SMALL, "--set", "data.text.kind=char", "--out", out, *more]


@pytest.fixture
def run(headway: Headway, text: Path, tmp_path: Path) -> Path:
    answer = headway(*train(text, tmp_path / "run"))
    assert answer.code == 0 and "bits per character" in answer.out, answer
    return tmp_path / "run"


def test_a_run_trains_a_model_that_writes_and_is_measured(headway: Headway, run: Path, text: Path) -> None:
    prompt = ["generate", run, "--prompt", "The ", *DEVICE]
    greedy = headway(*prompt, "--temperature", 0, "--max-new-tokens", 12)
    assert greedy.code == 0 and greedy.out.startswith("The ")
    assert headway(*prompt, "--temperature", 0, "--max-new-tokens", 12).out == greedy.out
    same = [headway(*prompt, "--seed", 5, "--max-new-tokens", 12).out for _ in range(2)]
    assert same[0] == same[1] != headway(*prompt, "--seed", 6, "--max-new-tokens", 12).out
    found = json.loads(headway(*prompt, "--json", "--max-new-tokens", 3, "--top", 2).out)
    assert len(found["log_probabilities"]) == 3 and len(found["alternatives"][0]) == 2
    best, second = found["alternatives"][0]
    assert best["log_probability"] >= second["log_probability"] and best["token"] != second["token"]
    chosen = headway(*prompt, "--choice", "cat", "dog", "--max-new-tokens", 9).out
    assert chosen in ("The cat\n", "The dog\n")
    measured = json.loads(headway("evaluate", run, text, "--json", "--stride", 8, *DEVICE).out)
    assert 0 < measured["bits per character"] < 8
    assert "moved by 32" in headway("evaluate", run, text, *DEVICE).out


def test_a_beam_prints_the_most_probable_texts(headway: Headway, run: Path) -> None:
    ask = ["generate", run, "--prompt", "The ", "A ", "--max-new-tokens", 6, *DEVICE]
    rows = [json.loads(line) for line in headway(*ask, "--beam-size", 4, "--best", 3, "--json").out.splitlines()]
    assert len(rows) == 6 and rows[0]["score"] >= rows[1]["score"] >= rows[2]["score"]
    plain = headway(*ask, "--beam-size", 4)
    assert plain.out == f"The {rows[0]['text']}\n---\nA {rows[3]['text']}\n"
    greedy = headway(*ask, "--temperature", 0, "--json")
    assert [json.loads(line)["text"] for line in greedy.out.splitlines()] == [
        json.loads(line)["text"] for line in headway(*ask, "--beam-size", 1, "--json").out.splitlines()
    ]
    for more, said in (
        (("--beam-size", 4, "--top-k", 3), "leave --top-k out"),
        (("--beam-size", 4, "--samples", 2), "leave --samples out"),
        (("--best", 2), "add --beam-size N"),
        (("--beam-size", 2, "--best", 3), "best must lie between 1 and the beam (2), not 3"),
    ):
        refused = headway(*ask, *more)
        assert refused.code == 2 and said in refused.err and not refused.out


def test_several_samples_and_the_best_of_some(headway: Headway, run: Path) -> None:
    ask = ["generate", run, "--prompt", "The ", "A ", "--max-new-tokens", 6, *DEVICE]
    assert len(headway(*ask, "--samples", 3, "--json").out.splitlines()) == 6
    assert len(headway(*ask, "--best-of", 3, "--json").out.splitlines()) == 2


def test_the_folder_says_what_it_is(run: Path, headway: Headway, world: World) -> None:
    card = json.loads((run / "model" / "headway.json").read_text(encoding="utf-8"))
    assert card["family"] == "gpt" and list(card["processors"]) == ["text"] and card["task"] == "language"
    assert "headway predict FOLDER" in (run / "model" / "README.md").read_text(encoding="utf-8")
    assert load(run, "cpu").generate(["The "], temperature=0, max_new=4)
    assert "headway generate" in headway("translate", run, *DEVICE).err
    assert "headway translate" in headway("generate", world.run, "--prompt", "x", *DEVICE).err


def test_more_steps_are_what_a_longer_run_gives(headway: Headway, text: Path, tmp_path: Path) -> None:
    """Half a run, then the rest: the weights of a whole one. (The rate does not depend on the steps here.)"""
    linear = ["schedule=inverse-root", "schedule.peak=0.01", "schedule.warmup=5"]
    headway(*train(text, tmp_path / "whole", "--set", *linear))
    headway(*train(text, tmp_path / "half", "--set", *linear, "engine.steps=20"))
    (tmp_path / "half" / "model" / "headway.json").unlink()
    again = headway("train", tmp_path / "half", "--resume", "--set", "engine.steps=40", *DEVICE)
    assert again.code == 0 and "resuming from step 20" in again.err
    weights = [(tmp_path / run / "model" / "model.safetensors").read_bytes() for run in ("whole", "half")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"too short", "smaller than one window"), (b"\x00\x01\x02\xff" * 50, "binary"), (b"", "empty")],
)
def test_text_that_cannot_be_learned_from(refuses: Refuses, tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.txt").write_bytes(content)
    before = listing(tmp_path)
    assert said in refuses(*train(tmp_path / "x.txt", tmp_path / "out"), after_work=True)
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--temperature", "-1"], "temperature"),
        (["--top-p", "0"], "temperature=0"),
        (["--prompt", "The " * 30], "32"),
        (["--stop", ""], "stop"),
    ],
)
def test_wishes_that_cannot_be(refuses: Refuses, run: Path, options: list[str], said: str) -> None:
    assert said in refuses("generate", run, *DEVICE, *([] if "--prompt" in options else ["--prompt", "The"]), *options)


def test_an_empty_prompt_begins_a_text_and_a_window_goes_on(headway: Headway, run: Path) -> None:
    assert headway("generate", run, "--prompt", "", "--max-new-tokens", 5, *DEVICE).code == 0
    far = headway("generate", run, "--prompt", "The ", "--max-new-tokens", 60, "--temperature", 0, *DEVICE)
    assert "--window continues" in far.err and len(far.out) < 60
    farther = headway(
        "generate", run, "--prompt", "The ", "--max-new-tokens", 60, "--temperature", 0, "--window", *DEVICE
    )
    assert farther.code == 0 and farther.err == "" and farther.out.startswith(far.out.rstrip("\n"))


def test_room_is_spoken_of_only_where_it_ran_out(headway: Headway, run: Path) -> None:
    full = headway("generate", run, "--prompt", "the", "--max-new-tokens", 500, "--temperature", 0, *DEVICE)
    assert full.code == 0 and "is full; --window continues" in full.err
    stopped = headway("generate", run, "--prompt", "the", "--max-new-tokens", 500, "--choice", "x", *DEVICE)
    assert stopped.code == 0 and stopped.err == ""


@pytest.mark.parametrize("option", [["--prompt", "a"], ["--json"], ["--samples", "2"], ["--best-of", "2"]])
def test_a_conversation_refuses_what_it_would_leave_out(refuses: Refuses, run: Path, option: list[str]) -> None:
    assert option[0] in refuses("generate", run, "-i", *option)


def test_texts_of_several_prompts_stand_apart(headway: Headway, run: Path) -> None:
    answer = headway("generate", run, "--prompt", "The", "A", "--choice", "x", *DEVICE)
    assert answer.out == "Thex\n---\nAx\n"


def test_a_model_of_another_family_is_named(refuses: Refuses, run: Path, text: Path, tmp_path: Path) -> None:
    line = refuses("train", "translate", "--data", text, text, "--init", run, "--out", tmp_path / "x", *DEVICE)
    assert "the family 'gpt'" in line and "'transformer'" in line


def test_a_recipe_for_text_takes_no_pairs(refuses: Refuses, text: Path, tmp_path: Path) -> None:
    assert "--source" in refuses(*train(text, tmp_path / "x", "--source", "en"))
    assert "family" in refuses(*train(text, tmp_path / "x", "--set", "model=transformer"))


def test_a_choice_is_written_whole_and_options_of_translators_are_refused(
    headway: Headway, refuses: Refuses, run: Path, text: Path
) -> None:
    ask = ["generate", run, "--prompt", "The ", *DEVICE]
    assert headway(*ask, "--choice", "cat and dog", "--max-new-tokens", 2).out == "The cat and dog\n"
    assert "choice" in refuses(*ask, "--choice", "")
    assert "--beam-size has no meaning for a language model" in refuses(
        "evaluate", run, text, "--beam-size", 3, *DEVICE
    )
    assert "--json" in refuses(*ask, "--top", 2)


def test_files_of_a_folder_that_are_not_read_are_named(headway: Headway, text: Path, tmp_path: Path) -> None:
    books = tmp_path / "books"
    books.mkdir()
    (books / "a.txt").write_bytes(text.read_bytes())
    (books / "notes.md").write_text("# notes")
    answer = headway(*train(books, tmp_path / "out"))
    assert answer.code == 0 and "1 files that are no .txt or .jsonl are left out (notes.md)" in answer.err


def test_no_fewer_steps_than_were_taken(refuses: Refuses, run: Path) -> None:
    before = (run / "run.json").read_bytes()
    line = refuses("train", run, "--resume", "--set", "engine.steps=10", *DEVICE, after_work=True)
    assert "at step 40 already" in line and (run / "run.json").read_bytes() == before

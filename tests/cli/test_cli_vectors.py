"""Word vectors by command: trained, looked at, written, and used to begin other models with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from calling import DEVICE, Headway, World, listing, write
from safetensors.numpy import load_file

from headway.recipes.grammar import sample
from headway.text.tokenizer import Tokenizer
from headway.text.vectors import WordVectors, read_vectors, write_vectors

Refuses = Callable[..., str]
GPT = [
    "--set", "engine.steps=2", "engine.batch=128", "model.layers=1", "model.width=16", "model.heads=2",
    "model.max_length=16", "schedule.peak=1e-9", "data.text.kind=word",
]  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [sentence.source for sentence in sample(400, seed=3)]
    return write(tmp_path_factory.mktemp("text"), "text.txt", rows)


def skip_gram(text: Path, out: Path, *more: object) -> list[object]:
    small = ["--set", "engine.steps=40", "engine.batch=1000", "model.width=16", "engine.checkpoint=20"]
    return ["train", "skip-gram", "--data", text, *DEVICE, *small, "--out", out, *more]


@pytest.fixture
def run(headway: Headway, text: Path, tmp_path: Path) -> Path:
    answer = headway(*skip_gram(text, tmp_path / "run"))
    assert answer.code == 0 and "validation loss: " in answer.out, answer
    assert "passes over the text (5, as word2vec does it: engine.steps=" in answer.err
    return tmp_path / "run"


def test_a_run_is_a_folder_like_any_other(headway: Headway, refuses: Refuses, run: Path, text: Path) -> None:
    card = json.loads((run / "model" / "headway.json").read_text(encoding="utf-8"))
    assert (
        card["family"] == "skip-gram"
        and card["processors"]["text"]["options"]["kind"] == "word"
        and card["config"]["width"] == 16
    )
    assert "headway predict FOLDER" in (run / "model" / "README.md").read_text(encoding="utf-8")
    again = headway(*skip_gram(text, run))
    assert again.code == 0 and "finished before" in again.out
    assert json.loads(headway("runs", run, "--json").out)[0]["state"] == "finished"
    assert "headway neighbours" in refuses("generate", run, "--prompt", "x", *DEVICE)
    assert "headway neighbours" in refuses("evaluate", run, text, *DEVICE)
    shown = headway("train", "skip-gram", "--data", text, "--dry-run", *DEVICE)
    assert shown.code == 0 and "20,480,000 tokens in 5,000 steps" in shown.out
    compared = ["compare", "skip-gram", "markov", "--data", text, "--tokens", "2k", "--out", run / "x", *DEVICE]
    assert "skip-gram learns from words, markov from plain-text: not comparable" in refuses(*compared)


def test_neighbours_of_words_and_of_a_sum(headway: Headway, refuses: Refuses, run: Path) -> None:
    two = headway("neighbours", run, "The", "cat", "--top", 3)
    assert two.code == 0 and two.err == ""
    assert [line[0] == " " for line in two.out.splitlines()] == [False, True, True, True] * 2
    found = json.loads(headway("neighbours", run, "cat", "--top", 4, "--json").out)
    assert found["words"] == ["cat"] and len(found["neighbours"]) == 4
    cosines = [cosine for _, cosine in found["neighbours"]]
    assert cosines == sorted(cosines, reverse=True)
    summed = json.loads(headway("neighbours", run, "cat", "the", "--minus", "dog", "--json").out)
    assert summed["minus"] == ["dog"] and len(summed["neighbours"]) == 10
    assert not {"cat", "the", "dog"} & {word for word, _ in summed["neighbours"]}
    assert "none of the" in refuses("neighbours", run, "catt")
    assert "is not one entry of the vocabulary, but 2" in refuses("neighbours", run, "cat,")


@pytest.mark.parametrize("name", ["v.txt", "v.bin", "v.vec.gz"])
def test_vectors_are_written_as_the_model_has_them(headway: Headway, run: Path, tmp_path: Path, name: str) -> None:
    answer = headway("vectors", run, "--out", tmp_path / name)
    assert answer.code == 0 and "vectors of width 16" in answer.out
    found = read_vectors(tmp_path / name)
    table = load_file(run / "model" / "model.safetensors")["table.weight"]
    tokenizer = Tokenizer.load(run / "model" / "tokenizer.json")
    assert found.words[:3] == tokenizer.tokens([4, 5, 6]) and len(found) == len(tokenizer) - 4
    assert np.array_equal(found.table_ND, table[4 : len(tokenizer)])
    asked = [headway("neighbours", place, "cat", "--json").out for place in (run, tmp_path / name)]
    assert asked[0] == asked[1]


def test_a_file_that_is_there_is_not_written_over(
    headway: Headway, refuses: Refuses, run: Path, tmp_path: Path
) -> None:
    out = write(tmp_path, "keep.txt", ["mine"])
    assert "there already" in refuses("vectors", run, "--out", out) and out.read_text() == "mine\n"
    assert headway("vectors", run, "--out", out, "--overwrite").code == 0 and out.read_text() != "mine\n"


def test_a_language_model_starts_from_a_file(headway: Headway, text: Path, tmp_path: Path) -> None:
    """Rows of known words are the file's, in lower case where it has no other; the model's own come back out."""
    vectors = WordVectors(["the", "cat", "zebra"], np.arange(48, dtype=np.float32).reshape(3, 16) / 48)
    write_vectors(tmp_path / "v.bin", vectors)
    options = ["train", "gpt", "--data", text, *DEVICE, *GPT, "--out", tmp_path / "run"]
    answer = headway(*options, "--init", tmp_path / "v.bin")
    assert answer.code == 0 and "words start from" in answer.err, answer
    assert headway("vectors", tmp_path / "run", "--out", tmp_path / "out.txt").code == 0
    found = read_vectors(tmp_path / "out.txt")
    for word, row in (("the", 0), ("The", 0), ("cat", 1)):
        np.testing.assert_allclose(found.table_ND[found.row(word)], vectors.table_ND[row], atol=1e-6)
    count = sum(word.lower() in ("the", "cat") for word in found.words)
    assert f"{count} of {len(found)} words start from" in answer.err
    assert json.loads((tmp_path / "run" / "run.json").read_text())["init"] == str(tmp_path / "v.bin")


def test_a_translator_starts_from_a_file_and_shows_either_side(
    headway: Headway, refuses: Refuses, world: World, tmp_path: Path
) -> None:
    write_vectors(tmp_path / "v.txt", WordVectors(["cat", "chat"], np.full((2, 32), 0.125, np.float32)))
    apart = ["--set", "data.text.kind=word", "data.text.joint=false", "model.embeddings=tied", "engine.steps=1"]
    train = world.train(tmp_path / "run", *apart, "schedule.peak=1e-9", "--init", tmp_path / "v.txt")
    answer = headway(*train)
    assert answer.code == 0 and "words start from" in answer.err, answer
    assert "--side source or --side target" in refuses("neighbours", tmp_path / "run", "cat")
    for side, word in (("source", "cat"), ("target", "chat")):
        out = tmp_path / f"{side}.txt"
        assert headway("vectors", tmp_path / "run", "--side", side, "--out", out).code == 0
        found = read_vectors(out)
        np.testing.assert_allclose(found.table_ND[found.row(word)], 0.125, atol=1e-6)
    shared = headway("neighbours", world.run, "the", "--top", 2)
    assert shared.code == 0 and shared.out.startswith("the\n")


@pytest.mark.parametrize(
    ("words", "width", "more", "said"),
    [
        (["cat"], 12, [], "vectors of width 12, the model's are of width 16"),
        (["xyzzy"], 16, [], "none of the"),
        (["cat"], 16, ["--set", "data.text.kind=bpe"], "data.text.kind=word"),
    ],
)
def test_a_file_that_does_not_fit_is_one_line(
    refuses: Refuses, text: Path, tmp_path: Path, words: list[str], width: int, more: list[str], said: str
) -> None:
    write_vectors(tmp_path / "v.txt", WordVectors(words, np.ones((1, width), np.float32)))
    before = listing(tmp_path)
    options = ["train", "gpt", "--data", text, *DEVICE, *GPT, *more, "--out", tmp_path / "run"]
    line = refuses(*options, "--init", tmp_path / "v.txt", after_work=True)
    assert said in line and "v.txt" in line
    assert listing(tmp_path) == before


def test_bad_files_and_places(headway: Headway, refuses: Refuses, run: Path, world: World, tmp_path: Path) -> None:
    bad = write(tmp_path, "bad.txt", ["a 1 2", "b 3"])
    assert "bad.txt, line 2: a vector of 1 numbers, expected 2" in refuses("neighbours", bad, "a")
    assert "no folder" in refuses("neighbours", tmp_path / "none", "a")
    assert ".txt, .vec or .bin" in refuses("vectors", run, "--out", tmp_path / "v.csv")
    assert "leave --side out" in refuses("neighbours", run, "cat", "--side", "source")
    assert "WORD" in refuses("neighbours", run)
    # An earlier model is still a folder.
    assert "no folder" in refuses(*world.train(tmp_path / "x", "--init", tmp_path / "none"), after_work=True)

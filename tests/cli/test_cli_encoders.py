"""fill, embed and classify from the shell."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from calling import Headway, write

from encoder_folders import LABELS, declare_pooling, write_encoder
from headway.tasks.loading import load

CPU = ("--device", "cpu")
Refuses = Callable[..., str]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    write_encoder(folder, "ForMaskedLM")
    return folder


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    write_encoder(folder, "Model")
    declare_pooling(folder, {"pooling_mode": "mean"}, unit=True)
    return folder


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    write_encoder(folder, "ForSequenceClassification")
    return folder


def test_fill(headway: Headway, words: Path) -> None:
    text = "the [MASK] sat on the [MASK]."
    answer = headway("fill", words, "--text", text, "--top", 2, *CPU)
    assert answer.code == 0
    found = load(words, "cpu").fill([text], top=2)[0]
    rows = [f"  {guess.probability:6.4f}  {guess.text}" for guesses in found for guess in guesses]
    assert answer.out.splitlines() == [text, "  gap 1", *rows[:2], "  gap 2", *rows[2:]]
    record = json.loads(headway("fill", words, "--text", text, "--json", *CPU).out)
    assert record["text"] == text and [len(gap) for gap in record["gaps"]] == [5, 5]


def test_embed_writes_an_array_and_json_lines(headway: Headway, vectors: Path, tmp_path: Path) -> None:
    texts = ["the cat sat on a mat", "", "how old are you?", "a dog"]
    file = write(tmp_path, "texts.txt", texts)
    assert headway("embed", vectors, file, "--out", tmp_path / "x.npy", *CPU).code == 0
    found = np.load(tmp_path / "x.npy")
    np.testing.assert_array_equal(found, load(vectors, "cpu").embed(texts))
    assert headway("embed", vectors, file, "--out", tmp_path / "x.jsonl", *CPU).code == 0
    records = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [record["text"] for record in records] == texts
    np.testing.assert_allclose([record["vector"] for record in records], found, atol=1e-6)
    assert headway("embed", vectors, file, *CPU).out == (tmp_path / "x.jsonl").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["texts.txt", "x.jsonl", "x.npy"]


def test_embed_in_another_way_than_declared(headway: Headway, vectors: Path) -> None:
    answer = headway("embed", vectors, "--text", "a cat", "--pooling", "first", "--raw", *CPU)
    expected = load(vectors, "cpu").embed(["a cat"], pooling="first", unit=False)[0]
    np.testing.assert_allclose(json.loads(answer.out)["vector"], expected, atol=1e-6)


def test_classify_keeps_order_and_empty_lines(headway: Headway, labels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["the cat sat", "", "a big dog"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))
    answer = headway("classify", labels, *CPU)
    best = [found[0] for found in load(labels, "cpu").classify([texts[0], texts[2]])]
    lines = [f"{guess.text}\t{guess.probability:.4f}" for guess in best]
    assert answer.out.split("\n") == [lines[0], "", lines[1], ""]
    every = headway("classify", labels, "--text", texts[0], "--all", *CPU).out.split("\t")
    assert set(every[::2]) == set(LABELS.values())
    pair = headway("classify", labels, "--text", "a cat\ta dog", "--pairs", "--json", *CPU)
    assert json.loads(pair.out)["labels"][0] == [
        (found := load(labels, "cpu").classify([("a cat", "a dog")])[0][0]).text, round(found.probability, 6)
    ]  # fmt: skip


def test_classify_words(headway: Headway, tmp_path: Path) -> None:
    write_encoder(tmp_path, "ForTokenClassification")
    [found] = load(tmp_path, "cpu").tag(["the cats sat"])
    answer = headway("classify", tmp_path, "--text", "the cats sat", *CPU)
    assert answer.out == " ".join(f"{word.text}/{word.label}" for word in found) + "\n"
    record = json.loads(headway("classify", tmp_path, "--text", "the cats sat", "--json", *CPU).out)
    assert record["labels"][1]["text"] == "cats" and record["labels"][1]["start"] == 4


def test_bad_input_is_one_line(refuses: Refuses, words: Path, vectors: Path, labels: Path, tmp_path: Path) -> None:
    (empty := tmp_path / "empty.txt").write_text("")
    (blank := tmp_path / "blank.txt").write_text("\n \n")
    assert "text 1 has no gap" in refuses("fill", words, "--text", "a cat", *CPU)
    assert "is empty" in refuses("embed", vectors, empty, *CPU)
    assert "there is no text" in refuses("classify", labels, blank, *CPU)
    assert "both given" in refuses("classify", labels, blank, "--text", "a", *CPU)
    long = "the cat " * 20
    assert "text 1 has 42 tokens, this model takes at most 24" in refuses("classify", labels, "--text", long, *CPU)
    assert "vectors are written as .npy or .jsonl" in refuses("embed", vectors, "--text", "a", "--out", "x.csv", *CPU)
    assert "no pooling 'men'" in refuses("embed", vectors, "--text", "a", "--pooling", "men", *CPU)
    assert "gives vectors (headway embed)" in refuses("fill", vectors, "--text", "a", *CPU)
    assert "has no tab" in refuses("classify", labels, "--text", "a", "--pairs", *CPU)
    assert "(bert) does not generate; it answers headway embed" in refuses("generate", vectors, "--prompt", "a", *CPU)
    assert "(bert) does not translate; it answers headway embed" in refuses("translate", vectors, blank, *CPU)


def test_a_text_in_the_place_of_a_file_is_told_of_text(refuses: Refuses, labels: Path) -> None:
    assert "no file 'a dull film'; if that is a text, write --text before it" in refuses(
        "predict", labels, "a dull film"
    )


def test_a_long_text_is_cut_when_asked(headway: Headway, labels: Path) -> None:
    assert headway("classify", labels, "--text", "the cat " * 20, "--truncate", *CPU).code == 0


def test_labels_are_learned_from_an_encoder_and_scored(headway: Headway, vectors: Path, tmp_path: Path) -> None:
    verbs = ["sat", "sat", "ran", "ran"] * 20  # both animals do both
    rows = [f"{number % 2}\tthe {'cat' if number % 2 else 'dog'} {verb}" for number, verb in enumerate(verbs)]
    data = write(tmp_path, "train.tsv", rows)
    small = ["engine.steps=60", "engine.batch=256", "engine.log=10", "schedule.peak=0.003", "schedule.warmup=4",
             "validation.every=20", "validation.score_every=20", "data.names=dog,cat"]  # fmt: skip
    out = tmp_path / "run"
    answer = headway("train", "classify", "--data", data, "--valid", data, "--init", vectors, "--out", out, *CPU,
                     "--set", *small)  # fmt: skip
    assert answer.code == 0, answer.err
    assert "validation accuracy: 1.0" in answer.out and "weights of" in answer.err
    assert headway("classify", out, "--text", "the cat sat", *CPU).out.startswith("cat\t")
    scores = json.loads(headway("evaluate", out, data, "--json", *CPU).out)
    assert scores == {"texts": 80, "accuracy": 1.0, "f1": 1.0, "matthews": 1.0}
    assert "accuracy" in headway("evaluate", out, data, *CPU).out


def test_a_dry_run_of_labels(headway: Headway, vectors: Path, tmp_path: Path) -> None:
    data = write(tmp_path, "train.tsv", ["0\ta", "1\tb"])
    answer = headway("train", "classify", "--data", data, "--init", vectors, "--dry-run", *CPU)
    assert answer.code == 0 and '"name": "classes"' in answer.out and "parameters:" in answer.out


def test_labels_that_cannot_be_learned(refuses: Refuses, vectors: Path, labels: Path, tmp_path: Path) -> None:
    data = write(tmp_path, "bad.tsv", ["0\ta", "1\tb", "cat"])
    out = ("--out", tmp_path / "run")
    assert "bad.tsv, line 3: 1 column, but line 1 has 2" in refuses(
        "train", "classify", "--data", data, *out, *CPU, after_work=True
    )
    text = write(tmp_path, "labels.tsv", ["superb\tthe cat"])
    assert "text 1 has the label 'superb'" in refuses("evaluate", labels, text, *CPU)
    assert "no figures for the task 'embedding'" in refuses("evaluate", vectors, text, *CPU)

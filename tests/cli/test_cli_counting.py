"""Counting by command: trained, written with, measured, exchanged as ARPA; bad input in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import DEVICE, Headway, World, listing, write

from headway.recipes.grammar import sample

Refuses = Callable[..., str]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write(tmp_path, "text.txt", [sentence.source for sentence in sample(300, seed=3)])


@pytest.fixture
def run(headway: Headway, text: Path, tmp_path: Path) -> Path:
    answer = headway("train", "markov", "--data", text, "--set", "data.text.lines=true", "--out", tmp_path / "run")
    assert answer.code == 0 and "validation perplexity: " in answer.out, answer
    return tmp_path / "run"


def test_a_chain_is_counted_writes_and_is_measured(headway: Headway, run: Path, text: Path) -> None:
    written = headway("generate", run, "--prompt", "The", "--max-new-tokens", 8, "--seed", 1, *DEVICE)
    assert written.code == 0 and written.out.startswith("The") and written.err == ""
    measured = json.loads(headway("evaluate", run, text, "--json", *DEVICE).out)
    lines = text.read_text().splitlines()
    assert measured["tokens"] == measured["words"] + len(lines)  # each line's end is foretold
    assert "read from front to back" in headway("evaluate", run, text, *DEVICE).out
    assert "finished before" in headway("train", run, "--resume").out
    assert "finished" in headway("runs", run.parent).out


def test_out_to_arpa_and_back(headway: Headway, run: Path, text: Path, tmp_path: Path) -> None:
    assert headway("export", run, tmp_path / "x.arpa.gz").code == 0
    assert headway("import", tmp_path / "x.arpa.gz", tmp_path / "back", "--like", run).code == 0
    both = [headway("evaluate", model, text, "--json", *DEVICE).out for model in (run, tmp_path / "back")]
    assert both[0] == both[1] and json.loads(both[0])["perplexity"] > 1


def test_a_dry_run_counts_nothing(headway: Headway, text: Path, tmp_path: Path) -> None:
    answer = headway("train", "markov", "--data", text, "--set", "model.smoothing=add-k", "--dry-run")
    assert answer.code == 0 and "one pass" in answer.out and '"add-k"' in answer.out


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "empty"), (b" \n\n", "empty"), (b"word\n", "n-grams of"), (b"a\x00" * 40, "binary")],
)
def test_text_that_cannot_be_counted(refuses: Refuses, tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.txt").write_bytes(content)
    (tmp_path / "y.txt").write_text("word word\n")
    before = listing(tmp_path)
    ask = ["train", "markov", "--data", tmp_path / "x.txt", "--valid", tmp_path / "y.txt", "--out", tmp_path / "out"]
    assert said in refuses(*ask, "--set", "model.order=6", "data.text.lines=true", after_work=True)
    assert listing(tmp_path) == before


def test_one_word_has_nothing_to_hold_out(refuses: Refuses, tmp_path: Path) -> None:
    lines = ["--set", "data.text.lines=true"]
    ask = ["train", "markov", "--data", write(tmp_path, "x.txt", ["w"]), "--out", tmp_path / "out", *lines]
    assert "too few" in refuses(*ask, after_work=True)


def test_files_that_are_no_n_grams(refuses: Refuses, run: Path, world: World, tmp_path: Path) -> None:
    broken = write(tmp_path, "x.arpa", ["\\data\\", "ngram 1=2", "", "\\1-grams:", "-0.3 a"])
    assert "x.arpa, line 5" in refuses("import", broken, tmp_path / "m")
    assert "there already" in refuses("import", broken, run)
    assert "no known form" in refuses("import", run / "run.json", tmp_path / "m")
    assert "--format hf" in refuses("export", run, tmp_path / "x.onnx")
    assert "there already" in refuses("export", run, broken)
    assert "only n-grams" in refuses("export", world.run, tmp_path / "y.arpa")
    assert "no folder" in refuses("export", run, tmp_path / "nowhere" / "y.arpa")


def test_settings_of_counting(refuses: Refuses, text: Path, tmp_path: Path) -> None:
    ask = ["train", "markov", "--data", text, "--out", tmp_path / "out", "--set"]
    assert "did you mean 'kneser-ney'" in refuses(*ask, "model.smoothing=kneser")
    assert "above 0" in refuses(*ask, "model.smoothing=add-k", "model.smoothing.k=-1")
    assert "model.order" in refuses(*ask, "model.order=0")

"""`headway analyse` with labelled data: treebanks, GAP, a marked word; one line for whatever is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import DEVICE, Headway

from headway.data.gap import COLUMNS

Refuses = Callable[..., str]
MODEL = Path(__file__).parents[1] / "folders" / "format-1"  # a translator, untrained: what it says is of no matter
TREE = (("He", 2, "nsubj"), ("drives", 0, "root"), ("the", 4, "det"), ("car", 2, "obj"))
GAP = ("x-1", "He drives the car and she drives it", "she", "22", "He", "0", "TRUE", "car", "14", "FALSE")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    tree = ["\t".join([str(at), w, *"____", str(h), r, "_", "_"]) for at, (w, h, r) in enumerate(TREE, 1)]
    for name, rows in {
        "a.conllu": [*tree, "", *tree, ""],
        "broken.conllu": [*tree, "", tree[0], "2\tdrives"],
        "a.tsv": ["\t".join(row) for row in (COLUMNS, GAP, GAP)],
        "broken.tsv": ["\t".join(row) for row in (COLUMNS[:-1], GAP[:-1])],
        "marked.txt": ["a\tHe *drives* the car", "b\tShe *drives* him"],
        "a.txt": ["He drives the car"],
        "empty": [],
    }.items():
        (tmp_path / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("what", "file", "columns"),
    [
        ("relations", "a.conllu", {"relation", "looks", "accuracy", "by offset"}),
        ("pronouns", "a.tsv", {"site", "head", "right", "mention"}),
        ("contexts", "marked.txt", {"layer", "within", "across"}),
        ("lens", "a.txt", {"layer", "rank", "log p"}),
        ("importance", "a.txt", {"site", "layer", "head", "change"}),
    ],
)
def test_each_analysis_gives_its_table_and_its_picture(headway: Headway, here: Path, what, file, columns) -> None:
    more = ["--set", "least=1"] if what == "relations" else []
    answer = headway("analyse", MODEL, file, "--what", what, "--json", "--out", "p.png", *more, *DEVICE)
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert found["analysis"] == what and columns <= found["rows"][0].keys()
    assert (here / "p.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("what", "file", "said"),
    [
        ("relations", "broken.conllu", "broken.conllu, line 7: 2 columns, CoNLL-U has 10"),
        ("relations", "empty", "file empty is empty"),
        ("relations", "a.conllu", "no relation has 20 pairs in both halves of 2 sentences"),
        ("pronouns", "broken.tsv", "broken.tsv, line 1: no column 'B-coref'"),
        ("pronouns", "empty", "file empty is empty"),
        ("contexts", "a.txt", "a.txt: no word is marked in its 1 lines"),
        ("contexts", "empty", "file empty is empty"),
        ("importance", "empty", "file empty is empty"),
    ],
)
def test_bad_data_is_one_clear_line(refuses: Refuses, here: Path, what, file, said) -> None:
    assert said in refuses("analyse", MODEL, file, "--what", what, *DEVICE)


def test_a_word_that_never_occurs_and_a_model_of_another_kind_are_one_clear_line(refuses: Refuses, here: Path) -> None:
    line = refuses("analyse", MODEL, "a.txt", "--what", "contexts", "--set", "word=broke", *DEVICE)
    assert "'broke' stands in none of the 1 lines of a.txt" in line
    assert "induction is for language models" in refuses("analyse", MODEL, "--what", "induction", *DEVICE)

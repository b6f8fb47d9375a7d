"""`headway analyse`: a table, a picture, JSON; and one line for whatever is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import DEVICE, Headway

from headway.evaluate.alignment import write_links
from headway.explore.analyses import ANALYSES
from headway.recipes.grammar import sample

Refuses = Callable[..., str]
MODEL = Path(__file__).parents[1] / "folders" / "format-1"  # untrained: what it says is of no matter here


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    sentences = sample(6, seed=3)
    for name, rows in {
        "a.en": [s.source for s in sentences],
        "a.fr": [s.target for s in sentences],
        "a.gold": [write_links(s.sure, s.possible) for s in sentences],
        "long.en": ["A short text.", "word " * 600, "And another."],
    }.items():
        (tmp_path / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return tmp_path


def test_a_table_on_stdout_and_a_picture_beside(headway: Headway, here: Path) -> None:
    answer = headway("analyse", MODEL, "a.en", "a.fr", *DEVICE)
    assert answer.code == 0 and answer.err == "picture: heads.png\n"
    title, *rows = answer.out.splitlines()
    assert title.split() == [
        "site", "layer", "head", "next", "previous", "first", "separator", "self", "entropy", "distance",
    ]  # fmt: skip
    sites = ("encoder.attention", "decoder.attention", "decoder.cross")
    assert [row.split()[:3] for row in rows[:6]] == [[site, "0", head] for site in sites for head in "01"]
    assert "means over 6 texts" in answer.out
    assert (here / "heads.png").read_bytes().startswith(b"\x89PNG")


def test_json_has_every_number_and_no_picture_unless_asked(headway: Headway, here: Path) -> None:
    how = ["--what", "alignment", "--set", "gold=a.gold", "words=marks", *DEVICE]
    answer = headway("analyse", MODEL, "a.en", "a.fr", *how, "--json")
    found = json.loads(answer.out)
    assert answer.err == "" and not (here / "alignment.png").exists()
    assert found["analysis"] == "alignment" and found["model"] == "format-1" and found["options"]["words"] == "marks"
    best = next(row for row in found["rows"] if row["what"] == "best head")
    assert best["pairs"] == 3 and 0 <= best["AER"] <= 1 and len(found["more"]["written"][0]) == 3
    answer = headway("analyse", MODEL, "a.en", "a.fr", *how, "--json", "--out", "picture.svg")
    assert json.loads(answer.out) == found and (here / "picture.svg").is_file()


def test_a_text_that_is_too_long_ends_it_or_is_left_out_and_counted(
    headway: Headway, refuses: Refuses, here: Path
) -> None:  # fmt: skip
    line = refuses("analyse", MODEL, "long.en", *DEVICE)
    assert line.startswith("long.en, line 2: ") and "at most 511" in line and "--long skip" in line
    answer = headway("analyse", MODEL, "long.en", "--long", "skip", *DEVICE)
    assert answer.code == 0 and "left out: 1 of 3 texts, longer than the model reads" in answer.out
    (here / "all.en").write_text("word " * 600 + "\n", encoding="utf-8")
    assert "every one of them is too long" in refuses("analyse", MODEL, "all.en", "--long", "skip", *DEVICE)


def test_only_the_first_texts_are_read(headway: Headway, here: Path) -> None:
    assert "means over 1 texts" in headway("analyse", MODEL, "long.en", "--lines", 1, *DEVICE).out


def test_the_list_names_every_analysis_with_its_settings(headway: Headway) -> None:
    told = headway("analyse", "--list").out
    for name, one in ANALYSES.items():
        assert f"\n{name}: {one.summary}\n" in f"\n{told}"
    assert "--set share=0.9" in told
    page = (Path(__file__).parents[2] / "docs" / "analyse.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in ANALYSES)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([MODEL, "a.en", "--what", "hads"], "there is no analysis 'hads'; did you mean 'heads'?"),
        ([MODEL], "--what heads needs DATA, a file of text"),
        ([], "there is no model to look into"),
        (["a.en", MODEL], "a.en is a file and no model"),
        ([MODEL, "a.en", "--long", "cut"], "--long is error or skip, not cut"),
        ([MODEL, "a.en", "--out", "picture.gif"], "a picture is written as .png, .svg or .pdf"),
        ([MODEL, "a.en", "--what", "reach", "--set", "shar=1"], "'shar'"),
        ([MODEL, "none.en"], "no file none.en"),
        ([MODEL, "blank.en"], "blank.en has no text (2 lines, all blank)"),
        ([MODEL, "empty.en"], "file empty.en is empty"),
        ([MODEL, "a.en", "a.fr", "a.gold"], "3 files: give one file of text"),
        ([MODEL, "a.en", "a.fr", "--what", "alignment"], "gold links are missing"),
        ([MODEL, "a.en", "a.fr", "--what", "alignment", "--set", "gold=one.gold"],
         "one.gold has 1 lines of links where there are 6 texts"),
        ([MODEL, "a.en", "--what", "alignment", "--set", "gold=a.gold"], "a.en, line 1: expected `source ||| target`"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line(refuses: Refuses, here: Path, arguments: list[object], said: str) -> None:
    (here / "empty.en").write_text("", encoding="utf-8")
    (here / "blank.en").write_text("\n \n", encoding="utf-8")
    (here / "one.gold").write_text("0-0\n", encoding="utf-8")
    assert said in refuses("analyse", *arguments, *DEVICE)
    assert not list(here.glob("*.png"))

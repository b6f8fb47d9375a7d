"""Strings to strings: letters in, tokens between spaces out, judged by whole strings; from the shell."""

import json

import pytest

from headway.cli.app import main
from headway.errors import InputError
from headway.evaluate.strings import StringErrors
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.loading import load
from headway.text.tokenizer import TextOptions, Tokenizer
from small_world import surroundings

WORDS = ["한국", "éa", "abc", "cab", "bac", "bca", "acb", "aéb"]
SETTINGS = (
    "engine.device=cpu", "engine.steps=12", "engine.batch=64", "engine.snapshot=4", "engine.log=4", "engine.average=2",
    "engine.checkpoint=6", "validation.every=6", "validation.score_every=6", "model.width=16", "model.dropout=0.1",
    "search.beam=2",
)  # fmt: skip


def sounds(word):
    return " ".join(f"{letter}̃ː" if letter in "aé" else letter.upper() for letter in word)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    root = tmp_path_factory.mktemp("strings")
    with surroundings(root / "cache"):
        for part, words in (("train", WORDS * 8), ("valid", WORDS), ("test", WORDS[:5])):
            (root / f"{part}.tsv").write_text("".join(f"{w}\t{sounds(w)}\n" for w in words), encoding="utf-8")
        yield root


def call(*words):
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return left.value.code


@pytest.fixture(scope="module")
def run(pairs):
    files = [word for part, name in (("train", "data"), ("valid", "valid"), ("test", "test"))
             for word in (f"--{name}", pairs / f"{part}.tsv")]  # fmt: skip
    assert call("train", "g2p", *files, "--out", pairs / "run", "--set", *SETTINGS) == 0
    return pairs / "run"


def test_letters_are_taken_apart_and_sounds_stay_whole(run):
    model = load(run, "cpu")
    letters, target = model.source_tokenizer, model.target_tokenizer
    assert len(letters.encode("한")) == 3 and len(letters.encode("é")) == 2
    assert letters.kind == "char" and target.kind == "word"
    assert target.decode(target.encode(sounds("éa"))) == sounds("éa")
    card = json.loads((run / "model" / "headway.json").read_text(encoding="utf-8"))
    assert [part["options"]["kind"] for part in card["processors"].values()] == ["char", "word"]
    assert card["task"] == "transduction"


def test_figures_are_those_of_what_it_writes(run, pairs, capsys):
    words = [line.split("\t") for line in (pairs / "test.tsv").read_text(encoding="utf-8").splitlines()]
    written = load(run, "cpu").translate([word for word, _ in words])
    expected = StringErrors.of(written, [target for _, target in words])
    capsys.readouterr()
    assert call("evaluate", run, pairs / "test.tsv", "--device", "cpu", "--json") == 0
    assert json.loads(capsys.readouterr().out)["word_error"] == expected.word_error
    card = json.loads((run / "model" / "headway.json").read_text(encoding="utf-8"))
    assert card["score"]["test word error"] == round(expected.word_error, 2)
    assert call("predict", run, "--text", *(word for word, _ in words), "--device", "cpu") == 0
    assert capsys.readouterr().out.splitlines() == [" ".join(line.split()) for line in written]


def test_bleu_has_no_meaning_for_strings(run, pairs, capsys):
    assert call("evaluate", run, pairs / "test.tsv", "--tokenize", "char", "--device", "cpu") == 2
    assert "--tokenize has no meaning for a model that turns strings into strings" in capsys.readouterr().err


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match="letters and sounds have a vocabulary each"):
        change(RECIPES["g2p"].make(), ["data.text.joint=true"])
    with pytest.raises(InputError, match=r"text\.nfd takes characters apart: it needs text\.kind=char, not bpe"):
        TextOptions(nfd=True)


def test_letters_without_nfd_stay_whole():
    tokenizer = Tokenizer.train(["한é"], TextOptions("char"))
    assert len(tokenizer.encode("한é")) == 2

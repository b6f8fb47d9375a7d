"""A tagger that is trained, resumed to the bit, asked and evaluated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from encoder_folders import write_encoder
from headway.cli.app import app
from headway.errors import InputError
from headway.evaluate.entities import EntityScores
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.loading import load
from headway.tasks.start import RunContext
from headway.tasks.tagging import Tagging
from headway.text.tokenizer import UNKNOWN
from headway.train.job import train as train_run
from headway.train.log import Log
from headway.train.parallel.ranks import Ranks
from small_runs import carried_out

pytestmark = pytest.mark.usefixtures("own_cache")
SMALL = (
    "engine.device=cpu", "engine.steps=150", "engine.batch=512", "engine.snapshot=1000", "engine.log=20",
    "engine.checkpoint=1000", "model.layers=1", "model.width=32", "model.inner=48", "model.heads=2",
    "model.max_length=48", "model.dropout=0.0", "model.attention_dropout=0.0", "data.text.size=300",
    "schedule.peak=0.01", "schedule.warmup=5", "validation.every=30", "validation.score_every=30",
)  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """First names and last names are a person, in the columns of CoNLL; some words have several tokens."""
    folder, random = tmp_path_factory.mktemp("tagged"), np.random.default_rng(1)
    chunks = [
        [("Ann", "B-PER")], [("Ann", "B-PER"), ("O'Hara-Lee", "I-PER")], [("Elm", "B-LOC"), ("Street", "I-LOC")],
        [("saw", "O")], [("the", "O")], [("U.N.", "B-ORG")], [("in", "O"), (".", "O")],
    ]  # fmt: skip
    paths = {}
    for part, count in (("train", 300), ("valid", 40), ("test", 40)):
        rows = []
        for _ in range(count):
            for at in random.integers(0, len(chunks), random.integers(2, 6)).tolist():
                rows += [f"{word} {label}" for word, label in [*chunks[at], ("and", "O")]]
            rows.append("")
        paths[part] = folder / f"{part}.conll"
        paths[part].write_text("\n".join(rows))
    return paths


def train(
    files: dict[str, Path], out: Path, *settings: str, resume: bool = False, small: Sequence[str] = SMALL
) -> dict[str, Any]:
    parts = [f"data.{part}={path}" for part, path in files.items()]
    return carried_out("tag", out, *parts, *small, *settings, resume=resume).scores


@pytest.mark.parametrize("head", ["crf", "tags"])
def test_a_tagger_learns_answers_and_is_evaluated(files: dict[str, Path], tmp_path: Path, head: str) -> None:
    out = tmp_path / "run"
    scores = train(files, out, f"head={head}")
    assert scores["test f1"] > 0.95 and scores["validation f1"] > 0.95
    tagger = load(out, "cpu")
    report = Tagging.evaluate(tagger, [str(files["test"])], {})
    assert report.values["f1"] == pytest.approx(scores["test f1"], abs=1e-4)

    call = CliRunner().invoke(app, ["predict", str(out), "--text", "Ann O'Hara-Lee saw  Elm Street", "--device", "cpu"])
    assert call.stdout == "Ann/B-PER O'Hara-Lee/I-PER saw/O Elm/B-LOC Street/I-LOC\n", call.output
    [words] = tagger.tag(["Ann O'Hara-Lee saw  Elm Street"])
    assert [(word.start, word.end) for word in words] == [(0, 3), (4, 14), (15, 18), (20, 23), (24, 30)]
    assert all(0.5 < word.probability <= 1 + 1e-6 for word in words)
    call = CliRunner().invoke(app, ["evaluate", str(out), str(files["test"]), "--json", "--device", "cpu"])
    assert json.loads(call.stdout)["f1"] == report.values["f1"]


def test_the_validation_figure_is_that_of_evaluate_where_texts_are_cut(files: dict[str, Path], tmp_path: Path) -> None:
    """Entities behind the cut count as missed."""
    scores = train(files, tmp_path / "run", "model.max_length=16", "engine.steps=20")
    report = Tagging.evaluate(load(tmp_path / "run", "cpu"), [str(files["test"])], {})
    assert report.values["f1"] == pytest.approx(scores["test f1"], abs=1e-4) and report.values["recall"] < 0.95
    assert isinstance(EntityScores(1, 1, 1, 1, 1).to_dict()["true"], int)


def test_a_head_that_hugging_face_lacks_is_not_exported(files: dict[str, Path], tmp_path: Path) -> None:
    train(files, tmp_path / "run", "engine.steps=2", "model.types=2")
    call = CliRunner().invoke(app, ["export", str(tmp_path / "run"), str(tmp_path / "theirs"), "--format", "hf"])
    assert isinstance(call.exception, InputError) and "head has no counterpart there" in str(call.exception)


def test_a_run_in_two_parts_ends_as_one(files: dict[str, Path], tmp_path: Path) -> None:
    """With dropout: the random generator is resumed too."""
    steady = ("schedule=staircase", "schedule.peak=0.001", "schedule.factor=1.0", "model.dropout=0.2")
    settings = (*steady, "engine.checkpoint=4", "validation.every=4", "validation.score_every=4")
    whole = train(files, tmp_path / "whole", "engine.steps=8", *settings)
    train(files, tmp_path / "parts", "engine.steps=4", *settings)
    parts = train(files, tmp_path / "parts", "engine.steps=8", *settings, resume=True)
    first, second = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("whole", "parts"))
    assert "head.between_LL" in first and all(torch.equal(first[name], second[name]) for name in first)
    assert {k: v for k, v in whole.items() if "seconds" not in k} == {
        k: v for k, v in parts.items() if "seconds" not in k
    }


def test_an_imported_tagger_keeps_its_tokenizers_words_and_is_evaluated_on_given_ones(tmp_path: Path) -> None:
    write_encoder(tmp_path / "theirs", "ForTokenClassification")
    encoder = load(tmp_path / "theirs", "cpu")
    assert [word.text for word in encoder.tag(["the cats sat, a"])[0]] == ["the", "cats", "sat", ",", "a"]
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps({"words": ["the", "cats", "sat,"], "tags": ["bad", "fair", "bad"]}) + "\n")
    assert Tagging.evaluate(encoder, [str(data)], {}).values["words"] == 3
    data.write_text(json.dumps({"words": ["the"], "tags": ["goad"]}) + "\n")
    with pytest.raises(InputError, match=r"data\.jsonl, line 1: the model has no tag 'goad'; did you mean 'good'\?"):
        Tagging.evaluate(encoder, [str(data)], {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.train=[]"], "no training data: pass --data FILE"),
        (["head=classes"], "needs a head: set head=tags or crf"),
        (["objective=labels"], "set objective=word-labels"),
        (["objective.smoothing=0.1"], "no label smoothing: set objective.smoothing=0"),
    ],
)
def test_bad_settings_are_one_line(files: dict[str, Path], tmp_path: Path, changes: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(files, tmp_path / "run", *changes)


def test_tags_and_words_are_shown_and_swapped_columns_refused(tmp_path: Path) -> None:
    rows = [(f"word{number}", "B-X" if number % 2 else "O") for number in range(40)]
    (tmp_path / "a.conll").write_text("".join(f"{word} {tag}\n\n" for word, tag in rows))
    (tmp_path / "b.conll").write_text("new B-Y\n\nword1 B-X\n")
    (tmp_path / "c.conll").write_text("".join(f"{tag} {word}\n" for word, tag in rows))
    call = ["train", "tag", "--data", str(tmp_path / "a.conll"), "--valid", str(tmp_path / "b.conll")]
    settings = [part for setting in (*SMALL, "engine.steps=1") for part in ("--set", setting)]
    said = CliRunner().invoke(app, [*call, "--out", str(tmp_path / "run"), *settings]).stderr
    assert "tags (3: O, B-X, B-Y), words: word0\n" in said
    assert "warning: valid: no training sentence has these tags (1: B-Y)\n" in said
    with pytest.raises(InputError, match=r"c\.conll: 2 different words .* they look swapped; --text-column"):
        train({"train": tmp_path / "c.conll"}, tmp_path / "swapped")
    chosen = train({"train": tmp_path / "a.conll", "valid": tmp_path / "c.conll"}, tmp_path / "chosen",
                   "data.label_column=2", "engine.steps=1")  # fmt: skip
    assert chosen["steps"] == 1


def test_labels_that_are_no_chunks_are_judged_by_accuracy(tmp_path: Path) -> None:
    (tmp_path / "pos.txt").write_text("\n".join(f"the DT\ncat{number % 7} NN\n" for number in range(60)))
    data = {"train": tmp_path / "pos.txt"}
    with pytest.raises(InputError, match=r"\(DT, NN …\), so there are no entities: set objective.judge=accuracy"):
        train(data, tmp_path / "run", "objective.judge=f1")
    scores = train(data, tmp_path / "run")
    assert scores["validation accuracy"] > 0.95 and not any("f1" in name for name in scores)
    call = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), str(tmp_path / "pos.txt"), "--device", "cpu"])
    assert "accuracy" in call.stdout and "f1" not in call.stdout and "120 words" in call.stdout, call.output


ANY = tuple(setting for setting in SMALL if not setting.startswith("model."))  # of any encoder
LETTERED = (
    "model=text-rnn", "model.width=16", "model.direction=both", "model.words=12", "model.dropout=0.0",
    "model.max_length=48", "data.text.kind=word", "data.text.min_count=1",
)  # fmt: skip


def small_encoder(name: str) -> tuple[str, ...]:
    """Settings without those of BERT's sizes."""
    return {
        "letter-cnn": (*LETTERED, "model.letters=letter-cnn", "model.letters.dropout=0.0"),
        "neighbours": ("model=text-cnn", "model.width=16", "model.composition=neighbours", "model.composition.maps=24",
                       "model.dropout=0.0", "model.max_length=48"),
    }[name]  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param("letter-cnn", marks=pytest.mark.long), "neighbours"])
def test_other_encoders_learn_in_both_schemes_and_see_letters(
    files: dict[str, Path], tmp_path: Path, name: str
) -> None:
    scheme = ("data.scheme=bioes", "head.valid=true") if name == "letter-cnn" else ()
    scores = train(files, tmp_path / "run", *small_encoder(name), *scheme, small=ANY)
    assert scores["test f1"] > 0.95
    tagger = load(tmp_path / "run", "cpu")
    assert Tagging.evaluate(tagger, [str(files["test"])], {}).values["f1"] == pytest.approx(scores["test f1"], abs=1e-4)
    [found] = Tagging.answer(tagger, ["Ann O'Hara-Lee saw Elm Street"], {})
    assert found.values["tags"] == ["B-PER", "I-PER", "O", "B-LOC", "I-LOC"]
    if name == "letter-cnn":  # words that no vocabulary has differ by their letters alone
        one, other = tagger.tag(["Zzyzx"])[0][0], tagger.tag(["qqqq"])[0][0]
        assert tagger.tokenizer.encode("Zzyzx") == tagger.tokenizer.encode("qqqq")
        assert one.probability != other.probability


def test_words_that_occur_once_are_unknown_in_some_steps_and_a_resumed_run_draws_the_same(tmp_path: Path) -> None:
    rows = [f"the O\nonce{number} B-X\n" for number in range(40)]
    (tmp_path / "a.conll").write_text("\n".join(rows))
    settings = [
        f"data.train={tmp_path / 'a.conll'}", *ANY,
        *small_encoder("letter-cnn"), "data.unknown=0.5",
    ]  # fmt: skip
    run = change(RECIPES["tag"].make(), [*settings, "engine.steps=4", "engine.checkpoint=2"])
    tasks = []
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        with closing(Log(tmp_path / place, quiet=True)) as log:
            tasks.append(Tagging(run, RunContext(tmp_path / place, log, torch.device("cpu"), torch.float32, Ranks())))
    one, two = tasks
    batches = [one.batch(step).inputs.ids_BT for step in range(20)]
    unknown = sum(int((ids_BT == UNKNOWN).sum()) for ids_BT in batches)
    once = sum(int((ids_BT > 4).sum()) for ids_BT in batches)
    assert 0.4 < unknown / (unknown + once) < 0.6
    assert all(int((ids_BT == 4).sum()) for ids_BT in batches)  # the commonest word stays
    assert torch.equal(two.batch(7).inputs.ids_BT, batches[7])
    assert not any((batch.inputs.ids_BT == UNKNOWN).all() for batch in one.valid.epoch())


def test_a_column_beside_the_words_decides_where_nothing_else_does(tmp_path: Path) -> None:
    """The words do not; texts without that column are refused."""
    kinds = np.random.default_rng(1).integers(0, 2, 240).tolist()
    rows = [f"w{at % 7} {'VB' if kind else 'NN'} {'B-X' if kind else 'O'}\n" for at, kind in enumerate(kinds)]
    (tmp_path / "a.conll").write_text("\n".join("".join(rows[at : at + 4]) for at in range(0, 240, 4)))
    settings = ("data.beside=2", "data.hold_out=0.2", "engine.steps=60", "model.letters=letter-cnn",
                "model.letters.dropout=0.0")  # fmt: skip
    scores = train({"train": tmp_path / "a.conll"}, tmp_path / "run", *LETTERED, *settings, small=ANY)
    assert scores["validation f1"] > 0.99
    found = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), str(tmp_path / "a.conll"), "--json"])
    assert json.loads(found.stdout)["f1"] > 0.99
    (tmp_path / "new.conll").write_text("w3 VB O\nw3 NN O\n")
    told = CliRunner().invoke(app, ["predict", str(tmp_path / "run"), str(tmp_path / "new.conll"), "--json"])
    assert json.loads(told.stdout)["tags"] == ["B-X", "O"]
    told = CliRunner().invoke(app, ["predict", str(tmp_path / "run"), "--text", "w3 w3"])
    assert told.exit_code != 0
    with pytest.raises(InputError, match="reads column 2 of a file beside the words"):
        load(tmp_path / "run", "cpu").tag("w3 w3")
    with pytest.raises(InputError, match="data.beside is read with the letters of words"):
        change(RECIPES["tag"].make(), [f"data.train={tmp_path / 'a.conll'}", "data.beside=2"])


def test_words_and_tags_go_in_and_come_out_as_columns_and_as_json(files: dict[str, Path], tmp_path: Path) -> None:
    train(files, tmp_path / "run")
    run = str(tmp_path / "run")
    (tmp_path / "new.conll").write_text("Ann\nsaw\n\nElm\nStreet\n")
    (tmp_path / "true.conll").write_text("Ann I-PER\nsaw O\n\nElm I-LOC\nStreet I-LOC\n")
    (tmp_path / "true.jsonl").write_text('{"words": ["Ann", "saw"], "tags": ["B-PER", "O"]}\n')

    def predict(*words: str) -> str:
        call = CliRunner().invoke(app, ["predict", run, *words, "--device", "cpu"])
        assert call.exit_code == 0, call.output
        return call.stdout

    assert predict(str(tmp_path / "new.conll"), "--conll") == "Ann\tB-PER\nsaw\tO\n\nElm\tB-LOC\nStreet\tI-LOC\n\n"
    both = predict(str(tmp_path / "true.conll"), "--conll", "--tag-scheme", "bioes")
    assert both == "Ann\tS-PER\tS-PER\nsaw\tO\tO\n\nElm\tB-LOC\tB-LOC\nStreet\tE-LOC\tE-LOC\n\n"
    assert predict(str(tmp_path / "true.conll"), "--text-column", "1") == "Ann/B-PER saw/O\nElm/B-LOC Street/I-LOC\n"
    assert predict("--text", "Ann saw", "--conll") == "Ann\tB-PER\nsaw\tO\n\n"
    found = json.loads(predict(str(tmp_path / "true.jsonl"), "--json"))
    assert found["words"] == ["Ann", "saw"] and found["tags"] == found["true"] == ["B-PER", "O"]
    (tmp_path / "again.jsonl").write_text(predict(str(files["test"]), "--json"))
    again = Tagging.evaluate(load(run, "cpu"), [str(tmp_path / "again.jsonl")], {})
    assert again.values["f1"] == 1.0 and again.values["accuracy"] == 1.0  # what was written is read
    (tmp_path / "bad.conll").write_text("Ann B-PRE\n")
    for words, message in (
        ((str(tmp_path / "bad.conll"),), "bad.conll, line 1: the model has no tag 'B-PRE'; did you mean 'B-PER'?"),
        (("--text", "Ann", "--tag-scheme", "iob3"), "--tag-scheme must be bio or bioes, not iob3"),
        (("--text-column", "1"), "--text-column needs a file"),
        (("--text", "Ann", "--all"), "--all has no meaning for a model that tags words"),
    ):
        call = CliRunner().invoke(app, ["predict", run, *words, "--device", "cpu"])
        assert isinstance(call.exception, InputError) and message in str(call.exception), call.output


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.unknown=0.5"], "data.unknown replaces words that occur once: set data.text.kind=word"),
        (["data.unknown=2", "data.text.kind=word"], "data.unknown must lie between 0 and 1"),
        (["data.scheme=bilou"], "data.scheme"),
    ],
)
def test_settings_without_a_meaning_are_refused(
    files: dict[str, Path], tmp_path: Path, changes: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        train(files, tmp_path / "run", *changes)


def test_an_encoder_of_whole_texts_has_no_tags(files: dict[str, Path], tmp_path: Path) -> None:
    run = change(RECIPES["tag"].make(), [f"data.train={files['train']}", "model=text-cnn", "engine.device=cpu"])
    with closing(Log(tmp_path, quiet=True)) as log, pytest.raises(InputError, match="head=crf reads every token"):
        train_run(run, tmp_path, log)

"""An encoder that learns labels: from nothing, from an earlier model, with parts of it held still, in two goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from encoder_folders import declare_pooling, write_encoder
from headway.batch import TextInputs
from headway.cli.app import main
from headway.data.labelled import LabelBatch
from headway.errors import InputError, Notice
from headway.models import build
from headway.models.bert import BertConfig
from headway.models.heads import Classes, ClassesHead
from headway.recipes import RECIPES
from headway.tasks.classification import Classification
from headway.tasks.loading import load
from headway.tasks.objective import Labels
from headway.train.log import Log
from headway.train.run import read_run
from small_runs import carried_out

pytestmark = pytest.mark.usefixtures("own_cache")
SMALL = (
    "engine.device=cpu", "engine.steps=60", "engine.batch=512", "engine.snapshot=1000", "engine.log=20",
    "engine.checkpoint=1000", "model.layers=1", "model.width=32", "model.inner=48", "model.heads=2",
    "model.max_length=32", "model.dropout=0.0", "model.attention_dropout=0.0", "data.text.kind=word",
    "data.text.min_count=1", "schedule.peak=0.01", "schedule.warmup=5", "validation.every=30",
    "validation.score_every=30",
)  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Whether a cat is in it: no word alone decides by its place."""
    folder, random = tmp_path_factory.mktemp("labelled"), np.random.default_rng(1)
    words = ["the", "a", "dog", "sat", "ran", "on", "mat", "tree", "red", "big"]
    paths = {}
    for part, count in (("train", 400), ("valid", 60), ("test", 60)):
        rows = []
        for number in range(count):
            text = random.choice(words, random.integers(3, 12)).tolist()
            if number % 2:
                text[random.integers(0, len(text))] = "cat"
            rows.append(f"{number % 2}\t{' '.join(text)}\n")
        paths[part] = folder / f"{part}.tsv"
        paths[part].write_text("".join(rows))
    return paths


def train(files: dict[str, Path], out: Path, *settings: str, resume: bool = False) -> dict[str, Any]:
    parts = [f"data.{part}={path}" for part, path in files.items()]
    return carried_out("classify", out, *parts, "data.names=none,cat", *SMALL, *settings, resume=resume).scores


def test_a_small_encoder_learns_from_nothing(files: dict[str, Path], tmp_path: Path) -> None:
    scores = train(files, tmp_path / "run")
    assert scores["test accuracy"] > 0.95 and scores["validation accuracy"] > 0.95
    encoder = load(tmp_path / "run", "cpu")
    best = [guesses[0].text for guesses in encoder.classify(["the big cat sat", "the big dog sat"])]
    assert best == ["cat", "none"]
    assert encoder.card.score == scores
    assert read_run(tmp_path / "run" / "run.json").data.names == ("none", "cat")


def test_a_run_from_nothing_has_settings_of_its_own() -> None:
    """A rate for random weights, not for fine-tuning, which keeps BERT's."""
    alone, tuned = (RECIPES["classify"].make(pretrained) for pretrained in (False, True))
    assert alone.schedule.peak >= 10 * tuned.schedule.peak and alone.model.layers < tuned.model.layers
    assert tuned == replace(
        RECIPES["mr-minilm"].make(), recipe="classify", data=tuned.data, validation=tuned.validation,
        engine=tuned.engine,
    )  # fmt: skip


def test_a_model_that_says_one_label_is_reported(files: dict[str, Path], tmp_path: Path) -> None:
    """At the end of its training."""
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Log, "say", lambda self, line: lines.append(line))
        patch.setattr(ClassesHead, "forward", lambda self, encoded: torch.eye(2)[1] + 0 * encoded.x_BTD[:, 0, :2])
        train(files, tmp_path / "run", "engine.steps=1")
    assert lines[-1].startswith("it answers 'cat' for every text: no better than always saying the commonest label")
    assert lines[-1].endswith("(accuracy 0.5000)")


def test_columns_of_a_run_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A .csv with two columns that might be labels: resumed and evaluated with the one that was said."""
    rows = [
        f'{number},"a {"cat" if number % 2 else "dog"}, sat {number % 9}",{number % 2},{number % 3}'
        for number in range(60)
    ]
    (data := tmp_path / "a.csv").write_text("\n".join(["id,words,animal,other", *rows]) + "\n")
    columns = ("data.text_column=words", "data.label_column=animal", "data.names=dog,cat")
    scores = train({"train": data, "valid": data}, tmp_path / "run", *columns)
    assert scores["validation accuracy"] == 1.0
    with pytest.warns(Notice, match="labels from column 'animal' .2: 0, 1., texts from 'words'"):
        report = Classification.evaluate(load(tmp_path / "run", "cpu"), [str(data)], {})
    assert report.values["accuracy"] == 1.0
    with pytest.raises(InputError, match="has the label '2', which the model does not have"):
        Classification.evaluate(load(tmp_path / "run", "cpu"), [str(data)], {"label_column": "other"})


@pytest.mark.parametrize(
    "more",
    [(), ("data.order=mixed", "data.hidden=0.2", "objective=labels-r-drop"), ("data.left_out=0.3",)],
    ids=["plain", "noisy", "left out"],
)
def test_two_goes_end_as_one(files: dict[str, Path], tmp_path: Path, more: tuple[str, ...]) -> None:
    """With dropout: the random generator is resumed too."""
    steady = ("schedule=staircase", "schedule.peak=0.001", "schedule.factor=1.0", "model.dropout=0.2", *more)
    settings = (*steady, "engine.checkpoint=4", "validation.every=4", "validation.score_every=4")
    whole = train(files, tmp_path / "whole", "engine.steps=8", *settings)
    train(files, tmp_path / "parts", "engine.steps=4", *settings)
    parts = train(files, tmp_path / "parts", "engine.steps=8", *settings, resume=True)
    first, second = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("whole", "parts"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert {k: v for k, v in whole.items() if "seconds" not in k} == {
        k: v for k, v in parts.items() if "seconds" not in k
    }


def test_another_model_is_gone_on_from_and_its_layers_held_still(files: dict[str, Path], tmp_path: Path) -> None:
    """A Hugging Face folder with its own tokenizer; only the head learns, at a rate of its own."""
    write_encoder(tmp_path / "theirs", "Model")
    declare_pooling(tmp_path / "theirs", {"pooling_mode": "mean"}, unit=True)
    before = load(tmp_path / "theirs", "cpu")
    config = before.model.config
    sizes = (
        f"model.layers={config.layers}", f"model.width={config.width}", f"model.inner={config.inner}",
        f"model.heads={config.heads}", f"model.max_length={config.max_length}",
    )  # fmt: skip
    frozen = ("engine.frozen=embed,encoder", 'engine.rates={"head.first": 0.5}', f"init={tmp_path / 'theirs'}")
    train(files, tmp_path / "run", *sizes, *frozen, "engine.steps=4")
    after = load(tmp_path / "run", "cpu")
    assert after.tokenizer.fingerprint == before.tokenizer.fingerprint
    new = dict(after.model.named_parameters())
    for name, weight in before.model.named_parameters():
        same = torch.equal(new[name], weight)
        assert same == name.startswith("encoder."), name


def test_a_head_for_the_same_labels_is_taken_over(files: dict[str, Path], tmp_path: Path) -> None:
    train(files, tmp_path / "first", "engine.steps=3")
    lines: list[str] = []
    said = Log.say
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Log, "say", lambda self, line: (lines.append(line), said(self, line))[1])
        train(files, tmp_path / "second", f"init={tmp_path / 'first'}", "engine.steps=3")
        train(files, tmp_path / "third", f"init={tmp_path / 'first'}", "engine.steps=3", "data.names=dog,feline")
    assert [line for line in lines if line.startswith("weights of")] == [
        f"weights of {tmp_path / 'first'}",
        f"weights of {tmp_path / 'first'}; new: head.labels.weight, head.labels.bias",
    ]


def test_padding_and_rows_without_a_label_count_nothing() -> None:
    torch.manual_seed(0)
    config = BertConfig(1, 16, 24, 2, max_length=12, dropout=0.0, attention_dropout=0.0)
    model = build("bert", config, (30,), Classes())
    objective = Labels(smoothing=0.1).build(model.double())
    ids = torch.randint(4, 30, (3, 9))
    lengths, labels = torch.tensor([9, 4, 1]), torch.tensor([1, 0, -1])
    found = objective(LabelBatch(TextInputs(ids, lengths), labels))
    alone = [model(TextInputs(ids[row : row + 1, : lengths[row]])) for row in (0, 1)]
    logits, true = torch.cat(alone), torch.tensor([1, 0])
    nll = F.cross_entropy(logits, true, reduction="sum")
    smooth = 0.9 * nll - 0.1 * logits.log_softmax(-1).mean(-1).sum()
    torch.testing.assert_close(found["nll"][0], nll)
    torch.testing.assert_close(found["loss"][0], smooth)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["data.names=a,b,c"], r"data\.names has 3 names for 2 labels \(0, 1\)"),
        (["data.train=[]"], "no training data: pass --data FILE"),
        (["engine.frozen=decoder"], r"engine\.frozen: no weight's name begins with 'decoder'"),
        (["head=words"], "needs a head: set head=classes"),
        (
            ["data.hidden=0.1", "model=text-rnn", "model.letters=letter-cnn"],
            "data.hidden hides words, not their letters",
        ),
        (["data.hidden=1"], "data.hidden must be at least 0 and below 1, not 1"),
        (["data.hidden=0.1", "data.left_out=0.1"], "a word is hidden or left out, set one of them to 0"),
        (["data.left_out=0.1", "model=modernbert"], "this model does not know where a word stood"),
        (["objective=labels-r-drop", "head.answer=several"], "objective=labels-r-drop gives one label"),
        (
            ["model.max_length=1"],
            "model.max_length=1 leaves no room for text beside 2 special tokens: set it to at least 3",
        ),
    ],
)
def test_bad_settings_are_one_line(files: dict[str, Path], tmp_path: Path, changes: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        train(files, tmp_path / "run", *changes)


def test_texts_are_padded_to_no_more_positions_than_the_model_has(files: dict[str, Path], tmp_path: Path) -> None:
    figures = train(files, tmp_path / "run", "model.max_length=6", "engine.steps=2", "validation.every=2")
    assert figures["steps"] == 2


def test_labels_must_differ_and_be_known(tmp_path: Path) -> None:
    (tmp_path / "one.tsv").write_text("1\ta\n1\tb\n")
    (tmp_path / "two.tsv").write_text("1\ta\n0\tb\n")
    (tmp_path / "three.tsv").write_text("2\ta\n")
    same = {"train": tmp_path / "one.tsv", "valid": tmp_path / "one.tsv"}
    with pytest.raises(InputError, match="every training text has the label '1'"):
        train(same, tmp_path / "run")
    strange = {"train": tmp_path / "two.tsv", "valid": tmp_path / "three.tsv"}
    with pytest.raises(InputError, match="valid: no training text has the label '2'"):
        train(strange, tmp_path / "run")


def test_where_the_labels_are_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"text number {number},{'odd' if number % 2 else 'even'}\n" for number in range(12))
    for name in ("train.csv", "valid.csv"):
        (tmp_path / name).write_text("text,label\n" + rows)
    files = ["--data", str(tmp_path / "train.csv"), "--valid", str(tmp_path / "valid.csv")]
    with pytest.raises(SystemExit) as left:
        main(["train", "classify-bow", *files, "--out", str(tmp_path / "run"), "--set", *SMALL[:1], "engine.steps=1"])
    assert left.value.code == 0 and capsys.readouterr().err.count("labels from column 'label'") == 1

"""Several labels at once, numbers, weights of labels, texts that are cut: beside transformers, torch, scikit-learn."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics
from sklearn.utils.class_weight import compute_class_weight

from headway.data.label_sets import TargetBatch, balanced_sets
from headway.data.labelled import LabelBatch, balanced_weights
from headway.evaluate.label_sets import NumberScores, SetScores
from headway.models.head import binary_cross_entropy, cross_entropy, squared_error
from headway.tasks.rule import Rung, remarks
from small_runs import answered, call

RANDOM = np.random.default_rng(0)
SMALL = (
    "--device", "cpu", "--set", "engine.steps=6", "validation.every=6", "validation.score_every=6", "model.width=16",
    "model.heads=2", "model.inner=16",
)  # fmt: skip


def targets(values: torch.Tensor, weights: torch.Tensor | None = None) -> TargetBatch:
    return TargetBatch(None, values, torch.ones_like(values) if weights is None else weights)


@pytest.mark.parametrize(("answer", "kind"), [("several", "multi_label"), ("number", "regression")])
def test_losses_are_those_of_transformers(answer: str, kind: str) -> None:
    from transformers.loss.loss_utils import ForSequenceClassificationLoss

    logits = torch.randn(5, 3 if answer == "several" else 1)
    wanted = torch.randint(0, 2, logits.shape).float() if answer == "several" else torch.randn(5, 1)
    config = SimpleNamespace(problem_type=f"{kind}_classification" if answer == "several" else kind,
                             num_labels=logits.shape[1])  # fmt: skip
    expected = ForSequenceClassificationLoss(wanted, logits, config)
    loss = {"several": binary_cross_entropy, "number": squared_error}[answer]
    batch = targets(wanted)
    torch.testing.assert_close(loss(logits, batch)["loss"][0] / batch.counts["loss"], expected)
    padded = batch.pad(8)  # an empty row adds nothing
    more = torch.cat([logits, torch.randn(3, logits.shape[1])])
    torch.testing.assert_close(loss(more, padded)["loss"][0] / 5, expected)


def test_weights_of_labels_are_scikit_learns_and_the_loss_is_torchs() -> None:
    labels = np.array([0, 0, 0, 1, 2, 2, 0])
    weights = balanced_weights(labels, 3)
    np.testing.assert_allclose(weights, compute_class_weight("balanced", classes=np.arange(3), y=labels), rtol=1e-6)
    logits, true = torch.randn(7, 3), torch.from_numpy(labels)
    batch = LabelBatch(None, true, torch.from_numpy(weights)[true])
    loss = cross_entropy(logits, true, 0.0, batch.weights_B)["loss"][0] / batch.counts["loss"]
    torch.testing.assert_close(loss, torch.nn.CrossEntropyLoss(torch.from_numpy(weights))(logits, true))
    assert batch.tokens == 7


def test_weights_of_several_labels_are_torchs_positive_weights() -> None:
    wanted = torch.from_numpy((RANDOM.random((20, 3)) < 0.3).astype(np.float32))
    logits, weights = torch.randn(20, 3), torch.from_numpy(balanced_sets(wanted.numpy()))
    positive = (20 - wanted.sum(0)) / wanted.sum(0)
    expected = torch.nn.BCEWithLogitsLoss(pos_weight=positive)(logits, wanted)
    torch.testing.assert_close(binary_cross_entropy(logits, targets(wanted, weights))["loss"][0] / 20, expected)


def test_figures_of_sets_are_scikit_learns() -> None:
    true, share = (RANDOM.random((30, 4)) < 0.4).astype(float), RANDOM.random((30, 4))
    true[:2] = share[:2] >= 0.5
    found, given = SetScores.of(true, share), share >= 0.5
    assert found.accuracy == pytest.approx(metrics.accuracy_score(true, given)) and found.accuracy > 0
    assert found.f1 == pytest.approx(metrics.f1_score(true, given, average="macro"))
    assert found.micro_f1 == pytest.approx(metrics.f1_score(true, given, average="micro"))


def test_figures_of_numbers_are_scipys() -> None:
    true = RANDOM.integers(0, 6, 40).astype(float)  # with ties
    given = true + RANDOM.normal(size=40).round(1)
    found = NumberScores.of(true[:, None], given[:, None])
    assert found.pearson == pytest.approx(stats.pearsonr(true, given).statistic)
    assert found.spearman == pytest.approx(stats.spearmanr(true, given).statistic)
    assert found.mse == pytest.approx(metrics.mean_squared_error(true, given))
    assert NumberScores.of(true[:, None], np.ones((40, 1))).pearson == 0


def several(folder: Path) -> Path:
    words = {"sport": "ball goal", "food": "bread soup"}
    rows = [{"text": f"{' '.join(words[name] for name in names)} and the {i}", "labels": names}
            for i in range(40) for names in [[name for at, name in enumerate(words) if i >> at & 1]]]  # fmt: skip
    (folder / "several.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder / "several.jsonl"


def test_several_labels_are_trained_predicted_and_evaluated(tmp_path: Path) -> None:
    data, run = several(tmp_path), tmp_path / "run"
    said = answered("train", "classify-several", "--data", data, "--out", run, *SMALL)
    assert "validation micro_f1" in said
    line = json.loads(answered("predict", run, "--text", "ball goal", "--json", "--device", "cpu"))
    assert {label for label, share in line["labels"] if share >= 0.5} == set(line["chosen"])
    found = json.loads(answered("evaluate", run, data, "--json", "--device", "cpu"))
    assert set(found) >= {"accuracy", "f1", "micro_f1", "texts"} and found["texts"] == 40
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "a ball", "labels": ["law"]}\n', encoding="utf-8")
    code, _, errors = call("evaluate", run, other, "--device", "cpu")
    assert code == 2 and "text 1 has the label 'law', which the model does not have" in errors


def numbers(folder: Path, bad: str = "") -> Path:
    rows = [f"{'very ' * (i % 4 * 2)}good film {i}\t{i % 4 / 2}" for i in range(40)]
    (folder / "stars.tsv").write_text("\n".join(["text\tscore", *rows, *([f"no\t{bad}"] if bad else [])]) + "\n")
    return folder / "stars.tsv"


def test_numbers_are_trained_predicted_and_evaluated(tmp_path: Path) -> None:
    data, run = numbers(tmp_path), tmp_path / "run"
    assert "validation pearson" in answered("train", "classify-number", "--data", data, "--out", run, *SMALL)
    float(answered("predict", run, "--text", "a good film", "--device", "cpu"))
    assert set(json.loads(answered("evaluate", run, data, "--json", "--device", "cpu"))) >= {
        "pearson",
        "spearman",
        "mse",
    }


@pytest.mark.parametrize(
    ("recipe", "settings", "said"),
    [
        ("classify-number", ("data.class_weights=balanced",), "data.class_weights has no meaning for numbers"),
        ("classify-number", ("objective.judge=accuracy",), "set objective.judge=pearson or spearman"),
        ("classify-several", ("objective.smoothing=0.1",), "objective.smoothing is for one label a text"),
        ("classify-tfidf", ("head.answer=several",), "objective=logistic-regression gives one label"),
        ("classify", ("objective.judge=pearson",), "set objective.judge=accuracy or f1 or matthews"),
        ("classify-finetuned", (), "pass --init MODEL"),
    ],
)
def test_settings_without_meaning_are_refused(
    recipe: str, settings: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    words = ("--set", *settings) if settings else ()
    code, _, errors = call("train", recipe, "--data", numbers(tmp_path), "--out", tmp_path / "run", *words)
    assert code == 2 and said in errors and errors.count("\n") == 1


def test_a_number_that_is_none_is_named_with_its_line(tmp_path: Path) -> None:
    code, _, errors = call("train", "classify-number", "--data", numbers(tmp_path, bad="much"), "--out", tmp_path / "r",
                           "--label-column", "score")  # fmt: skip
    assert code == 2 and "stars.tsv, line 42: column 'score' has 'much', expected a number" in errors


def test_texts_that_are_cut_are_counted_with_the_setting(tmp_path: Path) -> None:
    data, run = numbers(tmp_path), tmp_path / "run"
    words = (*SMALL, "model.max_length=8", "data.text.kind=word", "data.text.min_count=1")
    code, _, errors = call("train", "classify-number", "--data", data, "--out", run, *words)
    assert code == 0 and "have more than 8 tokens and are cut; set model.max_length higher" in errors
    cut = sum(len(row.split("\t")[0].split()) + 2 > 8 for row in data.read_text().splitlines()[1:])
    code, _, errors = call("evaluate", run, data, "--device", "cpu")
    assert code == 0 and f"{cut} of 40 texts" in errors


def test_the_rule_of_1500_advises_and_says_what_was_found() -> None:
    bag, cnn, bert = Rung("bow", 0.9, True), Rung("cnn", 0.7, False), Rung("bert", 0.95, False, pretrained=True)
    rule, found, outside = remarks(1000, 20_000, 500, [bag, cnn, bert])
    assert "50 texts for each word, less than 1,500" in rule and rule.endswith("advises a bag of bigrams")
    assert "bow (0.900)" in found and "cnn (0.700)" in found and found.endswith("the rule is right here")
    assert "bert (0.950)" in outside
    assert remarks(1_000_000, 20_000_000, 500, [bag, cnn])[0].endswith("advises a model of sequences")
    assert remarks(1_000_000, 20_000_000, 500, [bag, cnn])[1].endswith("the rule is wrong here")
    assert "cannot tell them apart" in remarks(1000, 20_000, 50, [bag, Rung("cnn", 0.88, False)])[1]
    assert "compare a model of sequences too" in remarks(1000, 20_000, 50, [bag])[1]


def test_lines_of_a_number_and_a_text_are_read(tmp_path: Path) -> None:
    from headway.data.labelled import read_labelled
    from headway.errors import InputError

    file = tmp_path / "lines.txt"
    file.write_text("1.5 a film\n-2 another\n", encoding="utf-8")
    assert [float(one.label) for one in read_labelled([file], answer="number")] == [1.5, -2]
    file.write_text("1.5 a film\nmany others\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 2 has 'many', expected a number"):
        read_labelled([file], answer="number")


def test_rungs_that_need_a_model_are_left_out_of_a_group_without_one() -> None:
    from headway.cli.compare import _wanted
    from headway.errors import InputError
    from headway.recipes import GROUPS

    wanted, left_out = _wanted(["classifiers"], None)
    assert left_out == ["classify-frozen", "classify-finetuned"] and not set(left_out) & set(wanted)
    assert _wanted(["classifiers"], "MODEL") == (list(GROUPS["classifiers"]), [])
    assert _wanted(["classify-frozen"], None) == (["classify-frozen"], [])  # which is then refused by name
    with pytest.raises(InputError, match="leave --init out"):
        _wanted(["classify-bow"], "MODEL")


def test_a_comparison_has_one_split_for_all_and_says_the_rule(tmp_path: Path) -> None:
    rows = [f"{i % 2}\t{('bad', 'good')[i % 2]} film number {i}" for i in range(60)]
    (tmp_path / "reviews.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    out, settings = tmp_path / "compared", ("engine.steps=4", "validation.every=4", "validation.score_every=4")
    said = answered("compare", "classify-bow", "classify-tfidf", "--data", tmp_path / "reviews.tsv", "--out", out,
                    "--device", "cpu", "--set", *settings)  # fmt: skip
    assert "test accuracy" in said and "the rule of 1,500" in said and "compare a model of sequences too" in said
    logs = [(out / name / "seed-1" / "log.jsonl").read_text() for name in ("classify-bow", "classify-tfidf")]
    parts = [[{key: event[key] for key in ("part", "texts", "words")} for event in map(json.loads, log.splitlines())
              if event["event"] == "data"] for log in logs]  # fmt: skip
    assert parts[0] == parts[1] and [one["texts"] for one in parts[0]] == [48, 6, 6]

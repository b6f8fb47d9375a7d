"""Bags of words and of bigrams beside torch's EmbeddingBag and plain loops; TF-IDF beside scikit-learn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headway.batch import TextInputs
from headway.errors import InputError
from headway.models import build
from headway.models.text_bag import Bigrams, TextBag, TextBagConfig
from headway.models.tfidf import TfIdfConfig
from headway.nn.grams import SPREAD, gram_keys
from headway.nn.pooling import pool
from headway.recipes.grammar import sample
from headway.tasks.linear import TfIdfFit, counted_grams, load_library
from headway.tasks.loading import load
from small_runs import call, carried_out

LENGTHS = torch.tensor([9, 1, 4])
GRAMS: dict[str, Any] = {"words": {}, "bigrams": {"grams": Bigrams(50)}}


def texts() -> torch.Tensor:
    return torch.randint(4, 20, (3, 9), generator=torch.Generator().manual_seed(1))


def bag(kind: str) -> TextBag:
    torch.manual_seed(0)
    model = TextBag(TextBagConfig(width=8, **GRAMS[kind]), 20).double().eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight)
    return model


def labelled(folder: Path) -> Path:
    rows = [f"{i % 2}\t{('bad', 'good')[i % 2]} {sentence.source}" for i, sentence in enumerate(sample(60, seed=3))]
    (folder / "reviews.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder / "reviews.tsv"


@pytest.mark.parametrize("kind", GRAMS)
def test_a_padded_text_has_the_vectors_that_it_has_alone(kind: str) -> None:
    model = bag(kind)
    together = model.encode(TextInputs(texts(), LENGTHS)).x_BTD
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model.encode(TextInputs(texts()[row : row + 1, :length])).x_BTD
        torch.testing.assert_close(together[row, :length], alone[0])


def test_the_mean_of_a_bag_is_torchs_embedding_bag() -> None:
    model = bag("words")
    encoded = model.encode(TextInputs(texts(), LENGTHS))
    flat = torch.cat([row[:length] for row, length in zip(texts(), LENGTHS, strict=True)])
    starts = torch.tensor([0, 9, 10])
    expected = torch.nn.EmbeddingBag.from_pretrained(model.table.weight, mode="mean")(flat, starts)
    torch.testing.assert_close(pool(encoded.x_BTD, LENGTHS, "mean"), expected)


@torch.no_grad()
def test_bigrams_add_the_vector_of_each_two_neighbours() -> None:
    model = bag("bigrams")
    ids = texts()[0].tolist()
    expected = []
    for at, word in enumerate(ids):
        vector = model.table.weight[word]
        if at + 1 < len(ids):
            vector = vector + model.grams.table_GD[(word * SPREAD + ids[at + 1]) % 50]
        expected.append(vector)
    torch.testing.assert_close(model.encode(TextInputs(texts()[:1])).x_BTD[0], torch.stack(expected))


def test_the_order_of_words_changes_bigrams_alone() -> None:
    for kind, changes in (("words", False), ("bigrams", True)):
        means = [pool(bag(kind).encode(TextInputs(ids)).x_BTD, None, "mean") for ids in (texts(), texts().flip(1))]
        assert torch.allclose(*means) is not changes


def test_no_two_grams_have_the_same_key() -> None:
    every = torch.cartesian_prod(*[torch.arange(4)] * 3)
    keys = [key for ids in every for some in gram_keys(ids[None], 3, 4) for key in some.flatten().tolist()]
    assert len(set(keys)) == 4 + 4**2 + 4**3


@torch.no_grad()
def test_tfidf_is_scikit_learns_pipeline() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    from headway.models.heads import LinearClasses

    load_library()
    random = np.random.default_rng(0)
    ids = [random.integers(4, 20, random.integers(3, 12)).tolist() for _ in range(40)]
    labels, words = random.integers(0, 3, 40), [" ".join(f"w{i}" for i in row) for row in ids]
    for order, sublinear, classes in ((1, False, 2), (2, True, 3), (3, True, 3)):
        config = TfIdfConfig(order, 10_000, sublinear)
        head = LinearClasses(labels=tuple("abc"[:classes]))
        model = TfIdfFit(config, 20, ids).model(labels % classes, 4.0, None, head)
        vectors = TfidfVectorizer(ngram_range=(1, order), sublinear_tf=sublinear)
        oracle = make_pipeline(vectors, LogisticRegression(C=4.0, max_iter=1000)).fit(words, labels % classes)
        inputs = TextInputs(torch.tensor([ids[0][:3], ids[1][:3]]), torch.tensor([3, 2]))
        expected = oracle.predict_proba([" ".join(words[0].split()[:3]), " ".join(words[1].split()[:2])])
        found = model.head.classes(model.encode(inputs))
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-4)  # two runs of the solver


def test_special_and_unknown_tokens_are_in_no_gram() -> None:
    assert counted_grams([5, 3, 6, 7, 2], 2, 10) == [5, 6, 7, (6 + 1) * 10 + 7]


def test_a_fitted_folder_answers_without_scikit_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, run = labelled(tmp_path), tmp_path / "run"
    carried_out("classify-tfidf", run, f"data.train={data}", "engine.device=cpu")
    for name in [name for name in sys.modules if name.split(".")[0] == "sklearn"]:
        monkeypatch.setitem(sys.modules, name, None)
    [[best, *_]] = load(run, "cpu").classify(["a good good cat"])
    assert best.text == "1"
    assert not list(run.glob("model/*.pkl")) and (run / "model" / "model.safetensors").is_file()
    with pytest.raises(InputError, match="pip install 'headway\\[classical\\]'"):
        load_library()


def test_what_has_no_meaning_for_a_fitted_model_is_refused(tmp_path: Path) -> None:
    data = labelled(tmp_path)
    for more, said in (
        (("--set", "objective=labels"), "set objective=logistic-regression"),
        (("--set", "model.order=9"), "model.order must lie between 1 and 3"),
        (("--set", "head=tags"), "needs a head: set head="),
    ):
        status, _, errors = call("train", "classify-tfidf", "--data", str(data), "--out", str(tmp_path / "x"), *more)
        assert status == 2 and said in errors and errors.count("\n") == 1


def test_a_head_for_words_stands_on_a_bag() -> None:
    from headway.models.token_heads import Tags

    model = build("text-bag", TextBagConfig(width=8), (20,), Tags(labels=("O", "B-X")))
    assert model(TextInputs(texts())).shape == (3, 9, 2)

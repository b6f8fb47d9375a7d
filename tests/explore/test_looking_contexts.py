"""One word in many contexts: where it stands, how alike its vectors are, and the plane that they are drawn in."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import headway
from headway.errors import InputError
from headway.explore.analyses.analysis import Traced
from headway.explore.analyses.contexts import CONTEXTS, Occurrence, Options, any_two, occurrences, plane, similarities

sys.path.insert(0, str(Path(__file__).parents[1]))
from encoder_folders import their_inputs, write_encoder


def written(folder: Path, *rows: str) -> str:
    (folder / "some.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(folder / "some.txt")


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.sqrt(one @ one) / np.sqrt(other @ other))


def test_a_word_is_marked_or_named_and_its_sense_stands_before_a_tab(tmp_path):
    file = written(tmp_path, "harm\tHe *broke* the vase", "2 * 3 * 4", "She *broke down*")
    marked = list(occurrences(file, ""))
    assert marked[0] == Occurrence(f"{file}, line 1", "harm", "He broke the vase", (3, 8))
    assert marked[1][1:] == ("", "She broke down", (4, 14))
    file = written(tmp_path, "no such word, though brokers", "money\tBroke again, broke")
    [named] = occurrences(file, "broke")
    assert (named.sense, named.text[slice(*named.span)], named.span) == ("money", "Broke", (0, 5))


def test_similarities_are_means_of_cosines_of_pairs():
    vectors = np.random.default_rng(3).normal(size=(5, 4))
    senses = ["a", "a", "b", "b", "c"]
    pairs = list(itertools.combinations(range(5), 2))
    within = [cosine(vectors[i], vectors[j]) for i, j in pairs if senses[i] == senses[j]]
    across = [cosine(vectors[i], vectors[j]) for i, j in pairs if senses[i] != senses[j]]
    found = similarities(vectors, senses)
    assert found[:2] == pytest.approx((np.mean(within), np.mean(across)))
    nearest = [max((j for j in range(5) if j != i), key=lambda j: cosine(vectors[i], vectors[j])) for i in range(4)]
    assert found[2] == np.mean([senses[i] == senses[j] for i, j in enumerate(nearest)])  # "c" has no other of its kind
    alone = similarities(vectors, ["a"] * 5)
    assert alone[1] is None and alone[2] is None


def test_any_two_pieces_are_of_different_texts():
    random = np.random.default_rng(4)
    texts = [random.normal(size=(length, 3)) for length in (2, 4, 3)]
    pairs = [cosine(x, y) for one, other in itertools.combinations(texts, 2) for x in one for y in other]
    assert any_two(texts) == pytest.approx(np.mean(pairs))


def test_the_plane_keeps_distances_of_points_that_lie_in_one():
    random = np.random.default_rng(5)
    flat = random.normal(size=(6, 2)) @ np.linalg.qr(random.normal(size=(7, 2)))[0].T + 3
    found = plane(flat)
    for i, j in itertools.combinations(range(6), 2):
        assert np.linalg.norm(found[i] - found[j]) == pytest.approx(np.linalg.norm(flat[i] - flat[j]))
    np.testing.assert_allclose(found, plane(flat + 10), atol=1e-9)
    assert plane(np.ones((2, 3))).shape == (2, 2)


def test_each_layer_is_that_of_transformers_own_model(tmp_path):
    theirs = write_encoder(tmp_path, "Model")
    texts = ["the cats sat on the mat", "a big cats is red", "how old are cats"]
    file = written(tmp_path, *(f"{'xyx'[n]}\t{text}" for n, text in enumerate(texts)))
    table = CONTEXTS.run(Traced(headway.load(tmp_path, "cpu"), CONTEXTS.tensors), [file], Options("cats"))
    assert table.column("layer") == [-1, 0, 1]
    words = []
    for text in texts:
        inputs = their_inputs(tmp_path, [text])
        with torch.no_grad():
            hidden = theirs(**inputs, output_hidden_states=True).hidden_states
        place = 2 + text.split().index("cats") - 1  # behind [CLS]; cat and ##s
        words.append([layer[0, place : place + 2].mean(0).numpy() for layer in hidden])
    for layer, row in enumerate(table.rows):
        assert row[1] == pytest.approx(cosine(words[0][layer], words[2][layer]), abs=1e-4)
        across = [cosine(words[i][layer], words[1][layer]) for i in (0, 2)]
        assert row[2] == pytest.approx(np.mean(across), abs=1e-4)
    assert np.array(table.more["points"]).shape == (3, 3, 2) and table.more["senses"] == ["x", "y", "x"]
    assert CONTEXTS.draw(table, tmp_path / "contexts.png").stat().st_size > 5000


def test_a_word_that_never_occurs_is_one_clear_line(tmp_path):
    with pytest.raises(InputError, match="'wrote' stands in none of the 2 lines"):
        list(occurrences(written(tmp_path, "He broke it", "rewrote"), "wrote"))
    with pytest.raises(InputError, match=r"no word is marked in its 1 lines: write \*word\*"):
        list(occurrences(written(tmp_path, "He broke it"), ""))
    (tmp_path / "empty.txt").touch()
    with pytest.raises(InputError, match="is empty"):
        list(occurrences(str(tmp_path / "empty.txt"), "broke"))
    write_encoder(tmp_path, "Model")
    file = written(tmp_path, "the *cat* sat")
    with pytest.raises(InputError, match="1 occurrences that this model reads; there must be two"):
        CONTEXTS.run(Traced(headway.load(tmp_path, "cpu"), CONTEXTS.tensors), [file], Options())

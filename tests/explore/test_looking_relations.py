"""Heads and dependency relations: on attention that is written by hand, whose answers can be counted on paper."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headway.errors import InputError
from headway.explore.analyses.analysis import Table, Traced
from headway.explore.analyses.relations import DOWN, RELATIONS, UP, Options
from headway.explore.analyses.texts import halves

sys.path.insert(0, str(Path(__file__).parent))
from hand_made import HandMade, pointing

# det(cat, the), amod(cat, old): "the old cat sat": words 0 1 2 3; the frame moves places by one.
TREE = [("the", 3, "det"), ("old", 3, "amod"), ("cat", 4, "nsubj"), ("sat", 0, "root")]
SHORT = [("the", 2, "det"), ("cat", 3, "nsubj"), ("sat", 0, "root")]


def conllu(folder: Path, *trees: list[tuple[str, int, str]], name: str = "a.conllu") -> str:
    rows = []
    for tree in trees:
        for at, (word, head, relation) in enumerate(tree, 1):
            rows.append("\t".join([str(at), word, "_", "_", "_", "_", str(head), relation, "_", "_"]))
        rows.append("")
    (folder / name).write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(folder / name)


def measured(model: HandMade, *files: str, least: int = 1) -> tuple[Table, dict[tuple[str, str], dict[str, object]]]:
    table = RELATIONS.run(Traced(model, RELATIONS.tensors), files, Options(least))
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return table, {(str(row["relation"]), str(row["looks"])): row for row in rows}


def two_heads(labels: list[str]) -> np.ndarray:
    """Layer 0: next and previous. Layer 1: head 0 knows that the cat is what a determiner belongs to."""
    n = len(labels)
    cat = labels.index("cat")
    wise = pointing(n, lambda t: cat if labels[t] == "the" else t)
    return np.array([[pointing(n, lambda t: t + 1), pointing(n, lambda t: t - 1)], [wise, pointing(n, lambda t: 0)]])


def test_a_head_that_knows_a_relation_is_found_and_beats_the_offset(tmp_path):
    # Measured on one long and three short ones: there the offset 1 is right in three of four.
    file = conllu(tmp_path, SHORT, TREE, SHORT, SHORT, TREE, SHORT, SHORT, SHORT)
    _, found = measured(HandMade(two_heads), file)
    det = found["det", UP]
    assert (det["layer"], det["head"], det["accuracy"]) == (1, 0, 1.0)
    assert (det["offset"], det["by offset"], det["pairs"]) == (1, 0.75, 4)
    # From the other side the previous-token head is right where nothing stands between.
    assert (found["det", DOWN]["layer"], found["det", DOWN]["head"], found["det", DOWN]["accuracy"]) == (0, 1, 0.75)
    assert found["nsubj", UP]["accuracy"] == 1.0 == found["nsubj", UP]["by offset"]
    assert not any("root" in key for key in found)


def test_a_word_of_several_pieces_is_looked_at_with_all_of_them(tmp_path):
    """ "cat" is two pieces with a third of the weight each: together they win over a word with half as much again."""

    def split(labels: list[str]) -> np.ndarray:
        weights = np.zeros((1, 1, len(labels), len(labels)))
        for t in range(len(labels)):
            weights[0, 0, t, [labels.index("ca"), labels.index("t")]] = 0.3
            weights[0, 0, t, labels.index("sa")] = 0.4
        return weights

    _, found = measured(HandMade(split, longest=2), conllu(tmp_path, SHORT, SHORT))
    assert found["det", UP]["accuracy"] == 1.0


def test_specials_and_the_word_itself_are_no_answers(tmp_path):
    def mostly_elsewhere(labels: list[str]) -> np.ndarray:
        n = len(labels)
        frame, own = pointing(n, lambda t: 0), np.eye(n)
        return np.array([[0.5 * frame + 0.4 * own + 0.1 * pointing(n, lambda t: t + 1)]])

    _, found = measured(HandMade(mostly_elsewhere), conllu(tmp_path, SHORT, SHORT))
    assert found["det", UP]["accuracy"] == 1.0


def test_a_model_that_sees_only_what_came_before_is_judged_on_that(tmp_path):
    """det and nsubj lead to words behind: only the head may look back at its dependent."""
    table, found = measured(HandMade(two_heads, causal=True), conllu(tmp_path, TREE, SHORT))
    assert {way for _, way in found} == {DOWN}
    assert any("does not see every word from every word" in note for note in table.notes)
    table, _ = measured(HandMade(two_heads), conllu(tmp_path, TREE, SHORT))
    assert not any("does not see" in note for note in table.notes)


def test_two_files_are_to_choose_on_and_to_measure_on(tmp_path):
    """The offset that is best where it is chosen is wrong where it is measured."""
    files = conllu(tmp_path, SHORT, name="dev.conllu"), conllu(tmp_path, TREE, TREE, name="test.conllu")
    table, found = measured(HandMade(two_heads), *files)
    assert (found["det", UP]["offset"], found["det", UP]["by offset"], found["det", UP]["pairs"]) == (1, 0.0, 2)
    assert "chosen on dev.conllu, measured on test.conllu" in table.notes[0]


def test_halves_take_turns_so_that_a_part_has_both():
    def read(letters: str) -> Iterator[Any]:
        return iter([SimpleNamespace(text=letter) for letter in letters])

    one = [(text.item[0], text.first) for text in halves(["a"], lambda _: read("xyz"), "line")]
    assert one == [(False, "x"), (True, "y"), (False, "z")]
    two = [(text.item[0], text.first) for text in halves(["ab", "cdef"], read, "line")]
    assert two == [(False, "a"), (True, "c"), (False, "b"), (True, "d"), (True, "e"), (True, "f")]
    with pytest.raises(InputError, match="3 files: give one, or two"):
        list(halves(["a", "b", "c"], read, "line"))


def test_too_little_data_and_models_without_attention_are_one_clear_line(tmp_path):
    file = conllu(tmp_path, TREE, SHORT)
    with pytest.raises(InputError, match="no relation has 20 pairs in both halves of 2 sentences"):
        measured(HandMade(two_heads), file, least=20)
    with pytest.raises(InputError, match="has no attention to look at"):
        measured(HandMade(lambda labels: np.zeros((0, 1, len(labels), len(labels)))), file)


def test_the_picture_is_drawn_from_the_table_alone(tmp_path):
    table, _ = measured(HandMade(two_heads), conllu(tmp_path, SHORT, TREE, TREE, SHORT))
    assert table.more["looks"] == {"det": UP, "nsubj": UP, "amod": UP}
    plain = Table(table.columns, table.rows, more=json.loads(json.dumps(table.more)))
    assert RELATIONS.draw(plain, tmp_path / "relations.png").stat().st_size > 5000


def test_the_way_of_reading_is_the_one_that_finds_more_not_the_one_with_few_pairs(tmp_path):
    """Looking back, `late` is right once of once, `the` three times of four: what is told of det is the latter."""
    late = [("cat", 3, "nsubj"), ("the", 1, "det"), ("sat", 0, "root")]
    file = conllu(tmp_path, *[tree for tree in (SHORT, SHORT, SHORT, TREE, late) for _ in range(2)])
    table, found = measured(HandMade(two_heads, causal=True), file)
    assert found["det", UP]["pairs"] == 1 and found["det", DOWN]["pairs"] == 4
    assert found["det", UP]["accuracy"] == 1.0 and found["det", DOWN]["accuracy"] == 0.75
    assert table.more["looks"]["det"] == DOWN

"""Where heads look: heads whose behaviour is known, and the same sums written as loops."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hand_made import pointing
from hand_written import column, of_one_text, of_two_texts, traced

from headway.errors import InputError
from headway.explore.analyses import ANALYSES
from headway.explore.analyses.analysis import NoOptions, Table
from headway.explore.analyses.heads import MEASURES, draw, heads

TEXT = "a b c d e f"


def measured(make, files: list[str]) -> Table:
    return heads(traced(make), files, NoOptions())


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text(f"{TEXT}\n", encoding="utf-8")
    return str(path)


def test_a_head_that_does_one_thing_is_told_so(file: str):
    sure = [pointing(6, lambda t: t - 1), pointing(6, lambda t: t + 1), pointing(6, lambda t: 0), np.eye(6)]
    table = measured(lambda text: of_one_text(text, {"decoder.0.attention.weights": sure}), [file])
    shown = {name: column(table, name) for name in MEASURES}
    # The first and the last place have no such neighbour, and do not count there.
    assert shown["previous"] == pytest.approx([1, 0, 1 / 5, 0])
    assert shown["next"] == pytest.approx([0, 1, 0, 0])
    assert shown["first"] == pytest.approx([1 / 5, 0, 1, 0])
    assert shown["self"] == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1])
    assert shown["entropy"] == pytest.approx([0, 0, 0, 0])
    assert shown["distance"] == pytest.approx([5 / 6, 5 / 6, 15 / 6, 0])
    assert shown["separator"] == [None] * 4, "no text has one"


def test_equal_weights_have_the_entropy_and_the_distance_of_the_formulas(file: str):
    table = measured(lambda text: of_one_text(text, {"encoder.0.attention.weights": np.full((1, 6, 6), 1 / 6)}), [file])
    assert column(table, "entropy") == pytest.approx([math.log(6)])
    assert column(table, "distance") == pytest.approx([(36 - 1) / (3 * 6)])


def test_means_are_over_places_of_all_texts_without_specials(tmp_path: Path):
    """The same figures with loops, over texts of unlike length in a frame."""
    path = tmp_path / "texts.txt"
    path.write_text("one\n\nthree words here\ntwo words\n", encoding="utf-8")
    draws, seen = np.random.default_rng(0), {}

    def make(text: str):
        size = len(text.split()) + 2
        weights = draws.random((2, size, size))
        seen[text] = weights / weights.sum(-1, keepdims=True)
        return of_one_text(text, {"encoder.4.attention.weights": seen[text]}, opening=1, closing=1)

    table = measured(make, [str(path)])
    assert column(table, "layer") == [4, 4] and column(table, "head") == [0, 1] and len(seen) == 3
    for head in (0, 1):
        rows = [(t, weights[head, t]) for weights in seen.values() for t in range(1, weights.shape[1] - 1)]
        expected = {
            "next": np.mean([row[t + 1] for t, row in rows]),
            "previous": np.mean([row[t - 1] for t, row in rows]),
            "first": np.mean([row[0] for _, row in rows]),
            "separator": np.mean([row[-1] for _, row in rows]),
            "self": np.mean([row[t] for t, row in rows]),
            "entropy": np.mean([-sum(w * math.log(w) for w in row) for _, row in rows]),
            "distance": np.mean([sum(w * abs(t - s) for s, w in enumerate(row)) for t, row in rows]),
        }
        for name, value in expected.items():
            assert column(table, name, head=head) == pytest.approx([value])


def test_across_two_texts_a_row_is_of_the_word_that_is_written(tmp_path: Path):
    for name, text in (("a", "x y"), ("b", "u v")):
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
    cross = np.zeros((1, 1, 3, 3))
    cross[0, 0, 0, 0] = cross[0, 0, 1, 2] = 1  # the first word written looks at the first, the second at the end
    cross[0, 0, 2, 1] = 1  # the end is written: no word
    table = measured(lambda *both: of_two_texts(*both, cross), [str(tmp_path / "a"), str(tmp_path / "b")])
    [row] = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert row["site"] == "decoder.cross" and row["first"] == row["separator"] == 0.5 and row["entropy"] == 0
    assert row["next"] is row["previous"] is row["self"] is row["distance"] is None


def test_a_model_without_attention_and_a_file_without_text_are_told_in_one_line(file: str, tmp_path: Path):
    with pytest.raises(InputError, match=r"this model \(by hand\) has no attention to look at"):
        measured(lambda text: of_one_text(text, {"stack.0.hidden": np.zeros((6, 2))}), [file])
    (tmp_path / "blank").write_text("\n  \n", encoding="utf-8")
    with pytest.raises(InputError, match=r"blank has no text \(2 lines, all blank\)"):
        measured(lambda text: of_one_text(text, {}), [str(tmp_path / "blank")])


def test_the_picture_is_drawn_from_the_table_alone(file: str, tmp_path: Path):
    sure = [pointing(6, lambda t: t - 1), np.eye(6)]
    tensors = {f"decoder.{n}.attention.weights": sure for n in range(3)}
    table = measured(lambda text: of_one_text(text, tensors), [file])
    assert draw(table, tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")


def test_every_analysis_is_whole():
    for name, one in ANALYSES.items():
        assert one.name == name and one.summary and one.tensors is not None
        one.options()  # all settings have defaults

"""Pronouns and names: on attention that is written by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from headway.data.gap import COLUMNS, Named, Pronoun
from headway.errors import InputError
from headway.explore.analyses.analysis import NoOptions, Table, Traced
from headway.explore.analyses.pronouns import PRONOUNS, first, mentions, nearest

sys.path.insert(0, str(Path(__file__).parent))
from hand_made import HandMade, pointing

TEXTS = {  # text: (pronoun, the right name, the wrong one)
    "Ann met Eve and she left": ("she", "Ann", "Eve"),
    "Bob saw Tom when he fell": ("he", "Bob", "Tom"),
    "Ann Lee told Eve that she won": ("she", "Eve", "Ann Lee"),
    "For her part Ann liked Eve": ("her", "Ann", "Eve"),
}


def gap(folder: Path, *texts: str) -> str:
    rows = [list(COLUMNS)]
    for number, text in enumerate(texts):
        pronoun, right, wrong = TEXTS[text]
        names = [(right, "TRUE"), (wrong, "FALSE")][:: 1 if number % 3 else -1]
        flat = [value for name, meant in names for value in (name, str(text.index(name)), meant)]
        rows.append([f"x-{number}", text, pronoun, str(text.index(f" {pronoun} ") + 1), *flat])
    (folder / "gap.tsv").write_text("\n".join("\t".join(row) for row in rows) + "\n", encoding="utf-8")
    return str(folder / "gap.tsv")


def knowing(labels: list[str]) -> np.ndarray:
    """One layer: head 0 gives the right name more, head 1 the wrong one, head 2 nothing to either."""
    text = next(text for text in TEXTS if set(text.split()) <= set(labels))
    _, right, wrong = TEXTS[text]
    n = len(labels)
    to_right, to_wrong = (pointing(n, lambda t, name=name: labels.index(name.split()[0])) for name in (right, wrong))
    right_head, wrong_head = 0.6 * to_right + 0.3 * to_wrong, 0.3 * to_right + 0.6 * to_wrong
    return np.array([[right_head, wrong_head, pointing(n, lambda t: 0)]])


def measured(model: HandMade, *files: str) -> tuple[Table, dict[object, dict[str, object]]]:
    table = PRONOUNS.run(Traced(model, PRONOUNS.tensors), files, NoOptions())
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return table, {row["site"] if row["layer"] is None else row["head"]: row for row in rows}


def test_the_head_that_prefers_the_right_name_is_found_beside_the_baselines(tmp_path):
    table, found = measured(HandMade(knowing), gap(tmp_path, *TEXTS))
    assert [found[head]["right"] for head in range(3)] == [1.0, 0.0, 0.0]
    assert table.more["best"] == [0, 0]
    # Measured on the second and the fourth: nearest are Tom (wrong) and Ann (right), first are Bob and Ann (right).
    assert found["nearest name"]["right"] == 0.5 and found["first name"]["right"] == 1.0
    # Chosen on the first and the third: Eve (wrong) and Eve (right); Ann (right) and Ann Lee (wrong).
    assert found["nearest name"]["right, choosing"] == 0.5 == found["first name"]["right, choosing"]


def test_a_pronoun_that_cannot_see_both_names_is_left_out_and_told(tmp_path):
    table, found = measured(HandMade(knowing, causal=True), gap(tmp_path, *TEXTS))
    assert found[0]["right"] == 1.0 and "1 pronouns with one right" in table.notes[0]
    assert any("1 pronouns left out" in note for note in table.notes)
    with pytest.raises(InputError, match="not enough pronouns from which this model sees both"):
        measured(HandMade(knowing, causal=True), gap(tmp_path, "For her part Ann liked Eve"))


def test_other_mentions_of_a_name_count_for_it_and_parts_of_the_other_do_not():
    text = "Lee met Ann Lee. Ann Lee and Lee said that she knew Lee."
    names = Named("Ann Lee", (8, 15), True), Named("Lee", (29, 32), False)
    pronoun = Pronoun("x", text, "she", (43, 46), names)
    assert [text[a:b] for a, b in mentions(pronoun)] == ["Lee", "Ann Lee", "Lee"]
    spans = [names[0].span, names[1].span]
    assert nearest(pronoun.span, spans) == 1 and first(pronoun.span, spans) == 0
    assert nearest((16, 19), spans) == 0  # one character behind the one, ten before the other


def test_names_of_the_same_count_of_pieces_or_not_are_summed(tmp_path):
    """Ann Lee has two pieces with 0.3 each, Eve one with 0.5: together they are more."""

    def spread(labels: list[str]) -> np.ndarray:
        n = len(labels)
        weights = 0.5 * pointing(n, lambda t: labels.index("Eve"))
        for name in ("Ann", "Lee"):
            weights += 0.3 * pointing(n, lambda t, name=name: labels.index(name))
        return np.array([[weights]])

    _, found = measured(HandMade(spread), gap(tmp_path, *["Ann Lee told Eve that she won"] * 2))
    assert found[0]["right"] == 0.0  # Eve is right


def test_the_picture_is_drawn_from_the_table(tmp_path):
    table, _ = measured(HandMade(knowing), gap(tmp_path, *TEXTS))
    assert PRONOUNS.draw(table, tmp_path / "pronouns.png").stat().st_size > 5000

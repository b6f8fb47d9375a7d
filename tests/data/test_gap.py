"""GAP: pronouns with the two names that they may stand for, and what is said of a broken file."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.data.gap import COLUMNS, Named, Pronoun, read_gap
from headway.errors import InputError

TEXT = "Ann met Eve. Then she left."
ROW = ["dev-1", TEXT, "she", "18", "Ann", "0", "TRUE", "Eve", "8", "FALSE", "http://example.org"]
HEADING = [*COLUMNS, "URL"]


def written(folder: Path, *rows: list[str]) -> Path:
    path = folder / "gap.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_pronoun_is_read_with_its_names_where_they_stand(tmp_path):
    [found] = read_gap(written(tmp_path, HEADING, ROW))
    names = (Named("Ann", (0, 3), True), Named("Eve", (8, 11), False))
    assert found == Pronoun("dev-1", TEXT, "she", (18, 21), names)
    assert found.text[slice(*found.span)] == "she"


def test_columns_may_stand_in_any_order(tmp_path):
    [found] = read_gap(written(tmp_path, HEADING[::-1], ROW[::-1]))
    assert found.names[1].text == "Eve"


@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        (3, "17", "line 2: 'she' (Pronoun) does not stand at character '17' of the text"),
        (5, "x", "line 2: 'Ann' (A) does not stand at character 'x'"),
        (9, "maybe", "line 2: B-coref is 'maybe', expected TRUE or FALSE"),
    ],
)
def test_a_row_that_does_not_fit_its_text_is_named(tmp_path, at, value, said):
    row = [*ROW]
    row[at] = value
    with pytest.raises(InputError) as error:
        list(read_gap(written(tmp_path, HEADING, row)))
    assert said in str(error.value)


def test_missing_columns_short_rows_and_empty_files_are_one_clear_line(tmp_path):
    with pytest.raises(InputError, match="line 1: no column 'A-coref'; did you mean 'B-coref'"):
        list(read_gap(written(tmp_path, [name for name in HEADING if name != "A-coref"], ROW)))
    with pytest.raises(InputError, match="line 3: 4 columns, the first line names 11"):
        list(read_gap(written(tmp_path, HEADING, ROW, ROW[:4])))
    with pytest.raises(InputError, match="has column names and no pronoun"):
        list(read_gap(written(tmp_path, HEADING)))
    with pytest.raises(InputError, match="is empty"):
        list(read_gap(written(tmp_path)))

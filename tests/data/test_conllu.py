"""Treebanks: what a file spells, the tree above it, and what is said of a broken line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from headway.data.conllu import Sentence, read_conllu
from headway.errors import InputError


def line(number: str, form: str, head: str = "_", relation: str = "_", misc: str = "_") -> str:
    return "\t".join([number, form, "_", "X", "_", "_", head, relation, "_", misc])


WEVE = [
    "# text = Since we've (all) won",
    line("1", "Since", "5", "mark"),
    line("2-3", "we've", misc="SpaceAfter=Yes"),
    line("2", "we", "5", "nsubj"),
    line("3", "'ve", "5", "aux"),
    line("3.1", "have"),
    line("4", "(all)", "5", "obl:x"),
    line("5", "won", "0", "root", "SpaceAfter=No"),
    line("6", "!", "5", "punct"),
]
WEVE_READ = Sentence(
    "Since we've (all) won!",
    ("Since", "we", "'ve", "(all)", "won", "!"),
    ((0, 5), (6, 8), (8, 11), (12, 17), (18, 21), (21, 22)),
    (4, 4, 4, 4, -1, 4),
    ("mark", "nsubj", "aux", "obl:x", "root", "punct"),
)


def written(folder: Path, *rows: str) -> Path:
    path = folder / "some.conllu"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_words_of_one_written_form_have_their_own_parts_of_the_text(tmp_path):
    [one, other] = read_conllu(written(tmp_path, *WEVE, "", "", line("1", "Yes", "0", "root"), ""))
    assert one == WEVE_READ
    assert [one.text[slice(*span)] for span in one.spans] == list(one.words)
    assert other.text == "Yes" and other.heads == (-1,)


def test_words_that_do_not_spell_their_written_form_share_all_of_it(tmp_path):
    rows = [line("1-2", "au"), line("1", "à", "3", "case"), line("2", "le", "3", "det"), line("3", "lit", "0", "root")]
    [sentence] = read_conllu(written(tmp_path, *rows))
    assert sentence.text == "au lit" and sentence.spans == ((0, 2), (0, 2), (3, 6))


def test_a_last_sentence_needs_no_empty_line_and_files_may_be_packed(tmp_path):
    path = tmp_path / "some.conllu.gz"
    path.write_bytes(gzip.compress("\n".join(WEVE).encode()))
    assert list(read_conllu(path)) == [WEVE_READ]


@pytest.mark.parametrize(
    ("at", "row", "said"),
    [
        (1, "1 Since 5 mark", "line 2: 1 columns, CoNLL-U has 10"),
        (3, line("two", "we", "5", "nsubj"), "line 4: 'two' is no number of a word"),
        (3, line("3", "we", "5", "nsubj"), "line 4: word 3 where 2 was expected"),
        (3, line("2", "we", "7", "nsubj"), "line 4: head '7' of word 2: expected the number of another of the 6 words"),
        (3, line("2", "we", "2", "nsubj"), "line 4: head '2' of word 2"),
        (3, line("2", "we", "_", "nsubj"), "line 4: head '_' of word 2"),
        (3, line("2", "", "5", "nsubj"), "line 4: the word is empty"),
        (2, line("3-2", "we've"), "line 3: '3-2' are no words"),
        (2, line("2-9", "we've"), "line 3: the words 2 to 9, and no others, must follow this line"),
        (3, line("2-3", "we've"), "line 5: word 3 where 2 was expected"),
    ],
)
def test_a_broken_line_is_named_by_its_file_and_number(tmp_path, at, row, said):
    rows = [*WEVE]
    rows[at] = row
    with pytest.raises(InputError) as error:
        list(read_conllu(written(tmp_path, *rows)))
    assert f"some.conllu, {said}" in str(error.value)


def test_a_file_without_a_sentence_is_an_error(tmp_path):
    with pytest.raises(InputError, match="is empty"):
        list(read_conllu(_empty(tmp_path)))
    with pytest.raises(InputError, match="has no sentence: expected CoNLL-U"):
        list(read_conllu(written(tmp_path, "", "")))
    with pytest.raises(InputError, match="line 1: a sentence without a word"):
        list(read_conllu(written(tmp_path, "# text = nothing", "")))


def _empty(folder: Path) -> Path:
    path = folder / "empty.conllu"
    path.touch()
    return path

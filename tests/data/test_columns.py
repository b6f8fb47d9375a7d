"""Where a table has its texts and labels: by what the user says, by the header, by the cells; and damaged tables."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pytest

from headway.data.columns import Columns
from headway.data.labelled import Labelled, read_labelled, read_texts
from headway.errors import InputError

TEXTS = ["a fine film", "dull, and long", 'he said "no"', "two\nlines", "ünï", "fine", "so so", "not for me"]
LABELS = ["positive", "negative"] * 4


def as_csv(*columns: list[str]) -> bytes:
    """As the csv module, and pandas, write them."""
    stream = io.StringIO()
    csv.writer(stream).writerows(zip(*columns, strict=True))
    return stream.getvalue().encode()


def tabbed(*rows: str) -> bytes:
    return "".join(row.replace("|", "\t") + "\n" for row in rows).encode()


def read(path: Path, content: bytes, *given: str, **more: str) -> tuple[list[Labelled], list[str]]:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    said: list[str] = []
    return read_labelled([path], Columns(given, **more), say=said.append), said


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_csv_with_quotes_line_breaks_and_a_header(tmp_path: Path, name: str) -> None:
    content = as_csv(["id", *"12345678"], ["review", *TEXTS], ["stars", *LABELS])
    found, said = read(tmp_path / name, content)
    assert found == list(map(Labelled, TEXTS, LABELS))
    assert said == ["labels from column 'stars' (2: negative, positive), texts from 'review'"]
    assert read(tmp_path / name, b"\xef\xbb\xbf" + content)[0] == found  # a byte order mark
    assert read(tmp_path / name, content.replace(b",", b";"))[0][0] == found[0]


@pytest.mark.parametrize(
    ("rows", "expected", "said"),
    [
        # GLUE: SST-2, MRPC, QQP, MNLI, QNLI, RTE, and CoLA, which has no header
        (("sentence|label", "good|1", "bad|0"), ("good", "1"), "'label' (2: 0, 1), texts from 'sentence'"),
        (("Quality|#1 ID|#2 ID|#1 String|#2 String", "1|70|71|a b|c d", "0|72|73|e|f"), (("a b", "c d"), "1"),
         "'Quality' (2: 0, 1), texts from '#1 String' and '#2 String'"),
        (("id|qid1|qid2|question1|question2|is_duplicate", "5|1|2|why?|how?|0", "6|3|4|a|b|1"), (("why?", "how?"), "0"),
         "'is_duplicate' (2: 0, 1), texts from 'question1' and 'question2'"),
        (("index|genre|sentence1_parse|sentence1|sentence2|label1|gold_label", "0|x|(a)|a|b|neutral|entailment",
          "1|x|(c)|c|d|neutral|neutral"), (("a", "b"), "entailment"),
         "'gold_label' (2: entailment, neutral), texts from 'sentence1' and 'sentence2'"),
        (("index|question|sentence|label", "0|who?|he|entailment", "1|what?|it|not_entailment"),
         (("who?", "he"), "entailment"),
         "'label' (2: entailment, not_entailment), texts from 'question' and 'sentence'"),
        (("index|sentence1|sentence2|label", "0|a|b|yes", "1|c|d|no"), (("a", "b"), "yes"),
         "'label' (2: no, yes), texts from 'sentence1' and 'sentence2'"),
        (("gj04|1||It is.", "gj04|0|*|Is it it.", "bc01|1||So.", "bc01|0|??|So so so."), ("It is.", "1"),
         "2 (2: 0, 1), texts from 4"),
        # no header: label first, label last, a number of the row before them, pairs
        (("pos|a b", "neg|c", "pos|d", "neg|e"), ("a b", "pos"), "1 (2: neg, pos), texts from 2"),
        (("a b|pos", "c|neg", "d|pos", "e|neg"), ("a b", "pos"), "2 (2: neg, pos), texts from 1"),
        (("1|a b|pos", "2|c|neg", "3|d|pos", "4|e|neg"), ("a b", "pos"), "3 (2: neg, pos), texts from 2"),
        (("a|b|yes", "c|d|no", "e|f|no", "g|h|yes"), (("a", "b"), "yes"), "3 (2: no, yes), texts from 1 and 2"),
        # a header of names that nobody knows
        (("verdict|remark", *("yes|a", "no|b") * 5), ("a", "yes"), "'verdict' (2: no, yes), texts from 'remark'"),
        # a first row that only looks like one
        (("positive|text", "positive|good", "negative|bad"), ("text", "positive"), "1 (2: negative, positive), texts"),
    ],
)  # fmt: skip
def test_orders_of_columns(tmp_path: Path, rows: tuple[str, ...], expected: object, said: str) -> None:
    found, lines = read(tmp_path / "a.tsv", tabbed(*rows))
    assert found[0] == expected and len(lines) == 1 and f"labels from column {said}" in lines[0]


def test_columns_that_are_asked_for_by_name_and_by_number(tmp_path: Path) -> None:
    rows = tabbed("topic|note|mood", "film|great|good", "film|awful|bad", "book|fine|good")
    assert read(tmp_path / "a.tsv", rows, "note", label="mood")[0][1] == ("awful", "bad")
    assert read(tmp_path / "a.tsv", rows, "2", label="1")[0][2] == ("fine", "book")
    assert read(tmp_path / "a.tsv", rows, "topic", "note", label="mood")[0][0] == (("film", "great"), "good")
    objects = b"".join(json.dumps({"body": text, "kind": n % 2}).encode() + b"\n" for n, text in enumerate(TEXTS))
    assert read(tmp_path / "a.jsonl", objects, "body", label="kind")[0] == [
        (text, str(n % 2)) for n, text in enumerate(TEXTS)
    ]


def test_labels_that_a_model_knows_decide(tmp_path: Path) -> None:
    """A file of two rows says nothing by itself."""
    path = tmp_path / "a.tsv"
    path.write_bytes(tabbed("good|positive", "positive|negative"))
    assert read_labelled([path], known=("negative", "positive"))[0] == ("good", "positive")


def test_texts_without_labels(tmp_path: Path) -> None:
    (path := tmp_path / "a.csv").write_bytes(as_csv(["id", "1", "2"], ["review", "good, or not", "bad"]))
    assert read_texts(str(path)) == ["good, or not", "bad"]
    path.write_bytes(as_csv(["words", "good", "bad"]))
    assert read_texts(str(path), Columns(("words",))) == ["good", "bad"]


MANY = [f"text number {n}" for n in range(40)]


@pytest.mark.parametrize(
    ("name", "content", "given", "said"),
    [
        ("a.csv", as_csv(["text", *TEXTS], ["label", *LABELS])[:66], {}, "a.csv, line 4: not a row of a .csv"),
        ("a.csv", b'text,label\n"a" b,1\n', {}, "a.csv, line 2: not a row of a .csv"),
        ("a.csv", b"text,label\na,1\nb\n", {}, "a.csv, line 3: 1 column, but line 1 has 2: the row is cut short"),
        ("a.csv", b"text,label\na,1\nb, c,0\n", {}, "a.csv, line 3: 3 columns, but line 1 has 2: is there a comma"),
        ("a.tsv", tabbed("1|a", "0|b|c"), {}, "a.tsv, line 2: 3 columns, but line 1 has 2: is there a tab in a text?"),
        ("a.csv", b"text,label\na,1\nb\0,0\n", {}, "a.csv, line 3: a NUL byte"),
        ("a.csv", b"text,label\na,1\n" + b"x" * 10_000_001 + b",0\n", {}, "a.csv, line 3: 10,000,003 characters"),
        ("a.csv", b"text,label\na,1\n\"" + (b"x" * 999_999 + b"\n") * 11 + b"\",0\n", {},
         "a.csv, line 3: not a row of a .csv"),
        ("a.csv", b"text,label\na,1\nb,\n", {}, "a.csv, line 3: the label (column 'label') is empty"),
        ("a.csv", b"text,label\na,1\nb\xff,0\n", {}, "a.csv, line 3: not UTF-8"),
        ("a.csv", b"a,b,c\nx,y,z\n", {"label": "d"}, "has no column 'd' (--label-column): there are columns 1 to 3"),
        ("a.csv", b"text,label,c\nx,y,z\n", {"label": "lable"},
         "there are columns text, label, c; did you mean 'label'?"),
        ("a.csv", b"text,label,c\nx,y,z\n", {"label": "text", "texts": ("text",)}, "cannot be both text and label"),
        ("a.csv", as_csv(["text", *MANY], ["label", *MANY]), {}, "40 rows have 40 different labels and 40 texts"),
        ("a.csv", as_csv(["text", *MANY], ["label", *LABELS * 5]), {"texts": ("label",), "label": "1"},
         "column 'text' was taken for the labels and 'label' for the texts"),
        ("a.csv", as_csv(["mood", *LABELS], ["a", *TEXTS], ["b", *TEXTS]), {"label": "mood"},
         "which column has the texts? there are columns mood, a, b: say --text-column"),
        ("a.tsv", tabbed("a|b|c|d|e", "f|g|h|i|j"), {}, "which column has the labels? there are columns 1 to 5"),
        ("a.jsonl", b'{"text": "a", "label": 1}\n{"text": "b"}\n', {},
         "a.jsonl, line 2: the label 'label' is NoneType"),
        ("a.jsonl", b'{"text": "a", "label": 1}\n{"label": 2}\n', {}, "a.jsonl, line 2: no key 'text'"),
        ("a.txt", "".join(f"{text.split()[2]} x\n" for text in MANY).encode(), {}, "the first word of each line was"),
        ("a.txt", b"1 a\n", {"label": "1"}, "a.txt has no columns"),
        ("a.parquet", b"PAR1", {}, "cannot read"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(
    tmp_path: Path, name: str, content: bytes, given: dict[str, object], said: str
) -> None:
    (path := tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_labelled([path], Columns(**given))  # type: ignore[arg-type]
    assert said in str(caught.value) and name in str(caught.value) and "\n" not in str(caught.value)
    assert csv.field_size_limit() == 131_072


def test_a_header_alone_has_no_texts(tmp_path: Path) -> None:
    assert read(tmp_path / "a.csv", b"text,label\n") == ([], [])
    assert read(tmp_path / "a.csv", b"fine,good\n")[0] == [("good", "fine")]


def test_fasttexts_own_lines(tmp_path: Path) -> None:
    found, said = read(tmp_path / "a.txt", b"__label__pos so good\n__label__neg so bad\n")
    assert found == [("so good", "pos"), ("so bad", "neg")]
    assert said == ["labels from the first word of each line (2: neg, pos), texts from what follows"]

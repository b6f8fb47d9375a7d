"""Labelled texts: forms of files, what is held out, and batches in which no text is lost or changed."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from headway.batch import IGNORED
from headway.data.labelled import (
    Labelled,
    LabelStore,
    hold_out_labelled,
    labels_in,
    read_labelled,
)
from headway.errors import InputError
from headway.text.framing import Framed, frame
from headway.text.tokenizer import END, START, TextOptions, Tokenizer


def test_forms_of_files(tmp_path: Path) -> None:
    spaced = tmp_path / "train.all.gz"
    spaced.write_bytes(gzip.compress(b"1 a good film .\n\n0 dull\n"))
    columns = tmp_path / "pairs.tsv"
    columns.write_text("yes\tHow old?\tWhat age?\nno\tHow old?\tWhere?\n")
    objects = tmp_path / "more.jsonl"
    objects.write_text(json.dumps({"text": "a\tb", "label": 2}) + "\n")
    assert read_labelled([spaced]) == [Labelled("a good film .", "1"), Labelled("dull", "0")]
    assert read_labelled([columns, objects]) == [
        Labelled(("How old?", "What age?"), "yes"), Labelled(("How old?", "Where?"), "no"), Labelled("a\tb", "2")
    ]  # fmt: skip


def test_a_member_of_an_archive_in_colas_columns(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "cola.zip", "w") as archive:
        archive.writestr("raw/train.tsv", "gj04\t1\t\tOne more is fine.\ngj04\t0\t*\tMore one fine is.\n")
    found = read_labelled([f"{tmp_path}/cola.zip/raw/train.tsv"])
    assert found == [Labelled("One more is fine.", "1"), Labelled("More one fine is.", "0")]
    with pytest.raises(InputError, match=r"cola\.zip has no member 'raw/test\.tsv'"):
        read_labelled([f"{tmp_path}/cola.zip/raw/test.tsv"])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", "1 good\nbad\n", r"a\.txt, line 2: no space"),
        ("a.tsv", "good\n", r"a\.tsv, line 1: only one column; a text and a label are needed"),
        ("a.jsonl", '{"text": "a"}\n', r"a\.jsonl, line 1: only one column \('text'\)"),
        ("a.jsonl", '{"label": "1"}\n', r"a\.jsonl, line 1: only one column \('label'\)"),
        ("a.txt", "", "is empty"),
    ],
)
def test_what_is_wrong_is_named_by_its_line(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=said):
        read_labelled([tmp_path / name])


def test_labels_are_in_order_numbers_by_their_size() -> None:
    assert labels_in([Labelled("a", label) for label in ("10", "2", "2", "1")]) == ("1", "2", "10")
    assert labels_in([Labelled("a", label) for label in ("b", "10", "a")]) == ("10", "a", "b")


def test_equal_texts_are_held_out_together_and_the_same_each_time() -> None:
    texts = [Labelled(f"text {number % 50}", "0") for number in range(150)]
    train, held = hold_out_labelled(texts, 0.2)
    assert len(held) == 30 and len(train) == 120 and not {t.text for t in train} & {t.text for t in held}
    assert hold_out_labelled(texts[::-1], 0.2)[1] == held[::-1]
    with pytest.raises(InputError, match="too few, or too similar"):
        hold_out_labelled(texts[:1], 0.2)


def test_headways_own_frame_and_where_it_is_cut() -> None:
    tokenizer = Tokenizer.train(["one two three four five"] * 2, TextOptions(kind="word"))
    one, two, three, four = (tokenizer.encode(word)[0] for word in ("one", "two", "three", "four"))
    assert frame(tokenizer, ["one two"], 9, spans=True) == [
        Framed([START, one, two, END], None, ((0, 0), (0, 3), (4, 7), (0, 0)), (None, 0, 1, None), (None, 0, 0, None))
    ]
    [pair] = frame(tokenizer, [("one two", "three")], 9)
    assert (pair.ids, pair.types) == ([START, one, two, END, three, END], [0, 0, 0, 0, 1, 1])
    with pytest.raises(InputError, match="text 1 has 6 tokens, this model takes at most 5"):
        frame(tokenizer, ["one two three four"], 5)
    assert frame(tokenizer, ["one two three four"], 5, truncate=True)[0].ids == [START, one, two, three, END]
    [cut] = frame(tokenizer, [("one two three four", "one")], 6, truncate=True)
    assert cut.ids == [START, one, two, END, one, END]
    [even] = frame(tokenizer, [("one two three", "one two three")], 7, truncate=True)
    assert even.ids == [START, one, two, END, one, two, END]
    assert four not in even.ids


def test_every_text_comes_once_an_epoch_as_it_was() -> None:
    random = np.random.default_rng(0)
    framed = [
        Framed(random.integers(4, 50, length).tolist(), [0] * (length - 1) + [1])
        for length in random.integers(1, 40, 101)
    ]
    labels = random.integers(0, 3, 101).tolist()
    batches = LabelStore(framed, labels, pad=0).batches(budget=128, seed=5)
    for epoch in (0, 1):
        seen = []
        for batch in batches.epoch(epoch):
            inputs = batch.inputs
            assert inputs.ids_BT.numel() <= 128 or len(batch) == 1
            rows = zip(batch.examples, inputs.ids_BT, inputs.types_BT, inputs.lengths_B, batch.labels_B, strict=True)  # type: ignore[arg-type]
            for example, ids_T, types_T, length, label in rows:
                assert ids_T[:length].tolist() == framed[example].ids and not ids_T[length:].any()
                assert types_T[:length].tolist() == framed[example].types
                assert int(label) == labels[example]
                seen.append(example)
        assert sorted(seen) == list(range(101))
    first = [batches.batch(step).examples for step in range(batches.per_epoch)]
    assert first == [batch.examples for batch in batches.epoch(0)] != [batch.examples for batch in batches.epoch(1)]


def test_rows_that_fill_a_batch_up_count_nowhere() -> None:
    framed = [Framed([4, 5, 6]) for _ in range(5)]
    store = LabelStore(framed, [0, 1, 0, 1, 1], pad=0)
    batch, full = (store.batches(budget=32, seed=0, full=full).batch(0) for full in (False, True))
    assert len(batch) == 5 and len(full) == 8 and full.tokens == batch.tokens == 5
    assert full.labels_B[5:].tolist() == [IGNORED] * 3 and full.rows(0, 6).tokens == 5
    assert [part.tokens for part in full.split(2)] == [4, 1]


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_damaged_archive_is_told_in_one_line(tmp_path: Path, packing: int) -> None:
    """Every byte flipped: another text, or a refusal that names the archive. A name in it is never a path."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", packing) as archive:
        archive.writestr("../x.tsv", "1\ta good film .\n" * 20)
    whole = path.read_bytes()
    before = sorted(tmp_path.rglob("*"))
    assert len(read_labelled([f"{path}/../x.tsv"])) == 20
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            read_labelled([f"{path}/../x.tsv"])
        except InputError as error:
            assert "a.zip" in str(error) and "\n" not in str(error)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_locked_archive_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.tsv", "1\tgood\n")
    whole = bytearray(path.read_bytes())
    for start, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # the bit that says: encrypted
        whole[whole.index(start) + flags] |= 1
    path.write_bytes(whole)
    with pytest.raises(InputError, match="encrypted"):
        read_labelled([f"{path}/x.tsv"])


def test_lines_in_latin_1_are_read_where_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "rt.all"
    path.write_bytes("0 the action clichés\n1 amélie\n".encode("latin-1"))
    assert read_labelled([path], encoding="latin-1") == [("the action clichés", "0"), ("amélie", "1")]
    with pytest.raises(InputError, match="not UTF-8"):
        read_labelled([path])
    table = tmp_path / "rt.tsv"
    table.write_bytes("0\tamélie\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"data\.encoding is for lines of a label and a text"):
        read_labelled([table], encoding="latin-1")

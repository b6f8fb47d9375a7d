"""Documents from files: what is read, in which order, in chunks that encode as the whole does, and what is refused."""

import gzip
import json
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from headway.data.documents import Documents, cut_up
from headway.data.readers import CHUNK
from headway.errors import InputError
from headway.text.tokenizer import TextOptions, Tokenizer


def read_documents(paths: Path | list[Path], key: str = "text") -> Iterator[str]:
    """Every document whole."""
    return ("".join(text) for text in Documents.at(paths, key).texts())


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content.encode() if isinstance(content, str) else content
    pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}.get(path.suffix, bytes)
    path.write_bytes(pack(raw))
    return path


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_text_file_is_one_document_without_its_mark_and_with_plain_line_ends(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a.txt{suffix}", "\ufeff one\r\n\r\ntwo\u2028 \r\r\n\rthree\ufeff \n\r")
    assert list(read_documents(path)) == [" one\n\ntwo\u2028 \r\n\rthree\ufeff \n\r"]


@pytest.mark.parametrize("end", ["\r\n", "é", "😀", "\r"])
def test_what_stands_where_chunks_meet_stays_whole(tmp_path: Path, end: str) -> None:
    for shift in range(4):
        text = "x" * (CHUNK - shift) + end * 3 + "y" * CHUNK + end
        assert list(read_documents(write(tmp_path / "a.txt", text))) == [text.replace("\r\n", "\n")]


def test_a_line_of_jsonl_is_a_document(tmp_path: Path) -> None:
    texts = ["one\r\ntwo\n", "", "drei"]
    rows = "".join(json.dumps({"id": 1, "body": text}) + "\n" for text in texts)
    path = write(tmp_path / "a.jsonl.gz", rows)
    assert list(read_documents(path, key="body")) == texts
    assert list(Documents.at(path, "body").chunks()) == [(texts[0], True), ("", True), ("drei", True)]


def test_each_line_is_a_document_where_that_is_asked(tmp_path: Path) -> None:
    texts, records = (
        write(tmp_path / "a.txt.gz", " one two \r\n\n  \nthree"),
        write(tmp_path / "b.jsonl", '{"text": "4\\n5"}\n'),
    )
    documents = Documents.at([texts, records], lines=True)
    assert list(documents.chunks()) == [("one two", True), ("three", True), ("4\n5", True)]
    assert documents.identity() != Documents.at([texts, records]).identity()
    long = "x" * 100_000
    chunks = list(Documents.at(write(tmp_path / "c.txt", f"{long}\ny\n"), lines=True).chunks())
    assert [chunk.last for chunk in chunks] == [False, True, True] and chunks[0].text + chunks[1].text == long
    for content, said in ((" \n\n", "empty"), ("a\nb\0\n", "binary"), (b"a\n\xff\n", "line 2: not UTF-8")):
        with pytest.raises(InputError, match=said):
            list(Documents.at(write(tmp_path / "d.txt", content), lines=True).chunks())


def test_a_folder_is_read_recursively_in_the_order_of_names(tmp_path: Path) -> None:
    names = ["b.txt", "a/z.txt.gz", "a/b/c.jsonl", "a.txt", ".hidden.txt", ".git/x.txt", "notes.md", "a/picture.png"]
    for name in names:
        text = Path(name).as_posix()
        write(tmp_path / name, json.dumps({"text": text}) if ".jsonl" in name else text)
    assert list(read_documents(tmp_path)) == ["a/b/c.jsonl", "a/z.txt.gz", "a.txt", "b.txt"]
    assert list(read_documents([tmp_path / "notes.md", tmp_path / "a.txt"])) == ["notes.md", "a.txt"]


def hard_document(seed: int, length: int) -> str:
    """Words and all kinds of white space, few of them a lone line end."""
    chance = random.Random(seed)
    words = ["the", "cat", "don't", "1984", "…", "…", "é", "中文", "'s", "a\nb"]
    return "".join(chance.choices([*words, " ", " ", " ", "  ", "\n", "\n\n", " \n", "\t", "\n  "], k=length))


@pytest.mark.parametrize("kind", ["bpe", "word", "char"])
@pytest.mark.parametrize("size", [250, 600, 1001])
def test_pieces_encode_to_the_ids_of_the_whole(kind: str, size: int) -> None:
    texts = [hard_document(seed, 2000) for seed in range(5)]
    options = TextOptions(kind=kind, size=1000, min_count=1, exact=True)  # type: ignore[arg-type]
    tokenizer = Tokenizer.train(texts, options)
    for text in texts:
        chunks = list(cut_up(iter([text]), size))
        assert "".join(chunk.text for chunk in chunks) == text and len(chunks) > len(text) / size
        assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        assert all(0 < len(chunk.text) <= size for chunk in chunks)
        assert all(chunk.text[0] == "\n" for chunk in chunks[1:]), "or this test shows nothing"
        joined = [i for ids in tokenizer.encode_batch([chunk.text for chunk in chunks]) for i in ids]
        assert joined == tokenizer.encode(text)


def test_pieces_do_not_depend_on_how_the_text_comes() -> None:
    text = hard_document(9, 3000) + "x" * 500
    whole = list(cut_up(iter([text]), 100))
    for step in (1, 7, 99, 101, 5000):
        assert list(cut_up((text[at : at + step] for at in range(0, len(text), step)), 100)) == whole
    assert [chunk.text for chunk in cut_up(iter(["ab cd  efghijkl"]), 6)] == ["ab", " cd  e", "fghijk", "l"]
    assert list(cut_up(iter([]))) == [("", True)]


def test_a_large_file_is_never_held_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt.gz", "to be or not to be\n" * 400_000)
    tracemalloc.start()
    count = sum(len(chunk.text) for chunk in Documents.at(path).chunks())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 19 * 400_000 and peak < 2_000_000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "file .*a.txt is empty"),
        ("a.txt.gz", b"\xef\xbb\xbf", "file .*a.txt.gz is empty"),
        ("a.txt", b"fine\ncaf\xe9 au lait\n", r"a\.txt, line 2: not UTF-8 \(byte 0xe9 at 4\); convert"),
        ("a.txt", b"x" * CHUNK + b"\nab\xc3", r"a\.txt, line 2: not UTF-8 \(byte 0xc3 at 3\)"),
        ("a.txt", b"x\n" * CHUNK + b"y\xff", rf"a\.txt, line {CHUNK + 1}: not UTF-8 \(byte 0xff at 2\)"),
        (
            "a.txt",
            b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
            r"a\.txt, line 1: a binary file, not text \(byte 0x89 at 1\)",
        ),
        ("a.txt", b"text\nwith\x00zero", r"a\.txt, line 2: a binary file, not text \(byte 0x00 at 5\)"),
        ("a.txt", "zwölf".encode("utf-16"), "UTF-16, expected UTF-8; convert"),
        ("a.jsonl", b'{"text": "a"}\n{"txt": "b"}\n', r"a\.jsonl, line 2: no key 'text'; did you mean 'txt'"),
        ("a.jsonl", b'{"text": "a"}\n["b"]\n', r"a\.jsonl, line 2: list, expected an object with 'text'"),
        ("a.jsonl", b'{"text": 5}\n', r"a\.jsonl, line 1: 'text' is int"),
        ("a.jsonl", b"plain\n", r"a\.jsonl, line 1: not JSON"),
        ("a.jsonl", b"", "a.jsonl is empty"),
        ("a.parquet", b"PAR1", r"cannot read .*a\.parquet as text: give text files"),
        ("a.zip", b"PK", r"cannot read .*a\.zip as text: give text files"),
    ],
)
def test_what_is_no_text_is_refused_with_its_place(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as found:
        list(read_documents(write(tmp_path / name, content)))
    assert "\n" not in str(found.value)


def test_no_file_and_a_folder_without_text_are_refused_at_once(tmp_path: Path) -> None:
    write(tmp_path / "folder" / "picture.png", "x")
    for paths, message in (
        ([], "no text: give text files"),
        (tmp_path / "folder", r"folder .*folder has no \.txt or \.jsonl"),
        (tmp_path / "foldr", "no file .*foldr; did you mean 'folder'"),
        (write(tmp_path / "cut.txt.gz", "x").with_suffix(".zst"), "no file"),
    ):
        with pytest.raises(InputError, match=message):
            Documents.at(paths)

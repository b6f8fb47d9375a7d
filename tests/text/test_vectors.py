"""Vector files against a slow reader of their own, both forms; broken ones in one line; neighbours."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headway.errors import InputError
from headway.text import vectors
from headway.text.vectors import WordVectors, read_vectors, write_vectors

WORDS = ["the", "naïve", "don't", "水", ",", "0.5", "e\u0301"]


def some(count: int = 7, width: int = 5) -> WordVectors:
    scale = 10.0 ** np.arange(-4, width - 4)
    table = np.random.default_rng(3).standard_normal((count, width)) * scale
    words = [*WORDS, *(f"word{i}" for i in range(count))][:count]
    return WordVectors(words, table.astype(np.float32))


def slow_text(path: Path) -> dict[str, list[float]]:
    """A reader that knows nothing of speed."""
    rows = [line.split(" ") for line in path.read_text(encoding="utf-8").split("\n")[1:] if line]
    return {word: [float(np.float32(number)) for number in numbers] for word, *numbers in rows}


def slow_binary(path: Path) -> dict[str, list[float]]:
    with path.open("rb") as stream:
        count, width = map(int, stream.readline().split())
        found = {}
        for _ in range(count):
            word = b""
            while (byte := stream.read(1)) != b" ":
                word += byte.strip(b"\n")
            found[word.decode()] = list(struct.unpack(f"<{width}f", stream.read(4 * width)))
    return found


@pytest.mark.parametrize(("name", "slow"), [("v.txt", slow_text), ("v.vec", slow_text), ("v.bin", slow_binary)])
def test_a_file_comes_back_to_the_last_bit_and_as_another_reader_sees_it(
    tmp_path: Path, name: str, slow: Callable[[Path], dict[str, list[float]]]
) -> None:
    write_vectors(tmp_path / name, some())
    found = read_vectors(tmp_path / name)
    assert found.words == WORDS and np.array_equal(found.table_ND, some().table_ND)
    assert slow(tmp_path / name) == dict(zip(found.words, found.table_ND.tolist(), strict=True))
    write_vectors(tmp_path / f"{name}.gz", found)
    again = read_vectors(tmp_path / f"{name}.gz")
    assert again.words == WORDS and np.array_equal(again.table_ND, found.table_ND)
    assert sorted(path.name for path in tmp_path.iterdir()) == [name, f"{name}.gz"]


@pytest.mark.parametrize("piece", [7, 64, 1000])
@pytest.mark.parametrize("name", ["v.txt", "v.bin"])
def test_where_a_piece_of_the_file_ends_makes_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, piece: int
) -> None:
    write_vectors(tmp_path / name, some(50, 4))
    monkeypatch.setattr(vectors, "CHUNK", piece)
    found = read_vectors(tmp_path / name)
    assert found.words == some(50, 4).words and np.array_equal(found.table_ND, some(50, 4).table_ND)


def test_forms_of_others(tmp_path: Path) -> None:
    """GloVe has no first line and words with spaces, some programs tabs, CRLF, or no line end between records."""
    path = tmp_path / "glove.txt"
    path.write_text("a 1 -2.5e-1\n. . . 3 4\nb\t5\t6\r\n", encoding="utf-8")
    found = read_vectors(path)
    assert found.words == ["a", ". . .", "b"] and found.table_ND.tolist() == [[1, -0.25], [3, 4], [5, 6]]
    packed = tmp_path / "GoogleNews.bin"
    packed.write_bytes(b"2 3\n" + b"".join(w + struct.pack("<3f", 1, 2, 3) for w in (b"a ", b"b ")))
    assert read_vectors(packed).table_ND.tolist() == [[1, 2, 3]] * 2
    # Without a telling name the content decides.
    for name, other in ((path, "x"), (packed, "y")):
        (tmp_path / other).write_bytes(name.read_bytes())
        assert read_vectors(tmp_path / other).words == read_vectors(name).words


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("3 2\na 1 2\nb 3 4\n", "ends after 2 words, its first line says 3"),
        ("1 2\na 1 2\nb 3 4\n", "line 3: one more than the 1"),
        ("a 1 2\nb 3\nc 4 5\n", "line 2: a vector of 1 numbers, expected 2"),
        ("a 1 2\nb 3 4 5\n", "line 2: a vector of 3 numbers, expected 2"),
        ("2 3\na 1 2\nb 3 4\n", "line 2: a vector of 2 numbers, expected 3"),
        ("a 1 2\nb 3 x4\n", "line 2: 'x4' is not a number"),
        ("a 1 2\n\nb 3 4\n", "line 2: an empty line, expected 2"),
        ("a 1 2\nb 3 nan\n", "line 2: a number is infinite or none"),
        ("a 1 2\nb 3 4\na 5 6\n", "line 3: 'a' was on line 1 already"),
        ("hello\n", "line 1: expected a word and its numbers"),
        ("once upon a time\nthere was\n", "line 1: expected a word and its numbers"),
        ("5 0\n", "line 1: 5 words of width 0 cannot be"),
        ("9 999999999\n", "line 1: 9 words of width 999,999,999 cannot be"),
    ],
)
def test_a_bad_text_file_is_one_line_with_its_place(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "v.txt").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=f"v.txt.*{said}") as error:
        read_vectors(tmp_path / "v.txt")
    assert "\n" not in str(error.value)


def test_a_line_of_the_wrong_width_far_down_is_named(tmp_path: Path) -> None:
    write_vectors(tmp_path / "v.txt", some(3000, 6))
    lines = (tmp_path / "v.txt").read_text(encoding="utf-8").splitlines()
    # One number too few and one too many: together as many as there should be.
    lines[2000], lines[2001] = lines[2000].rsplit(" ", 1)[0], lines[2001] + " 1"
    (tmp_path / "v.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 2,001: a vector of 5 numbers, expected 6"):
        read_vectors(tmp_path / "v.txt")


RECORD = struct.pack("<2f", 1, 2)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"2 2\na " + RECORD + b"b " + RECORD[:5], "ends after 1 words, its first line says 2"),
        (b"2 2\na " + RECORD + b"\na " + RECORD, "word 2: 'a' was on word 1 already"),
        (b"1 2\na " + RECORD + b"b " + RECORD, "continues after the 1 words"),
        (b"99999999999 300\na " + RECORD, "do not fit into its"),
        (b"1 2\n\xff\xfe " + RECORD, "word 1: the word .* is not UTF-8"),
        (b"1 2\n " + RECORD, "word 1: a vector without a word"),
        (b"1 2\na " + struct.pack("<2f", 1, float("inf")), "word 1: a number is infinite or none"),
        (b"\x00\x01\x02", "expected a first line of two numbers"),
        (b"1 2\n" + b"x" * 9000, "word 1: no end of the word"),
    ],
)
def test_a_bad_binary_file_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "v.bin").write_bytes(content)
    with pytest.raises(InputError, match=f"v.bin.*{said}"):
        read_vectors(tmp_path / "v.bin")


def test_a_packed_file_that_was_cut_and_files_that_are_none(tmp_path: Path) -> None:
    whole = gzip.compress(b"2 2\na " + RECORD + b"b " + RECORD)
    (tmp_path / "v.bin.gz").write_bytes(whole[:-12])
    with pytest.raises(InputError, match="cannot read"):
        read_vectors(tmp_path / "v.bin.gz")
    (tmp_path / "v.bin.gz").write_bytes(gzip.compress(b"3 2\na " + RECORD))
    with pytest.raises(InputError, match="ends after 1 words"):
        read_vectors(tmp_path / "v.bin.gz")
    for path, said in ((tmp_path / "none.txt", "no file"), (tmp_path, "folder")):
        with pytest.raises(InputError, match=said):
            read_vectors(path)
    with pytest.raises(InputError, match="width 5.*width 8"):
        write_vectors(tmp_path / "v.txt", some())
        read_vectors(tmp_path / "v.txt", width=8)


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("v.csv", ["a", "b"], "ends in .txt, .vec or .bin"),
        ("no/v.txt", ["a", "b"], "no folder"),
        ("v.txt", ["a", "b c"], "white space"),
        ("v.txt", ["a", ""], "is empty or"),
        ("v.txt", ["a", "a"], "twice"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path: Path, name: str, words: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        write_vectors(tmp_path / name, WordVectors(words, np.ones((2, 3), np.float32)))
    assert list(tmp_path.iterdir()) == []


def test_neighbours_are_those_of_greatest_cosine() -> None:
    found = some(40, 8)
    query = found.table_ND[11].astype(np.float64)
    lengths = np.linalg.norm(found.table_ND.astype(np.float64), axis=1)
    cosines = found.table_ND @ query / lengths / np.linalg.norm(query)
    order = [i for i in np.argsort(-cosines) if i != 11]
    near = found.nearest(found.words[11], 6)
    assert [word for word, _ in near] == [found.words[i] for i in order[:6]]
    assert [cosine for _, cosine in near] == pytest.approx(cosines[order[:6]], abs=1e-5)
    assert len(found.nearest("the", 1000)) == 39 and found.nearest("the", 0) == []


def test_an_analogy_adds_and_takes_off_directions() -> None:
    """Whatever lengths the vectors have: king − man + woman = queen in a world of two directions."""
    table = {"king": (2, 2, 0), "queen": (9, 0, 9), "man": (0, 3, 0), "woman": (0, 0, 0.5), "apple": (1, 1, 1)}
    found = WordVectors(list(table), np.array(list(table.values()), np.float32))
    assert found.nearest(["king", "woman"], 1, minus=["man"])[0].word == "queen"
    with pytest.raises(InputError, match="'kings' is none of the 5 words; did you mean 'king'"):
        found.nearest("kings")
    zero = WordVectors(["a", "b"], np.zeros((2, 3), np.float32))
    assert zero.nearest("a") == [("b", 0.0)]

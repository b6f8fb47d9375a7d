import contextlib
import gzip
import json
import lzma
import zipfile
from pathlib import Path

import pytest
import zstandard

from headway.data.readers import CHUNK, lines, read_pairs
from headway.errors import InputError


def write(path: Path, content: str | bytes) -> Path:
    raw = content.encode() if isinstance(content, str) else content
    pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress, ".xz": lzma.compress}.get(
        path.suffix, bytes
    )
    path.write_bytes(pack(raw))
    return path


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst", ".xz"])
def test_lines_end_only_at_newlines(tmp_path: Path, suffix: str) -> None:
    text = "\ufeffa\u2028b\x85\x0c\x1c\r\n\n\rc \r\r\nlast\ufeff"
    found = list(lines(write(tmp_path / f"t.txt{suffix}", text)))
    assert found == ["a\u2028b\x85\x0c\x1c", "", "\rc \r", "last\ufeff"]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst", ".xz"])
def test_lines_are_whole_where_chunks_meet(tmp_path: Path, suffix: str) -> None:
    expected = ["é" * length for length in (CHUNK // 2, CHUNK // 2 - 1, CHUNK * 2, 0, 1, CHUNK - 1)]
    assert list(lines(write(tmp_path / f"t{suffix}", "\r\n".join(expected)))) == expected


def test_packed_parts_one_after_the_other_are_one_text(tmp_path: Path) -> None:
    pack = zstandard.ZstdCompressor().compress
    (tmp_path / "t.zst").write_bytes(pack(b"a\nb") + pack(b"c\n"))
    (tmp_path / "t.gz").write_bytes(gzip.compress(b"a\nb") + gzip.compress(b"c\n"))
    assert list(lines(tmp_path / "t.zst")) == list(lines(tmp_path / "t.gz")) == ["a", "bc"]


def test_a_line_end_alone_is_one_empty_line(tmp_path: Path) -> None:
    assert list(lines(write(tmp_path / "t", "\n"))) == [""]


@pytest.mark.parametrize("content", ["", "\ufeff"])
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst", ".xz"])
def test_an_empty_file_is_refused(tmp_path: Path, suffix: str, content: str) -> None:
    with pytest.raises(InputError, match=r"file .*nothing.* is empty"):
        list(lines(write(tmp_path / f"nothing{suffix}", content)))


def test_bytes_that_are_not_utf8_are_refused_with_their_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"t\.en, line 2: not UTF-8 \(byte 0xe9 at 4\)"):
        list(lines(write(tmp_path / "t.en", b"fine\ncaf\xe9\n")))


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".xz"])
def test_a_packed_file_that_is_cut_or_is_none_is_refused(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"t{suffix}", "".join(f"{n * 7919 % 10007}\n" for n in range(9_000)))
    whole = path.read_bytes()
    for broken in (
        whole[: len(whole) // 2],
        whole[:-1],
        whole[:5],
        b"plain text\n" * 9,
        whole + b"junk after it",
    ):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=rf"t{suffix} is not a whole {suffix}"):
            list(lines(path))


def test_a_missing_file_and_a_folder_are_refused_at_once(tmp_path: Path) -> None:
    write(tmp_path / "train.en", "a")
    with pytest.raises(InputError, match=r"no file .*trian\.en; did you mean 'train\.en'"):
        lines(tmp_path / "trian.en")
    with pytest.raises(InputError, match=r"no file .*none\.en$"):
        lines(tmp_path / "none.en")  # that both end with .en makes them no more alike
    with pytest.raises(InputError, match="is a folder"):
        lines(tmp_path)
    with pytest.raises(InputError, match="no file"):
        read_pairs([tmp_path / "train.en", tmp_path / "nowhere" / "x"])


def test_aligned_files_several_after_each_other(tmp_path: Path) -> None:
    files = [write(tmp_path / name, f"{name} 1\n\n") for name in ("a.en", "a.de.gz", "b.en.zst", "b.de")]
    assert list(read_pairs(files)) == [("a.en 1", "a.de.gz 1"), ("", ""), ("b.en.zst 1", "b.de 1"), ("", "")]


@pytest.mark.parametrize(("source", "target"), [(5, 3), (3, 5), (4, 3), (3, 4)])
def test_aligned_files_of_different_length_are_refused_with_both_counts(
    tmp_path: Path, source: int, target: int
) -> None:
    files = [write(tmp_path / "a.en", "x\n" * source), write(tmp_path / "a.de", "y\n" * target)]
    with pytest.raises(InputError, match=rf"a\.en has {source} lines, .*a\.de {target}: "):
        list(read_pairs(files))


@pytest.mark.parametrize("name", ["p.tsv", "p.tsv.gz", "P.TSV", "p.tsv.zst"])
def test_tsv_takes_two_columns(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, "a\tb\tCC BY 2.0\tmore\nc \t\n")
    assert list(read_pairs([path])) == list(read_pairs(path)) == [("a", "b"), ("c ", "")]  # type: ignore[arg-type]


def test_tsv_line_without_a_tab_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"p\.tsv, line 2: no tab"):
        list(read_pairs([write(tmp_path / "p.tsv", "a\tb\nc d\n")]))


@pytest.mark.parametrize(
    ("record", "keys"),
    [
        ({"source": "a", "target": "b"}, {}),
        ({"en": "a", "de": "b"}, {"source": "en", "target": "de"}),
        ({"translation": {"en": "a", "de": "b"}}, {"source": "en", "target": "de"}),
        ({"translation": "b", "text": "a"}, {"source": "text", "target": "translation"}),
    ],
)
def test_jsonl_in_its_usual_shapes(tmp_path: Path, record: object, keys: dict[str, str]) -> None:
    path = write(tmp_path / "p.jsonl.gz", json.dumps(record) + "\n")
    assert list(read_pairs([path], **keys)) == [("a", "b")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[1]", "list, expected an object"),
        ('{"en": "a", "de": "b"}', "no key 'source'; there is: de, en"),
        ('{"sorce": "a", "target": "b"}', "did you mean 'sorce'"),
        ('{"source": "a", "target": null}', "'target' is NoneType"),
        ('{"source": "a", "target": "\\ud800"}', "surrogate"),
    ],
)
def test_bad_jsonl_is_refused_with_its_line(tmp_path: Path, row: str, message: str) -> None:
    path = write(tmp_path / "p.jsonl", f'{{"source": "a", "target": "b"}}\n{row}\n')
    with pytest.raises(InputError, match=rf"p\.jsonl, line 2: .*{message}"):
        list(read_pairs([path]))


def zipped(path: Path, members: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def test_zip_of_one_text_beside_notes(tmp_path: Path) -> None:
    notes = {"_about.txt": "no tabs", "__MACOSX/fra.txt": "junk"}
    text = zipped(tmp_path / "a.zip", {**notes, "fra.txt": "Go.\tVa !\nRun!\tCours\u202f!\n"})
    rows = zipped(tmp_path / "b.zip", {"in/rows.jsonl": '{"source": "a", "target": "b"}\n'})
    assert list(read_pairs([text, rows])) == [("Go.", "Va !"), ("Run!", "Cours\u202f!"), ("a", "b")]


def test_a_zip_of_anything_else_is_refused(tmp_path: Path) -> None:
    for members in ({}, {"a.txt": "a\tb", "b.txt": "a\tb"}, {"a.en": "a"}):
        with pytest.raises(InputError, match=r"x\.zip holds"):
            list(read_pairs([zipped(tmp_path / "x.zip", members)]))
    with pytest.raises(InputError, match=r"x\.zip/a\.txt, line 1: no tab"):
        list(read_pairs([zipped(tmp_path / "x.zip", {"a.txt": "one sentence"})]))
    with pytest.raises(InputError, match=r"x\.zip is not a whole"):
        list(read_pairs([write(tmp_path / "x.zip", "PK no")]))


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["a.txt"],
        ["a.en", "a.de", "b.en"],
        ["a.en", "a.tsv"],
        ["a.json"],
        ["a.csv", "b.csv"],
        ["a.zip.gz"],
        ["a.tar.gz", "b.tar.gz"],
    ],
)
def test_files_of_unclear_meaning_are_refused_with_what_is_accepted(tmp_path: Path, names: list[str]) -> None:
    files = [write(tmp_path / name, "a\tb\n") for name in names]
    with pytest.raises(InputError, match="give two aligned text files"):
        read_pairs(files)


def test_a_name_in_an_archive_is_never_a_path(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("../../x.txt", "/x.txt"):
        archive = zipped(tmp_path / "in" / "a.zip", {name: "Go.\tVa !\n", "y.txt": "Stop.\tArrête !\n"})
        before = sorted(tmp_path.rglob("*"))
        with contextlib.suppress(InputError):
            assert list(read_pairs([archive])) == [("Stop.", "Arrête !")]
        assert sorted(tmp_path.rglob("*")) == before and not Path("/x.txt").exists()

"""Held-out pairs: every pair lands in one part, all pairs of a source in the same, whatever the text holds."""

import json

import pytest

from headway.data.readers import read_pairs
from headway.data.split import PARTS, split_corpus
from headway.errors import InputError


def jsonl(path, pairs):
    path.write_text("".join(json.dumps({"a": a, "b": b}) + "\n" for a, b in pairs), encoding="utf-8")
    return [path]


def split(folder, files, hold_out=40, source="a", target="b"):
    found = split_corpus(files, folder / "parts", hold_out, source, target)
    assert tuple(found) == PARTS
    return {part: list(read_pairs(paths)) for part, paths in found.items()}


def test_every_pair_is_in_one_part_and_a_source_never_in_two(tmp_path):
    pairs = [(f"sentence {n // 2}", f"satz {n}") for n in range(1000)]
    parts = split(tmp_path, jsonl(tmp_path / "x.jsonl", pairs))
    assert sorted(pair for part in parts.values() for pair in part) == sorted(pairs)
    sources = [{source for source, _ in part} for part in parts.values()]
    assert sum(map(len, sources)) == len(set.union(*sources)) == 500
    assert all(15 <= len(parts[part]) <= 80 for part in ("valid", "test"))


def test_a_line_break_inside_a_text_shifts_no_pair(tmp_path):
    pairs = [(f"one\n{n}", f"eins {n}") for n in range(300)]
    parts = split(tmp_path, jsonl(tmp_path / "x.jsonl", pairs))
    found = [pair for part in parts.values() for pair in part]
    assert len(found) == 300 and all(a.split()[-1] == b.split()[-1] for a, b in found)


def test_both_sides_may_be_in_one_language(tmp_path):
    (tmp_path / "x.txt").write_text("".join(f"long {n}\n" for n in range(300)))
    (tmp_path / "y.txt").write_text("".join(f"short {n}\n" for n in range(300)))
    parts = split(tmp_path, [tmp_path / "x.txt", tmp_path / "y.txt"], source="en", target="en")
    assert all(a == b.replace("short", "long") for part in parts.values() for a, b in part)


def test_too_few_pairs_are_refused(tmp_path):
    with pytest.raises(InputError, match="9 pairs are too few to hold some out: give --valid"):
        split(tmp_path, jsonl(tmp_path / "x.jsonl", [(str(n), str(n)) for n in range(9)]))

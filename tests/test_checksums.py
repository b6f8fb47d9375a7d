"""Checksums: every flipped bit, cut or missing file is found; large files may be left out."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from headway import checksums
from headway.errors import InputError

WORDS = 3 * checksums.CHUNK + 12345


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.json").write_text('{"a": 1}')
    (tmp_path / "empty").touch()
    (tmp_path / "large.bin").write_bytes(torch.randint(-(2**62), 2**62, (WORDS,)).numpy().tobytes() + b"tail")
    checksums.write(tmp_path, ["small.json", "empty", "large.bin"])
    return tmp_path


def test_whole_files_pass(folder: Path) -> None:
    assert checksums.verify(folder) == 3
    with checksums.unverified():
        assert checksums.verify(folder) == 2


@pytest.mark.parametrize("seed", range(20))
def test_any_flipped_bit_is_found(folder: Path, seed: int) -> None:
    dice = random.Random(seed)
    path = folder / dice.choice(["small.json", "large.bin"])
    data = bytearray(path.read_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(data)
    with pytest.raises(InputError, match="was changed after it was written"):
        checksums.verify(folder)


def test_chunks_in_another_order_and_cut_files_are_found(folder: Path) -> None:
    data, size = (folder / "large.bin").read_bytes(), 8 * checksums.CHUNK
    for changed in (data[size : 2 * size] + data[:size] + data[2 * size :], data[:-1], data + b"x", b""):
        (folder / "large.bin").write_bytes(changed)
        with pytest.raises(InputError, match="was changed"):
            checksums.verify(folder)
    (folder / "large.bin").unlink()
    with pytest.raises(InputError, match="is missing"):
        checksums.verify(folder)


def test_a_folder_without_checksums_has_nothing_to_compare(tmp_path: Path) -> None:
    assert checksums.verify(tmp_path) == 0


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"files": 3}', '{"files": {"x": 3}}', '{"files": {"x": {"bytes": "a", "sum": 1}}}']
)
def test_damaged_checksums_are_one_line(folder: Path, text: str) -> None:
    (folder / checksums.NAME).write_text(text)
    with pytest.raises(InputError, match="checksums"):
        checksums.verify(folder)


def test_names_do_not_lead_out_of_the_folder(folder: Path) -> None:
    text = (folder / checksums.NAME).read_text().replace("small.json", "../../etc/small.json")
    (folder / checksums.NAME).write_text(text)
    assert checksums.verify(folder) == 3  # the name alone counts

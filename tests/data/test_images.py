"""Pictures from files and folders, and their batches."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from headway.data.images import ImageBatches, hold_out_pictures, picture, read_idx, read_pictures
from headway.errors import InputError
from headway.processors.image import ImageConfig

RNG = np.random.default_rng(2)


def write_idx(path: Path, array: np.ndarray) -> Path:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()) if path.suffix == ".gz" else header + array.tobytes())
    return path


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_idx_files_give_their_arrays(tmp_path: Path, ending: str) -> None:
    pixels = RNG.integers(0, 256, (7, 5, 4), dtype=np.uint8)
    images = write_idx(tmp_path / f"t-images-idx3-ubyte{ending}", pixels)
    write_idx(tmp_path / f"t-labels-idx1-ubyte{ending}", np.array([3, 1, 1, 0, 2, 3, 10], np.uint8))
    found = read_pictures([images], 1, (5, 4))
    assert np.array_equal(found.pixels_NCHW[:, 0], pixels) and found.labels == ("3", "1", "1", "0", "2", "3", "10")
    (tmp_path / "cut").write_bytes(images.read_bytes()[:-3])
    with pytest.raises(InputError, match="cut|cannot be read"):
        read_idx(tmp_path / "cut")


def test_folders_by_class_are_read_as_pillow_reads_them(tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (6, 5, 3), dtype=np.uint8)
    for name in ("cat/a.png", "dog/b.png"):
        (tmp_path / name).parent.mkdir()
        Image.fromarray(pixels).save(tmp_path / name)
    (tmp_path / "dog" / "notes.txt").write_text("no picture")
    found = read_pictures([tmp_path], 3, (6, 5))
    assert found.labels == ("cat", "dog") and np.array_equal(found.pixels_NCHW[1].transpose(1, 2, 0), pixels)
    smaller = picture(tmp_path / "cat" / "a.png", 1, (3, 2))
    wanted = Image.fromarray(pixels).convert("L").resize((2, 3), Image.Resampling.BILINEAR)
    assert np.array_equal(smaller[0], np.asarray(wanted)) and np.array_equal(picture(pixels, 1, (3, 2)), smaller)


def test_what_is_no_picture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("text")
    for value, line in (
        (tmp_path / "a.png", "no picture that can be read"), (tmp_path / "b.png", "there is no picture"),
        (np.zeros((3, 3)), "array of bytes"), (np.zeros((3, 3, 4), np.uint8), "array of bytes"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=line):
            picture(value, 1, (3, 3))


def test_a_processor_gives_normalised_pixels_and_takes_them_back(tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (4, 6, 3), dtype=np.uint8)
    processor = ImageConfig(3, 4, 6, (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)).open(tmp_path)
    [found] = processor.encode([pixels])
    scaled = torch.from_numpy(pixels).permute(2, 0, 1) / 255
    wanted = (scaled - torch.tensor([0.4, 0.5, 0.6])[:, None, None]) / torch.tensor([0.2, 0.3, 0.4])[:, None, None]
    torch.testing.assert_close(torch.from_numpy(found), wanted)
    assert np.array_equal(processor.decode([found])[0], pixels)
    assert processor.track(2) == ("[class]", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2")


def test_batches_are_a_function_of_seed_and_step() -> None:
    pixels, labels = RNG.integers(1, 256, (10, 1, 6, 6), dtype=np.uint8), np.arange(10)

    def made(**how: object) -> ImageBatches:
        return ImageBatches(pixels, labels, lambda x: x.astype(np.float32), 4, **{"seed": 5} | how)  # type: ignore

    one, other = made(shift=2, flip=True), made(shift=2, flip=True)
    later = [other.batch(step) for step in (7, 2)]
    for batch, step in zip(later, (7, 2), strict=True):
        assert torch.equal(one.batch(step).inputs.pixels_BCHW, batch.inputs.pixels_BCHW)
    assert sorted(i for batch in one.epoch(1) for i in batch.labels_B.tolist()) == list(range(10))
    assert [b.labels_B.tolist() for b in one.epoch(0)] != [b.labels_B.tolist() for b in one.epoch(1)]
    plain = next(made(shuffle=False).epoch())
    assert torch.equal(plain.inputs.pixels_BCHW, torch.from_numpy(pixels[:4]).float())
    last = list(made(full=True).epoch())[-1]
    assert len(last) == 4 and last.tokens == 2 and last.labels_B.tolist()[2:] == [-1, -1]


def test_moved_pictures_are_windows_of_the_padded_picture() -> None:
    pixels = RNG.integers(1, 256, (3, 1, 5, 5), dtype=np.uint8)
    batches = ImageBatches(pixels, np.arange(3), lambda x: x.astype(np.float32), 3, 1, False, shift=1, flip=True)
    for step in range(6):
        for row, found in enumerate(batches.batch(step).inputs.pixels_BCHW[:, 0].numpy()):
            wide = np.pad(pixels[row, 0], 1)
            windows = [wide[y : y + 5, x : x + 5] for y in range(3) for x in range(3)]
            assert any(np.array_equal(found, one) for w in windows for one in (w, w[:, ::-1]))


def test_equal_pictures_are_held_out_together(tmp_path: Path) -> None:
    pixels = np.repeat(RNG.integers(0, 256, (20, 3, 3), dtype=np.uint8), 2, axis=0)
    images = write_idx(tmp_path / "t-images-idx3-ubyte", pixels)
    write_idx(tmp_path / "t-labels-idx1-ubyte", np.zeros(40, np.uint8))
    train, held = hold_out_pictures(read_pictures([images], 1, (3, 3)), 0.25)
    assert (len(train), len(held)) == (30, 10)
    assert not {p.tobytes() for p in train.pixels_NCHW} & {p.tobytes() for p in held.pixels_NCHW}


def test_a_damaged_packed_file_is_told_in_one_line(tmp_path: Path) -> None:
    """Every byte flipped of pictures that pack well: the unpacker's own errors are told too."""
    path = write_idx(tmp_path / "t-images-idx3-ubyte.gz", np.zeros((20, 8, 8), np.uint8))
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            read_idx(path)
        except InputError as error:
            assert path.name in str(error) and "\n" not in str(error)

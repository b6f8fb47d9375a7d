"""Pictures from files and folders, and their batches."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from headway.data.image_files import picture
from headway.data.images import ImageBatches, hold_out_pictures, read_idx, read_pictures
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


@pytest.mark.parametrize("shape", [(6, 5, 3), (6, 5, 1), (6, 5)])
def test_an_array_that_fits_is_taken_as_pillow_reads_it(shape: tuple[int, ...]) -> None:
    pixels = RNG.integers(0, 256, shape, dtype=np.uint8)
    seen = Image.fromarray(pixels if shape[2:] == (3,) else pixels.reshape(6, 5))
    for channels in (1, 3):
        found = picture(pixels, channels, (6, 5))
        assert found.shape == (channels, 6, 5) and np.array_equal(found, picture(seen, channels, (6, 5)))


def test_what_is_no_picture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("text")
    for value, line in (
        (tmp_path / "a.png", "no picture that can be read"), (tmp_path / "b.png", "there is no picture"),
        (np.zeros((3, 3)), "array of bytes"), (np.zeros((3, 3, 5), np.uint8), "array of bytes"),
        (np.zeros((0, 3), np.uint8), "array of bytes"), (tmp_path, "is a folder"),
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
    assert processor.track((2, 2)) == ("[class]", "0,0", "0,1", "1,0", "1,1")
    assert processor.track((1, 1), 2) == ("[class]", "[distilled]", "0,0") and processor.track((1, 1), 0) == ("0,0",)


def test_batches_are_a_function_of_seed_and_step() -> None:
    pixels, labels = RNG.integers(1, 256, (10, 1, 6, 6), dtype=np.uint8), np.arange(10)
    mean_C11, std_C11 = np.zeros((1, 1, 1), np.float32), np.ones((1, 1, 1), np.float32)

    def made(**how: object) -> ImageBatches:
        return ImageBatches(pixels, labels, mean_C11, std_C11, 4, **{"seed": 5} | how)  # type: ignore

    one, other = made(), made()
    later = [other.batch(step) for step in (7, 2)]
    for batch, step in zip(later, (7, 2), strict=True):
        assert torch.equal(one.batch(step).inputs.pixels_BCHW, batch.inputs.pixels_BCHW)
    assert sorted(i for batch in one.epoch(1) for i in batch.labels_B.tolist()) == list(range(10))
    assert [b.labels_B.tolist() for b in one.epoch(0)] != [b.labels_B.tolist() for b in one.epoch(1)]
    plain = next(made(shuffle=False).epoch())
    torch.testing.assert_close(plain.inputs.pixels_BCHW, torch.from_numpy(pixels[:4]).float())
    last = list(made(full=True).epoch())[-1]
    assert len(last) == 4 and last.tokens == 2 and last.labels_B.tolist()[2:] == [-1, -1]


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


WHITE, RED = (255, 255, 255), (255, 0, 0)


def colour_of(image: Image.Image, path: Path, **how: object) -> tuple[int, ...]:
    """Of the middle pixel of a saved picture, scaled to 4 × 4."""
    image.save(path, **how)  # type: ignore[arg-type]
    return tuple(picture(path, 3, (4, 4))[:, 2, 2].tolist())


@pytest.mark.parametrize("suffix", [".png", ".webp", ".avif", ".bmp", ".tiff", ".gif", ".jpg", ".JPEG"])
def test_every_format_is_read(tmp_path: Path, suffix: str) -> None:
    found = colour_of(Image.new("RGB", (9, 7), (200, 40, 90)), tmp_path / f"a{suffix}")
    assert np.abs(np.array(found) - (200, 40, 90)).max() <= 8
    (tmp_path / "red").mkdir()
    (tmp_path / f"a{suffix}").rename(tmp_path / "red" / f"a{suffix}")
    assert read_pictures([tmp_path], 3, (4, 4)).labels == ("red",)


def test_colours_of_every_kind_of_picture_are_what_one_sees(tmp_path: Path) -> None:
    assert colour_of(Image.new("RGBA", (5, 5), (255, 0, 0, 0)), tmp_path / "clear.png") == WHITE
    assert colour_of(Image.new("RGBA", (5, 5), (*RED, 255)), tmp_path / "solid.png") == RED
    assert colour_of(Image.new("LA", (5, 5), (0, 0)), tmp_path / "grey.png") == WHITE
    assert colour_of(Image.new("P", (5, 5), 0), tmp_path / "clear.gif", transparency=0) == WHITE
    assert colour_of(Image.new("1", (5, 5), 1), tmp_path / "bits.png") == WHITE
    assert colour_of(Image.new("CMYK", (5, 5), (0, 255, 255, 0)), tmp_path / "ink.tiff") == RED
    high = Image.fromarray(np.full((5, 5), 128 * 257, np.uint16))
    assert colour_of(high, tmp_path / "16.png") == (128, 128, 128)
    assert colour_of(Image.new("RGB", (1, 1), RED), tmp_path / "one.png") == RED
    with pytest.raises(InputError, match="floating point"):
        colour_of(Image.new("F", (5, 5)), tmp_path / "f.tiff")


def test_a_photograph_is_turned_as_its_camera_says(tmp_path: Path) -> None:
    image = Image.new("RGB", (8, 4))
    image.paste(RED, (0, 0, 4, 4))
    exif = image.getexif()
    exif[0x0112] = 6  # turn it by 90 degrees
    image.save(tmp_path / "a.png", exif=exif)
    found = picture(tmp_path / "a.png", 3, (8, 4))
    assert found[0, 0].tolist() == [255] * 4 and found[0, 7].tolist() == [0] * 4


def test_the_middle_is_taken_of_a_larger_square() -> None:
    pixels = RNG.integers(0, 256, (9, 13, 3), dtype=np.uint8)
    found = picture(pixels, 3, (6, 6), "bicubic", edge=8)
    wanted = Image.fromarray(pixels).resize((8, 8), Image.Resampling.BICUBIC).crop((1, 1, 7, 7))
    assert np.array_equal(found.transpose(1, 2, 0), np.asarray(wanted))


def test_a_picture_that_would_fill_the_memory_is_refused_unopened(tmp_path: Path) -> None:
    """100,000 × 100,000 pixels, said by the header of a PNG of a few bytes."""
    Image.new("1", (1, 1)).save(tmp_path / "small.png")
    raw = (tmp_path / "small.png").read_bytes()
    header = b"IHDR" + (100_000).to_bytes(4, "big") * 2 + raw[24:29]
    (tmp_path / "bomb.png").write_bytes(raw[:12] + header + zlib.crc32(header).to_bytes(4, "big") + raw[33:])
    with pytest.raises(InputError, match=r"bomb\.png is too large .*: scale it down first"):
        picture(tmp_path / "bomb.png", 3, (4, 4))


def broken_among(place: Path) -> Path:
    """Eleven pictures of two kinds, of which one is cut short."""
    for number in range(11):
        path = place / "ab"[number % 2] / f"{number:02}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(RNG.integers(0, 256, (30, 30, 3), dtype=np.uint8)).save(path)
    cut = place / "a" / "04.jpg"
    cut.write_bytes(cut.read_bytes()[:300])
    return cut


def test_a_broken_picture_is_named_and_refused_or_left_out(tmp_path: Path) -> None:
    cut = broken_among(tmp_path)
    with pytest.raises(InputError, match=r"04\.jpg is no whole picture"):
        read_pictures([tmp_path], 3, (8, 8))
    said: list[str] = []
    found = read_pictures([tmp_path], 3, (8, 8), "skip", said.append)
    assert said == [f"left out 1 of 11 pictures that cannot be read: {cut}"]
    assert len(found) == len(found.pixels_NCHW) == 10 and str(cut) not in found.names
    assert np.array_equal(found.pixels_NCHW[2], picture(tmp_path / "a" / "06.jpg", 3, (8, 8)))
    for path in tmp_path.glob("*/*.jpg"):
        path.write_bytes(b"no picture")
    with pytest.raises(InputError, match="there is no picture in it"):
        read_pictures([tmp_path], 3, (8, 8), "skip")


@pytest.mark.parametrize("text", ["path,kind\nx/a.png,cat\nb.png,dog\n", "x/a.png,cat\nb.png,dog\n",
                                  "id,label,file\n1,cat,x/a.png\n2,dog,b.png\n"])  # fmt: skip
def test_a_table_names_pictures_from_its_own_folder_on(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").mkdir()
    for name, colour in (("x/a.png", RED), ("b.png", WHITE)):
        Image.new("RGB", (4, 4), colour).save(tmp_path / name)
    (tmp_path / "all.csv").write_text(text)
    found = read_pictures([tmp_path / "all.csv"], 3, (4, 4))
    assert found.labels == ("cat", "dog") and found.pixels_NCHW[:, :, 0, 0].tolist() == [[*RED], [*WHITE]]
    (tmp_path / "none.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="no column has paths of pictures"):
        read_pictures([tmp_path / "none.csv"], 3, (4, 4))


def test_arrays_are_read_from_a_npz(tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (5, 6, 4, 3), dtype=np.uint8)
    np.savez_compressed(tmp_path / "a.npz", x=pixels, y=np.array([1, 0, 2, 1, 1]))
    found = read_pictures([tmp_path / "a.npz"], 3, (6, 4))
    assert np.array_equal(found.pixels_NCHW, pixels.transpose(0, 3, 1, 2)) and found.labels == tuple("10211")
    np.savez(tmp_path / "b.npz", x=pixels, y=np.arange(4))
    np.savez(tmp_path / "c.npz", x=np.array([{}], object), y=np.arange(4))
    (tmp_path / "d.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:200])
    for name, line in (("b", "one array of pictures"), ("c", "no whole .npz"), ("d", "no whole .npz")):
        with pytest.raises(InputError, match=line):
            read_pictures([tmp_path / f"{name}.npz"], 3, (6, 4))
    with pytest.raises(InputError, match="no folder of pictures"):
        (tmp_path / "e.txt").write_text("a")
        read_pictures([tmp_path / "e.txt"], 3, (6, 4))


def test_a_table_of_one_row_and_one_without_a_label(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), RED).save(tmp_path / "b.png")
    one = {"label": "dog", "path": "b.png"}
    (tmp_path / "one.jsonl").write_text(json.dumps(one) + "\n")
    (tmp_path / "one.csv").write_text("dog,b.png\n")
    for name in ("one.jsonl", "one.csv"):
        assert read_pictures([tmp_path / name], 3, (4, 4)).labels == ("dog",)
    rows = [one, one, one | {"label": None}]
    (tmp_path / "no.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=r"no\.jsonl, line 3: there is no label"):
        read_pictures([tmp_path / "no.jsonl"], 3, (4, 4))

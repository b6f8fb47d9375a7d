"""The pictures are whole files of a sensible size, quiet about odd letters, and clear about wrong input."""

import re
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest

from headway.errors import InputError
from headway.explore.picture import alignment_picture, alignment_text, heads_picture
from headway.explore.plots import SHADES

RED_CAR = np.array([[0.9, 0.06, 0.04], [0.02, 0.05, 0.93], [0.1, 0.5, 0.4]])
SOURCE, TARGET = ["the", "red", "car"], ["la", "voiture", "rouge"]


def png_size(path: Path) -> tuple[int, int]:
    """Width and height from the header that every PNG starts with."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def words(count: int) -> list[str]:
    return [f"word{index}" for index in range(count)]


def diagonal(target_size: int, source_size: int) -> np.ndarray:
    return np.eye(target_size, source_size) * 0.8 + 0.2 / source_size


def test_text_names_the_strongest_source_word_and_a_close_second():
    assert alignment_text(RED_CAR, SOURCE, TARGET).splitlines() == [
        "la      ← the 0.90 █████████",
        "voiture ← car 0.93 █████████▎",
        "rouge   ← red 0.50 █████       car 0.40",
    ]


def test_text_columns_line_up_for_wide_letters_and_a_word_without_weight_is_told():
    weights_TS = np.array([[1.0, 0.0], [0.0, 0.0]])
    assert alignment_text(weights_TS, ["car", "."], ["汽车", "of"]).splitlines() == [
        "汽车 ← car 1.00 ██████████",
        "of   ← –",
    ]


def test_the_picture_shows_the_darkest_shade_where_the_weight_is_and_nothing_else_dark(tmp_path):
    from matplotlib.colors import to_rgb
    from matplotlib.image import imread

    weights_TS = np.zeros((2, 4))
    weights_TS[1, 2] = 1.0
    pixels = imread(alignment_picture(weights_TS, words(4), words(2), tmp_path / "one.png"))[..., :3]
    dark_YX = np.abs(pixels - to_rgb(SHADES[-1])).max(axis=-1) < 0.02
    cell_area = (0.42 * 160) ** 2
    assert 0.8 * cell_area < dark_YX.sum() < 1.1 * cell_area


def test_the_picture_grows_with_the_sentence_and_long_sentences_get_smaller_cells(tmp_path):
    sizes = {
        count: png_size(
            alignment_picture(diagonal(count, count), words(count), words(count), tmp_path / f"{count}.png")
        )
        for count in (3, 20, 60)
    }
    assert sizes[3][0] < sizes[20][0] < sizes[60][0] < 2800
    assert sizes[60][0] < 60 / 20 * sizes[20][0]
    wide, high = png_size(alignment_picture(diagonal(4, 16), words(16), words(4), tmp_path / "wide.png"))
    assert wide > 1.5 * high


def test_gold_links_and_a_title_are_drawn(tmp_path):
    plain = alignment_picture(RED_CAR, SOURCE, TARGET, tmp_path / "plain.svg").read_text()
    marked = alignment_picture(
        RED_CAR, SOURCE, TARGET, tmp_path / "marked.svg", gold={(0, 0)}, possible={(0, 0), (2, 1)}
    ).read_text()
    # One square and one ring in the grid (a sure link is not drawn twice), one of each in the key.
    assert "#e8772e" not in plain and marked.count("stroke: #e8772e") == 4
    titled = alignment_picture(RED_CAR, SOURCE, TARGET, tmp_path / "titled.png", title="Layer 4, head 2")
    untitled = alignment_picture(RED_CAR, SOURCE, TARGET, tmp_path / "untitled.png")
    assert png_size(titled)[1] > png_size(untitled)[1] + 20


@pytest.mark.parametrize("suffix", [".png", ".svg", ".SVG", ".pdf"])
def test_letters_of_every_kind_raise_no_warning(tmp_path, suffix):
    odd = ["汽车", "👩‍👩‍👧", "$x^2$", "\\frac{", "a\tb\n", "", "नमस्ते", "\x07", "x" * 80]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alignment_picture(diagonal(9, 9), odd, odd, tmp_path / f"odd{suffix}", title="汽车 $ cost")
        heads_picture(np.stack([[diagonal(9, 9)]]), odd, odd, tmp_path / f"heads{suffix}", best=(0, 0))


def test_the_same_picture_is_the_same_file_and_leaves_no_other_behind(tmp_path):
    names = [f"{letter}.{kind}" for letter in "ab" for kind in ("pdf", "png", "svg")]
    for name in names:
        alignment_picture(RED_CAR, SOURCE, TARGET, tmp_path / name, gold={(0, 0)})
    for kind in ("pdf", "png", "svg"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_an_unfinished_picture_never_replaces_the_old_one(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    def break_off(figure, name, **options):
        Path(name).write_bytes(b"half")
        raise OSError("disk full")

    path = tmp_path / "kept.png"
    path.write_bytes(b"old")
    monkeypatch.setattr(Figure, "savefig", break_off)
    with pytest.raises(OSError, match="disk full"):
        alignment_picture(RED_CAR, SOURCE, TARGET, path)
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_heads_picture_grows_with_layers_and_heads_and_outlines_the_best_only_when_there_is_one(tmp_path):
    one = np.broadcast_to(RED_CAR, (1, 1, 3, 3))
    many = np.broadcast_to(RED_CAR, (3, 5, 3, 3))
    small = png_size(heads_picture(one, SOURCE, TARGET, tmp_path / "one.png"))
    large = png_size(heads_picture(many, SOURCE, TARGET, tmp_path / "many.png"))
    assert large[0] > 2 * small[0] and large[1] > 1.7 * small[1]
    plain = heads_picture(many, SOURCE, TARGET, tmp_path / "plain.svg").read_text()
    chosen = heads_picture(many, SOURCE, TARGET, tmp_path / "best.svg", best=(2, 4)).read_text()
    assert "#e8772e" not in plain and "#e8772e" in chosen
    named = sorted(re.findall(r"<!-- ((?:layer|head) \d+) -->", plain))
    assert named == [*(f"head {n}" for n in range(5)), *(f"layer {n}" for n in range(3))]


def test_wrong_input_is_told_in_one_line(tmp_path):
    good = tmp_path / "a.png"
    with pytest.raises(InputError, match=r"\(3, 3\) does not fit 2 target and 3 source"):
        alignment_picture(RED_CAR, SOURCE, TARGET[:2], good)
    with pytest.raises(InputError, match=r"\.png, \.svg or \.pdf"):
        alignment_picture(RED_CAR, SOURCE, TARGET, tmp_path / "a.gif")
    with pytest.raises(InputError, match="no folder"):
        alignment_picture(RED_CAR, SOURCE, TARGET, tmp_path / "nowhere" / "a.png")
    with pytest.raises(InputError, match="link 3-0 is outside"):
        alignment_picture(RED_CAR, SOURCE, TARGET, good, gold={(3, 0)})
    with pytest.raises(InputError, match="NaN"):
        alignment_text(np.full((3, 3), np.nan), SOURCE, TARGET)
    with pytest.raises(InputError, match="nothing to show"):
        alignment_text(np.zeros((0, 0)), [], [])
    with pytest.raises(InputError, match="layers, heads, target, source"):
        heads_picture(RED_CAR, SOURCE, TARGET, good)
    with pytest.raises(InputError, match=r"best head \(1, 0\) is outside"):
        heads_picture(RED_CAR[None, None], SOURCE, TARGET, good, best=(1, 0))
    assert not good.exists()

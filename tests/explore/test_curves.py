"""Curves are drawn where the numbers are, runs can be told apart, and wrong input is one line."""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path

import pytest

from headway.errors import InputError
from headway.explore.curves import breakdown_picture, comparison_picture, curves_picture
from headway.explore.plots import COLOURS
from headway.train.comparison import Entry
from headway.train.history import History

DRAWN = re.compile(r'<path d="([^"]*)"[^>]*clip-path[^>]*?stroke: (#[0-9a-f]{6})', re.DOTALL)


def a_run(last: int = 200, bleu: bool = True, lift: float = 0.0) -> History:
    steps = range(10, last + 1, 10)
    curves = {
        ("train", "rate"): [(step, step / 1e5) for step in steps],
        ("train", "loss"): [(step, lift + 9 / step) for step in steps],
        ("train", "gradient"): [(step, 1.0) for step in steps],
        ("train", "tokens_per_second"): [(step, 1e5) for step in steps],
        ("validation", "loss"): [(step, lift + 10 / step) for step in steps if step % 50 == 0],
    }
    if bleu:
        curves[("validation", "bleu")] = [(step, lift + step / 10) for step in steps if step % 50 == 0]
    return History(curves)


def lines(path: Path) -> list[tuple[int, str]]:
    """The points and the colour of every curve that an SVG has, the paler grid left out."""
    found = [(len(re.findall("[ML]", way)), colour) for way, colour in DRAWN.findall(path.read_text())]
    return [(points, colour) for points, colour in found if colour in COLOURS]


def test_every_value_has_its_panel_and_every_point_its_place(tmp_path: Path) -> None:
    drawn = lines(curves_picture({"one": a_run()}, tmp_path / "a.svg"))
    # loss in training and validation, BLEU, rate, gradient, speed; a straight line may be drawn with fewer points
    assert len(drawn) == 6 and {colour for _, colour in drawn} == {COLOURS[0]}
    assert drawn[0][0] == 20 and drawn[1][0] == 4


def test_a_value_alone_is_one_panel(tmp_path: Path) -> None:
    runs = {"one": a_run(), "two": a_run(lift=1.0)}
    assert len(lines(curves_picture(runs, tmp_path / "a.svg", value="bleu"))) == 2
    assert len(lines(curves_picture(runs, tmp_path / "a.svg", value="loss"))) == 4
    assert len(lines(curves_picture(runs, tmp_path / "a.svg", value="gradient"))) == 2


def test_a_run_without_a_score_has_no_panel_for_it(tmp_path: Path) -> None:
    assert len(lines(curves_picture({"one": a_run(bleu=False)}, tmp_path / "a.svg"))) == 5


def test_runs_have_colours_in_the_order_given_and_dashes_when_these_are_used_up(tmp_path: Path) -> None:
    runs = {f"run {number}": a_run(lift=number) for number in range(len(COLOURS) + 1)}
    path = curves_picture(runs, tmp_path / "a.svg", value="rate")
    assert [colour for _, colour in lines(path)] == [*COLOURS, COLOURS[0]]
    text = path.read_text()
    assert text.count("stroke-dasharray") == 2  # the line and its key


def test_a_gap_is_left_where_a_value_is_no_number_and_a_point_between_gaps_is_seen(tmp_path: Path) -> None:
    values = [1.0, 2.0, math.nan, 2.0, math.inf, 1.0, 2.0]
    history = History({("train", "loss"): list(enumerate(values, 1))})
    text = curves_picture({"one": history}, tmp_path / "a.svg").read_text()
    [way] = [way for way, colour in DRAWN.findall(text) if colour in COLOURS]
    assert re.findall("[ML]", way) == ["M", "L", "M", "M", "L"]  # two lines, and a pen that is put down between them
    assert len(re.findall(rf"<use [^>]*fill: {COLOURS[0]}", text)) == 1


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_odd_names_and_odd_numbers_raise_no_warning(tmp_path: Path, suffix: str) -> None:
    nothing = History({("train", "loss"): [(1, math.nan)], ("train", "gradient"): [(1, 0.0)]})
    peak = History({("train", "gradient"): [(step, 1e9 if step == 3 else 0.1) for step in range(1, 9)]})
    one = History({("validation", "bleu"): [(1, 0.0)], ("train", "tokens_per_second"): [(1, 1e12)]})
    runs = {"_hidden": nothing, "$x^2$ 汽车 👩‍👩‍👧": peak, "x" * 300: one, "": History()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert curves_picture(runs, tmp_path / f"odd{suffix}").stat().st_size > 2000
        curves_picture({"$_": nothing}, tmp_path / f"nan{suffix}", value="loss")


def test_the_same_curves_are_the_same_file_and_leave_no_other_behind(tmp_path: Path) -> None:
    names = [f"{letter}.{kind}" for letter in "ab" for kind in ("pdf", "png", "svg")]
    for name in names:
        curves_picture({"one": a_run(), "two": a_run(lift=1.0)}, tmp_path / name)
    for kind in ("pdf", "png", "svg"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_wrong_input_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no value 'blue' was logged; there is: rate, loss, gradient, .*, bleu$"):
        curves_picture({"one": a_run()}, tmp_path / "a.png", value="blue")
    with pytest.raises(InputError, match="runs/new has not logged a step yet"):
        curves_picture({"runs/new": History()}, tmp_path / "a.png")
    with pytest.raises(InputError, match=r"\.png, \.svg or \.pdf"):
        curves_picture({"one": a_run()}, tmp_path / "a.html")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        curves_picture({"one": a_run()}, tmp_path / "folder.png")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.png"]


def test_scores_that_are_all_zero_are_drawn(tmp_path: Path) -> None:
    """As after a few steps of two translators: a warning fails this test."""
    entries = [Entry(name, "BLEU", test=[0.0], validation=[0.0], seconds=[1.0]) for name in ("one", "two")]
    assert comparison_picture(entries, tmp_path / "a.png").stat().st_size > 5_000


def test_scores_by_length_are_lines_over_the_groups_and_only_where_all_have_the_same(tmp_path: Path) -> None:
    rows = [{"from": low, "to": low + 4, "value": 40.0 - low, "count": 30} for low in (1, 6, 11)]
    entries = [Entry(name, "BLEU", by="words of the source", breakdown=[rows, rows]) for name in ("one", "two")]
    path = breakdown_picture(entries, tmp_path / "a.svg")
    assert path is not None and len(lines(path)) == 2
    assert all(f"<!-- {label} -->" in path.read_text() for label in ("1–5", "6–10", "11–15", "words of the source"))
    entries[1].breakdown = [rows[:2]]
    assert breakdown_picture(entries, tmp_path / "b.svg") is None
    entries[1].breakdown = []
    assert breakdown_picture(entries, tmp_path / "b.svg") is None and not (tmp_path / "b.svg").exists()

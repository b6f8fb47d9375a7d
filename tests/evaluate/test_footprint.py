"""Energy, CO₂ and price: the lecture's table comes out of the formula, but for the figures that cannot be right."""

from __future__ import annotations

import pytest

from headway.errors import InputError
from headway.evaluate.footprint import (
    COMPARISONS,
    ERRATA,
    POUND,
    PRICES,
    PUBLISHED,
    TRAININGS,
    Footprint,
    corrected,
    disagreements,
)

ROWS = {row.model: row for row in PUBLISHED}


def test_by_hand() -> None:
    used = Footprint(7200, devices=4, watts=250, pue=1.5, carbon=0.4, price=2.5)
    assert used.device_hours == 8
    assert used.kwh == pytest.approx(3.0) and used.kg == pytest.approx(1.2) and used.cost == pytest.approx(20)
    assert used.shares()["car with its fuel, a lifetime"] == pytest.approx(1.2 / (126_000 * 0.45359237))


def test_what_is_not_stated_gives_no_figure() -> None:
    used = Footprint(60)
    assert (used.kwh, used.kg, used.cost, used.shares()) == (None, None, None, {})
    assert Footprint(60, carbon=0.4).kg is None and Footprint(60, watts=100).kg is None


@pytest.mark.parametrize("row", [row for row in PUBLISHED if row.model not in {found.model for found in ERRATA}])
def test_every_other_row_comes_out_as_printed(row: object) -> None:
    assert disagreements(row) == []  # type: ignore[arg-type]


def test_the_two_misprints_and_the_rounded_hours_are_just_what_has_to_change() -> None:
    assert [found.rounded for found in ERRATA] == [False, False, True]
    for name in {found.model for found in ERRATA}:
        assert disagreements(ROWS[name]) and disagreements(corrected(ROWS[name])) == []
    nas = ROWS["NAS on a TPU"]
    # Neither printed price is that of the printed hours, and the two are not of the same hours.
    low, high = (price / rate for price, rate in zip(nas.cost, PRICES["TPUv2"], strict=True))
    assert (round(low), round(high), nas.hours) == (32_633, 32_455, 32_623)
    # One digit of each figure.
    for found in ERRATA[:2]:
        printed, right = str(int(found.printed)), str(int(found.right))
        assert sum(a != b for a, b in zip(printed, right, strict=True)) == 1


def test_rates_are_what_the_sound_rows_say() -> None:
    for row in PUBLISHED:
        if row.model not in {found.model for found in ERRATA}:
            hours = row.devices * row.hours
            for printed, rate in zip(row.cost, PRICES[row.chip], strict=True):
                assert printed / hours == pytest.approx(rate, abs=0.5 / hours + 1e-9)


def test_both_tables_say_the_same_of_the_same_training() -> None:
    assert TRAININGS["Transformer (big)"] == ROWS["Transformer big"].pounds
    assert TRAININGS["Transformer with neural architecture search"] == ROWS["NAS"].pounds
    assert ROWS["NAS"].footprint().kg == pytest.approx(626_155 * POUND, rel=1e-5)
    flights = ROWS["NAS"].footprint().shares()["flight of one passenger, New York and San Francisco"]
    assert flights == pytest.approx(626_155 / 1984, rel=1e-5)
    assert all(pounds > 0 for pounds in COMPARISONS.values())


@pytest.mark.parametrize(
    ("wrong", "word"),
    [({"seconds": -1}, "--seconds"), ({"devices": 0}, "--devices"), ({"pue": 0.5}, "--pue"), ({"watts": -5}, "--watts"),
     ({"watts": float("nan")}, "--watts"), ({"price": float("inf")}, "--price")],
)  # fmt: skip
def test_impossible_statements_are_refused(wrong: dict[str, float], word: str) -> None:
    with pytest.raises(InputError, match=word):
        Footprint(**({"seconds": 10} | wrong))  # type: ignore[arg-type]

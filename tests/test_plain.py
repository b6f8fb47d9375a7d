"""Plain values: every run survives JSON, settings change what they name, and errors name what is near."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from headway.errors import InputError
from headway.models import parts
from headway.plain import change, differences, from_plain, json_line, to_plain
from headway.recipes import RECIPES
from headway.train.optimiser import AdamW
from headway.train.run import Run, read_run, write_run
from headway.train.schedule import Cosine


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_survives_json(name: str, tmp_path: Path) -> None:
    run = RECIPES[name].make()
    assert from_plain(Run, json.loads(json.dumps(to_plain(run)))) == run
    write_run(run, tmp_path / "run.json")
    assert read_run(tmp_path / "run.json") == run


def test_other_parts_survive_json_as_what_they_are() -> None:
    run = RECIPES["translate"].make()
    model = replace(run.model, position=parts.Learned(), norm=parts.PreNorm(1e-6), feed_forward=parts.Gated(0.1))
    run = replace(run, model=model, optimiser=AdamW(decay=0.1), schedule=Cosine(floor=0.5))
    again = from_plain(Run, json.loads(json.dumps(to_plain(run))))
    assert again == run
    assert type(again.model.position) is parts.Learned and type(again.schedule) is Cosine


@dataclass(frozen=True)
class Red:
    name: ClassVar[str] = "red"
    depth: float = 1.0


@dataclass(frozen=True)
class Blue:
    name: ClassVar[str] = "blue"
    cold: bool = False


@dataclass(frozen=True)
class Inner:
    size: int = 1
    colour: Red | Blue = field(default_factory=Red)


@dataclass(frozen=True)
class Outer:
    """Two fields that are only right together."""

    word: str = "a"
    names: tuple[str, ...] = ()
    parts: tuple[float, ...] = ()
    maybe: int | None = None
    mode: Literal["slow", "fast"] = "slow"
    share: float = 0.5
    on: bool = False
    low: int = 0
    high: int = 1
    inner: Inner = field(default_factory=Inner)

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise InputError("low must be below high")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("word=hello", Outer(word="hello")),
        ("word=13", Outer(word="13")),
        ("word=true", Outer(word="true")),
        ("word=a=b", Outer(word="a=b")),
        (" word = spaced ", Outer(word="spaced")),
        ("names=x,y", Outer(names=("x", "y"))),
        ('names=["x"]', Outer(names=("x",))),
        ("maybe=3", Outer(maybe=3)),
        ("maybe=none", Outer()),
        ("mode=fast", Outer(mode="fast")),
        ("share=1", Outer(share=1.0)),
        ("share=1e-3", Outer(share=1e-3)),
        ("share=.25", Outer(share=0.25)),
        ("share=2.", Outer(share=2.0)),
        ("share=-.5e+1", Outer(share=-5.0)),
        ("high=+10_000", Outer(high=10_000)),
        ("high=1e4", Outer(high=10_000)),
        ("word=.5", Outer(word=".5")),
        ("inner.size=9_007_199_254_740_993", Outer(inner=Inner(2**53 + 1))),
        ("parts=.7, 3", Outer(parts=(0.7, 3.0))),
        ("on=true", Outer(on=True)),
        ("on=True", Outer(on=True)),
        ("inner.size=4", Outer(inner=Inner(4))),
        ("inner.colour=blue", Outer(inner=Inner(colour=Blue()))),
        ('inner.colour={"name": "blue", "cold": true}', Outer(inner=Inner(colour=Blue(True)))),
        ("inner.colour.depth=2", Outer(inner=Inner(colour=Red(2.0)))),
    ],
)
def test_change(setting: str, expected: Outer) -> None:
    assert change(Outer(), [setting]) == expected


def test_settings_are_applied_in_order_and_judged_together() -> None:
    assert change(Outer(), ["low=5", "high=9"]) == change(Outer(), ["high=9", "low=5"]) == Outer(low=5, high=9)
    assert change(Outer(), ["word=a", "word=b"]).word == "b"
    assert change(Outer(), ["inner.colour=blue", "inner.colour.cold=true"]).inner.colour == Blue(True)
    assert change(Outer(), ["inner.colour.depth=3", "inner.colour=red"]).inner.colour == Red()
    assert change(Outer(), []) == Outer()
    with pytest.raises(InputError, match="low must be below high"):
        change(Outer(), ["low=5"])


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("wrod=x", ("unknown key 'wrod'", "did you mean 'word'")),
        ("inner.sizes=x", ("unknown key 'inner.sizes'", "did you mean 'size'")),
        ("inner.colour.dept=1", ("'inner.colour.dept'", "did you mean 'depth'")),
        ("inner.colour.cold=true", ("'inner.colour.cold'", "there is", "depth")),
        ("inner.colour=blu", ("inner.colour", "did you mean 'blue'")),
        ("inner.colour=[1]", ("inner.colour", "red")),
        ("word.letter=x", ("word.letter", "no keys below")),
        ("mode=fats", ("mode", "did you mean 'fast'")),
        ("maybe=much", ("maybe", "whole number")),
        ("share=1__0", ("share", "a number")),
        ("share=nan", ("share", "a number")),
        ("parts=1,x", ("parts", "a number", "x")),
        ("high=1e400", ("high", "whole number")),
        ("inner.size=1.5", ("inner.size", "whole number", "1.5")),
        ("inner.size=true", ("inner.size", "whole number")),
        ("share=much", ("share", "a number")),
        ("on=1", ("on", "true or false")),
        ("names=3", ("names", "list")),
        ("word", ("'word' is not a setting", "key=value")),
        ("=3", ("unknown key",)),
    ],
)
def test_a_wrong_setting_names_the_key_and_the_nearest(setting: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as error:
        change(Outer(), [setting])
    assert all(word in str(error.value) for word in words), error.value
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"wrod": "x"}, ("'wrod'", "did you mean 'word'")),
        ({"inner": {"sizes": 1}}, ("'inner.sizes'", "did you mean 'size'")),
        ({"inner": {"size": "big"}}, ("inner.size", "whole number")),
        ({"inner": 3}, ("inner", "object")),
        ({"names": ["a", 3]}, ("names[1]", "text")),
        ({"inner": {"colour": {"name": "green"}}}, ("inner.colour", "green")),
        ([], ("Outer", "object")),
    ],
)
def test_wrong_json_names_the_key(data: object, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as error:
        from_plain(Outer, data)
    assert all(word in str(error.value) for word in words), error.value


def test_a_missing_key_is_named() -> None:
    with pytest.raises(InputError, match="'recipe' is missing"):
        from_plain(Run, {})


def test_a_line_of_json_has_no_number_that_json_has_not() -> None:
    line = json_line({"a": math.inf, "b": [1.5, math.nan, ("ä", -math.inf)], "c": 2})
    assert json.loads(line) == {"a": None, "b": [1.5, None, ["ä", None]], "c": 2} and "ä" in line


def test_dictionaries_of_values() -> None:
    assert from_plain(dict[str, int], {"a": 1}, "counts") == {"a": 1}
    with pytest.raises(InputError, match=r"counts\.a must be a whole number"):
        from_plain(dict[str, int], {"a": "x"}, "counts")
    with pytest.raises(InputError, match="counts must be an object"):
        from_plain(dict[str, int], [1], "counts")


def test_differences_name_each_leaf() -> None:
    other = replace(Outer(), word="b", inner=Inner(2, Blue()))
    assert differences(Outer(), Outer()) == []
    assert 'word: "a" → "b"' in differences(Outer(), other)
    assert "inner.size: 1 → 2" in differences(Outer(), other)
    assert any(line.startswith("inner.colour.") for line in differences(Outer(), other))


def test_a_part_that_is_called_none_can_be_chosen() -> None:
    run = change(RECIPES["translate"].make(), ["model.position=none"])
    assert run.model.position == parts.NoPosition()

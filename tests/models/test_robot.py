"""A robot policy's encoder: who sees what."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from headway.errors import InputError
from headway.models.robot import RobotTransformer, RobotTransformerConfig

STATES = RobotTransformerConfig(width=16, heads=2, max_length=4, words=6, dropout=0.0)
PICTURES = replace(STATES, sees=("picture", "state"), image=12, stem=replace(STATES.stem, layers=2))


def inputs(rows: int = 2, steps: int = 4, words: int = 5, seed: int = 0) -> Any:
    draw = torch.Generator().manual_seed(seed)
    return SimpleNamespace(
        states_BTS=torch.randn(rows, steps, 3, generator=draw, dtype=torch.float64),
        times_BT=torch.arange(steps).expand(rows, steps), words_BW=torch.randint(1, 9, (rows, words), generator=draw),
        counts_B=torch.tensor([words, 2][:rows]),
        pixels_BTPP3=torch.randint(0, 256, (rows, steps, 12, 12, 3), generator=draw, dtype=torch.uint8),
    )  # fmt: skip


@pytest.fixture(params=[STATES, PICTURES], ids=["states", "pictures"])
def model(request: pytest.FixtureRequest) -> RobotTransformer:
    torch.manual_seed(0)
    return RobotTransformer(request.param, 3, 2, 9).double().eval()


def test_a_step_sees_itself_and_those_before(model: RobotTransformer) -> None:
    given, other = inputs(), inputs()
    other.states_BTS[:, 2:] += 1
    other.pixels_BTPP3[:, 2:] = 255 - other.pixels_BTPP3[:, 2:]
    first, second = model.encode(given).x_BTD, model.encode(other).x_BTD
    torch.testing.assert_close(first[:, :2], second[:, :2], rtol=0, atol=1e-12)
    assert (first[:, 2:] - second[:, 2:]).abs().amax(-1).min() > 1e-6


def test_a_shorter_window_gives_the_same(model: RobotTransformer) -> None:
    given, short = inputs(), inputs()
    short.states_BTS, short.times_BT = short.states_BTS[:, :2], short.times_BT[:, :2]
    short.pixels_BTPP3 = short.pixels_BTPP3[:, :2]
    torch.testing.assert_close(model.encode(short).x_BTD, model.encode(given).x_BTD[:, :2], rtol=0, atol=1e-12)


def test_every_word_counts_and_padding_does_not(model: RobotTransformer) -> None:
    given, padded, other = inputs(), inputs(), inputs()
    padded.words_BW[1, 2:] = 3
    x_BTD = model.encode(given).x_BTD
    torch.testing.assert_close(model.encode(padded).x_BTD, x_BTD, rtol=0, atol=1e-12)
    other.words_BW[1, 1] = 8 if int(other.words_BW[1, 1]) != 8 else 7
    changed = model.encode(other).x_BTD
    torch.testing.assert_close(changed[0], x_BTD[0], rtol=0, atol=1e-12)
    assert (changed[1] - x_BTD[1]).abs().amax(-1).min() > 1e-6


def test_rows_are_alone(model: RobotTransformer) -> None:
    both, one = inputs(), inputs()
    for name in ("states_BTS", "times_BT", "words_BW", "counts_B", "pixels_BTPP3"):
        setattr(one, name, getattr(one, name)[1:])
    torch.testing.assert_close(model.encode(one).x_BTD, model.encode(both).x_BTD[1:], rtol=0, atol=1e-12)


def test_what_is_seen_has_its_places() -> None:
    model = RobotTransformer(PICTURES, 3, 2, 9).double()
    assert PICTURES.sides == (3, 3) and model.sight(inputs()).shape == (8, 1 + 9 + 1, 16)
    assert RobotTransformer(STATES, 3, 2, 9).double().sight(inputs()).shape == (8, 1 + 1, 16)


@pytest.mark.parametrize("wrong", [{"sees": ()}, {"sees": ("state", "state")}, {"words": 0}])
def test_settings_that_make_no_sense_are_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"model\."):
        RobotTransformerConfig(**wrong)

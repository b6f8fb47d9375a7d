"""One stack for pictures, texts and actions: what sees what, and the same numbers however a row is read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from headway.errors import InputError
from headway.models import build
from headway.models.mixture import Mixture, MixtureConfig
from headway.nn.mask import Prefix, Scene

CONFIG = MixtureConfig(image=16, patch=8, layers=2, width=32, heads=4, bins=8, max_length=12)
SIZES = (3, 4, 3, 20)  # numbers of a state and of an action, channels, words


@pytest.fixture(scope="module")
def model() -> Mixture:
    torch.manual_seed(0)
    found = build("mixture", CONFIG, SIZES).eval().double()
    for weight in found.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return found


@pytest.fixture
def inputs() -> SimpleNamespace:
    draw = torch.Generator().manual_seed(1)
    pixels = torch.randn(2, 3, 16, 16, generator=draw, dtype=torch.float64)
    states = torch.randn(2, 3, generator=draw, dtype=torch.float64)
    return SimpleNamespace(pixels_BCHW=pixels, states_BS=states, acts_B=torch.tensor([1.0, 0.0]))


def test_the_first_positions_see_each_other_and_the_rest_what_is_before():
    seen = Prefix(3).matrix(Scene(5, 5, torch.device("cpu")))[0, 0].int().tolist()
    assert seen == [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


@pytest.mark.parametrize("room", [None, 40])
def test_a_step_at_a_time_gives_what_the_whole_gives(model, inputs, room):
    ids = torch.randint(1, 28, (2, 9))
    with torch.inference_mode():
        whole = model(inputs, ids)
        state = model.start(inputs, 2, ids.device, room)
        logits, state = model.logits(model.framed(ids[:, :4]), state)
        found = [logits[:, CONFIG.given :]]
        for at in range(4, 9):
            logits, state = model.logits(ids[:, at : at + 1], state)
            found.append(logits)
    torch.testing.assert_close(torch.cat(found, 1), whole, rtol=0, atol=1e-12)


def test_an_answer_depends_on_the_picture_the_state_and_the_prompt_and_on_nothing_behind_it(model, inputs):
    ids = torch.randint(1, 20, (2, 6))
    changes = {
        "picture": {"pixels_BCHW": inputs.pixels_BCHW + 1}, "state": {"states_BS": inputs.states_BS + 1},
    }  # fmt: skip
    with torch.no_grad():
        before = model(inputs, ids)
        for name, change in changes.items():
            differs = (model(SimpleNamespace(**vars(inputs) | change), ids) - before).abs().amax((1, 2)) > 1e-6
            # The second row has no state.
            assert differs.tolist() == ([True, True] if name == "picture" else [True, False])
        other = ids.clone()
        other[:, 4] = (other[:, 4] + 1) % 20
        differs = (model(inputs, other) - before).abs().amax((0, 2)) > 1e-6
    assert differs.tolist() == [False] * 4 + [True] * 2


def test_an_action_is_the_most_probable_bin_of_each_number_behind_those_before(model, inputs):
    actions = torch.rand(500, 4, dtype=torch.float64) ** 3
    model.bins.fit(actions)
    prompt = torch.randint(1, 20, (2, 3))
    found = model.acted(inputs, prompt)
    ids, expected = prompt, []
    with torch.no_grad():
        for number in range(4):
            bins = model(inputs, ids)[:, -1, SIZES[-1] :].argmax(-1)
            expected.append(model.bins.middles_AV[number, bins])
            ids = torch.cat([ids, SIZES[-1] + bins[:, None]], 1)
    torch.testing.assert_close(found, torch.stack(expected, 1))
    # Of 500 actions each of 8 bins has its share.
    counts = torch.bincount(model.bins.bins(actions)[:, 0], minlength=8)
    assert counts.min() > 40 and counts.sum() == 500


def test_a_row_without_a_picture_is_refused(model):
    with pytest.raises(InputError, match="picture"):
        model.read(torch.ones(1, 3, dtype=torch.long))

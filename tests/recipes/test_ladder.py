"""The ladder's recipes: equal in all but the step that each takes, and of the sizes that they claim."""

from dataclasses import replace

import pytest
import torch

from headway.models import FAMILIES
from headway.models.rung import RUNGS
from headway.recipes import GROUPS, RECIPES

RUNS = {name: RECIPES[name].make() for name in GROUPS["ladder"]}


def parameters(name, vocabulary):
    run = RECIPES[name].make()
    with torch.device("meta"):
        model = FAMILIES[run.model.name].model(run.model, vocabulary)
    return sum(weight.numel() for weight in model.parameters())


def test_all_read_the_same_tokens_in_the_same_batches():
    runs = [run for run in RUNS.values() if not run.objective.one_pass]
    assert len(runs) == len(RUNS) - 1 == len(RUNGS) + 1
    first = runs[0]
    for run in runs:
        same = replace(
            first, recipe=run.recipe, model=run.model, schedule=replace(first.schedule, peak=run.schedule.peak)
        )
        assert run == same
        assert run.model.width == 128 and run.task.tokens_a_step(run) == 1024
    assert {run.data for run in RUNS.values()} == {first.data}


def test_the_rungs_are_those_of_the_deck_in_their_order():
    for (name, config), recipe in zip(RUNGS.items(), GROUPS["ladder"][2:], strict=True):
        assert recipe == f"ladder-{name}"
        assert replace(RUNS[recipe].model, dropout=0.0) == config


def test_the_treebanks_transformer_is_as_large_as_the_lstm():
    """Zaremba et al. 2014, medium: 2 layers of 650, embedding and head apart."""
    words = 10_002
    lstm = 2 * words * 650 + words + 2 * 4 * (2 * 650 * 650 + 2 * 650)
    assert parameters("ptb-gpt", words) == pytest.approx(lstm, rel=0.005)
    assert RECIPES["ptb-mlp"].make().model.order == 5


@pytest.mark.parametrize(
    ("name", "width", "window", "epochs", "held", "clipped"),
    [("small", 200, 20, 13, 4, 5), ("medium", 650, 35, 26, 6, 5), ("large", 1500, 35, 55, 14, 10)],
)
def test_zarembas_lstms_have_his_settings(name, width, window, epochs, held, clipped):
    """Zaremba et al. 2014, 4.1. His loss is the sum over a window, headway's its mean: the rate 1 is `window` here, and
    `clipped` a share of it."""
    run, words = RECIPES[f"ptb-lstm-{name}"].make(), 929_589
    epoch = words // (20 * window)
    sizes = run.model.layers, run.model.width, run.model.max_length, run.engine.batch
    assert sizes == (2, width, window, 20 * window)
    assert run.schedule.peak == window and run.engine.clip == pytest.approx(clipped / window)
    assert (run.engine.steps, run.schedule.hold, run.schedule.every) == (epochs * epoch, held * epoch, epoch)

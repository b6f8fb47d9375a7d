"""The Decision Transformer of transformers: the same actions from the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from headway.data.steps import StepInputs
from headway.folder import read_model
from headway.hub.reading import import_foreign

transformers = pytest.importorskip("transformers")
STATES, ACTIONS = 5, 3


def tiny(folder: Path, **more: Any) -> Any:
    """A random model, saved as transformers does."""
    torch.manual_seed(0)
    facts = {"hidden_size": 32, "n_layer": 2, "n_head": 2, "max_ep_len": 40, "n_positions": 64, "n_inner": 48}
    config = transformers.DecisionTransformerConfig(state_dim=STATES, act_dim=ACTIONS, **(facts | more))
    model = transformers.DecisionTransformerModel(config).eval()
    for weight in model.parameters():  # its biases start at 0, its first position too
        torch.nn.init.normal_(weight, std=0.2)
    model.save_pretrained(folder)
    return model


def inputs(rows: int = 3, steps: int = 7) -> StepInputs:
    torch.manual_seed(1)
    return StepInputs(
        states_BTS=torch.randn(rows, steps, STATES), actions_BTA=torch.randn(rows, steps, ACTIONS),
        returns_BT=torch.rand(rows, steps), times_BT=torch.arange(steps).repeat(rows, 1) + 3,
    )  # fmt: skip


@pytest.mark.parametrize("more", [{}, {"action_tanh": False}, {"activation_function": "gelu_new"}], ids=str)
def test_actions_are_those_of_transformers(more: dict[str, Any], tmp_path: Path) -> None:
    theirs, given = tiny(tmp_path / "hf", **more), inputs()
    import_foreign(str(tmp_path / "hf"), tmp_path / "own")
    loaded = read_model(tmp_path / "own")
    with torch.no_grad():
        wanted = theirs(
            states=given.states_BTS, actions=given.actions_BTA, rewards=None,
            returns_to_go=given.returns_BT[..., None], timesteps=given.times_BT,
            attention_mask=torch.ones(given.times_BT.shape, dtype=torch.long),
        ).action_preds  # fmt: skip
        found = loaded.model.head.actions(loaded.model.encode(given))[:, :, 0]
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert loaded.card.task == "acting" and loaded.card.sizes == (STATES, ACTIONS)


def test_an_action_is_not_seen_before_it_is_predicted(tmp_path: Path) -> None:
    tiny(tmp_path)
    model, given = read_model(tmp_path).model, inputs()
    other = given.map(torch.Tensor.clone)
    other.actions_BTA[:, 4:] += 1  # of step 4 and later ones
    with torch.no_grad():
        before, after = (model.encode(one).x_BTD for one in (given, other))
    torch.testing.assert_close(before[:, :5], after[:, :5], atol=0, rtol=0)
    assert not torch.allclose(before[:, 5:], after[:, 5:])

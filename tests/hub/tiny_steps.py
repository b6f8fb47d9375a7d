"""Tiny random policies, for the rows of `tiny.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headway.data.steps import StepInputs

DECISION = {
    "state_dim": 5, "act_dim": 3, "hidden_size": 24, "n_layer": 2, "n_head": 3, "max_ep_len": 40, "n_positions": 50,
    "n_inner": 37, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "decision-transformer": ("DecisionTransformerModel", DECISION),
    "decision-transformer-odd": (
        "DecisionTransformerModel",
        DECISION | {"action_tanh": False, "activation_function": "gelu_new", "n_inner": None, "state_dim": 2},
    ),
}


def steps(states: int, actions: int, shape: torch.Size, dtype: torch.dtype) -> StepInputs:
    """As many rows and steps as there are tokens."""
    generator = torch.Generator().manual_seed(9)

    def draw(*more: int) -> Tensor:
        return torch.randn(*shape, *more, generator=generator, dtype=torch.float64).to(dtype)

    times_BT = torch.arange(shape[1]).repeat(shape[0], 1) + 2
    return StepInputs(states_BTS=draw(states), actions_BTA=draw(actions), returns_BT=draw(), times_BT=times_BT)


def ours(model: Any, ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
    encoder = model.encoder
    widths = (encoder.embed["state"].in_features, encoder.embed["action"].in_features)
    inputs = steps(*widths, ids_BT.shape, encoder.times.weight.dtype)
    return model.head.actions(model.encode(inputs))


def theirs(model: Any, ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
    config = model.config
    given = steps(config.state_dim, config.act_dim, ids_BT.shape, next(model.parameters()).dtype)
    return model(
        states=given.states_BTS, actions=given.actions_BTA, rewards=None, returns_to_go=given.returns_BT[..., None],
        timesteps=given.times_BT, attention_mask=torch.ones(ids_BT.shape, dtype=torch.long),
    ).action_preds  # fmt: skip

"""The Decision Transformer (Chen et al. 2021) in the Hugging Face format → `headway.models.decision`.

Its body is GPT-2's, with a table of positions of which only the first row is read: it is added to every token. The
heads that predict states and returns do not act, and are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headway.hub.config_keys import Keys, choice, number, size
from headway.hub.families.foreign import ACTIVATIONS, Foreign
from headway.hub.families.gpt2 import LAYER
from headway.hub.names import Table, below
from headway.models.action_heads import Actions
from headway.models.decision import DecisionTransformerConfig
from headway.processors.steps import ActionConfig, ObservationConfig

FIELDS = {
    "layers": size("n_layer", 3),
    "width": size("hidden_size", 128),
    "inner": size("n_inner", 0, least=0),
    "heads": size("n_head", 1),
    "dropout": number("resid_pdrop", 0.1, also="embd_pdrop"),
    "attention_dropout": number("attn_pdrop", 0.1),
    "norm.epsilon": number("layer_norm_epsilon", 1e-5),
    "feed_forward": choice("activation_function", "relu", ACTIVATIONS),
    "places": size("n_positions", 1024),
    "longest": size("max_ep_len", 4096),
}
IGNORED = ("embd_pdrop", "reorder_and_upcast_attn", "vocab_size", "act_dim", "state_dim", "n_ctx")
TABLE = Table(
    {
        "encoder.times": "embed_timestep",
        **{f"encoder.embed.{token}": f"embed_{token}" for token in ("return", "state", "action")},
        "encoder.norm": "embed_ln",
        "encoder.place": "encoder.wpe",
        "encoder.decoder.final": "encoder.ln_f",
        **below("encoder.decoder.layers.*.", "encoder.h.*.", LAYER),
        "head.map": "predict_action.0",
    },
    useless=(r"^encoder\.wte\.", r"^predict_(state|return)\.", r"\.attn\.(masked_)?bias$"),
)  # fmt: skip


def _head(keys: Keys, config: Any) -> Actions:
    return Actions("numbers" if keys.flag("action_tanh", True) else "free", keys.size("act_dim", 4))


def _processors(folder: Path | None, config: Any, states: int, actions: int) -> dict[str, Any]:
    """Neither the world nor how its states were normalised is in the folder."""
    bounds = (1.0,) * actions
    return {
        "observations": ObservationConfig(states),
        "actions": ActionConfig(actions, "numbers", tuple(-bound for bound in bounds), bounds),
    }


DECISION = Foreign(
    "decision_transformer", ("DecisionTransformerModel",), DecisionTransformerConfig(places=1), FIELDS,
    lambda config, head: TABLE, ignored=IGNORED, head_in=_head,
    head_out=lambda head, config: {"action_tanh": head.space == "numbers"}, size_keys=("state_dim", "act_dim"),
    processors=_processors, defaults={"state_dim": 17, "act_dim": 4},
    must={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False},
)  # fmt: skip

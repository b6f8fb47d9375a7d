"""Mamba (Gu and Dao 2023) in the Hugging Face format ↔ `headway.models.mamba`."""

from __future__ import annotations

from typing import Any

from headway.errors import InputError
from headway.hub.config_keys import Field, Keys, flag, number, size
from headway.hub.families.foreign import Foreign
from headway.hub.names import Table, below
from headway.models.mamba import MambaConfig


def _rank_in(keys: Keys) -> int:
    rank = keys.take("time_step_rank", "auto")
    if rank == "auto" or rank == -(-keys.size("hidden_size", 768) // 16):
        return 0
    if not isinstance(rank, int) or rank < 1:
        raise InputError(f"{keys.where}: time_step_rank is {rank!r}, expected a whole number or 'auto'")
    return rank


def _rank_out(rank: int, config: MambaConfig) -> dict[str, Any]:
    return {"time_step_rank": rank or -(-config.width // 16)}


FIELDS = {
    "layers": size("num_hidden_layers", 32),
    "width": size("hidden_size", 768),
    "expand": size("expand", 2),
    "states": size("state_size", 16),
    "taps": size("conv_kernel", 4),
    "rank": Field(_rank_in, _rank_out),
    "bias": flag("use_bias", False),
    "taps_bias": flag("use_conv_bias", True),
    "tied": flag("tie_word_embeddings", True),
    "norm.epsilon": number("layer_norm_epsilon", 1e-5),
    "max_length": Field(lambda keys: MambaConfig.max_length, lambda length, config: {}),  # of training alone
}
LAYER = {
    "before": "norm",
    "mix.expand": "mixer.in_proj",
    "mix.near": "mixer.conv1d",
    "mix.select": "mixer.x_proj",
    "mix.step": "mixer.dt_proj",
    "mix.log_rate_IN": "mixer.A_log",
    "mix.pass_I": "mixer.D",
    "mix.output": "mixer.out_proj",
}
TABLE = Table(
    {"table": "backbone.embeddings", "decoder.final": "backbone.norm_f", "output": "lm_head"}
    | below("decoder.layers.*.", "backbone.layers.*.", LAYER),
    prefix="backbone.", copies={"lm_head.weight": "backbone.embeddings.weight"},
    endings={"backbone.embedding.weight": "backbone.embeddings.weight"},  # as it was first published
)  # fmt: skip
# Of the first weights, of the precision and of the program that computes the same.
IGNORED = (
    "time_step_scale", "time_step_min", "time_step_max", "time_step_init_scheme", "time_step_floor",
    "rescale_prenorm_residual", "residual_in_fp32", "use_mambapy", "use_associative_scan", "intermediate_size",
    "fused_add_norm", "rms_norm", "d_inner", "d_model", "n_layer", "ssm_cfg", "pad_vocab_size_multiple",
)  # fmt: skip
MAMBA = Foreign(
    "mamba", ("MambaForCausalLM", "MambaModel"), MambaConfig(), FIELDS, lambda config, head: TABLE, ignored=IGNORED,
    must={"hidden_act": "silu"},
)  # fmt: skip

"""Marian (Junczys-Dowmunt et al. 2018) and Pegasus (Zhang et al. 2020) in the Hugging Face format ↔
`headway.models.transformer`: one Transformer, the norm after the sum in the first and before the sublayer in the
second. Their sinusoids have all sines first."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from headway.hub.config_keys import choice, flag, number, size
from headway.hub.families.foreign import SHARED, Foreign, Usual
from headway.hub.names import Table, below
from headway.models import parts
from headway.models.transformer import TransformerConfig
from headway.nn.position import halved_sinusoid

ACTIVATIONS: dict[str, parts.FeedForward] = {
    "relu": parts.Relu(),
    "gelu": parts.Gelu(),
    "gelu_new": parts.Gelu(approximate="tanh"),
    "swish": parts.Silu(),
    "silu": parts.Silu(),
}
FIELDS = {
    "encoder_layers": size("encoder_layers"),
    "decoder_layers": size("decoder_layers"),
    "width": size("d_model"),
    "inner": size("encoder_ffn_dim", twin="decoder_ffn_dim"),
    "heads": size("encoder_attention_heads", twin="decoder_attention_heads"),
    "dropout": number("dropout", 0.1),
    "attention_dropout": number("attention_dropout", 0.0),
    "feed_forward": choice("activation_function", "gelu", ACTIVATIONS),
    "feed_forward.dropout": number("activation_dropout", 0.0),
    "max_length": size("max_position_embeddings", 1024),
    "scaled": flag("scale_embedding", False),
}
# Of training alone, or of heads that headway does not have.
IGNORED = (
    "encoder_layerdrop", "decoder_layerdrop", "init_std", "classif_dropout", "classifier_dropout", "num_hidden_layers",
    "extra_pos_embeddings", "force_bos_token_to_be_generated", "decoder_start_token_id", "save_step",
    "decoder_vocab_size",
)  # fmt: skip


def names(config: TransformerConfig, head: None) -> Table:
    slot = "before" if isinstance(config.norm, parts.PreNorm) else "outside"
    found, copies = {"head.rest_VC": "final_logits_biasᵀ"}, {"lm_head.weight": "model.decoder.embed_tokens.weight"}
    for side, ours in (("encoder", "source"), ("decoder", "target")):
        found |= {
            f"embed_{ours}.table": f"model.{side}.embed_tokens",
            f"embed_{ours}.position.table": f"model.{side}.embed_positions",
            f"embed_{ours}.norm": f"model.{side}.layernorm_embedding",
            f"{side}.final": f"model.{side}.layer_norm",
        }
        layer = {
            "attention.qkv": "self_attn.{q,k,v}_proj",
            "attention.output": "self_attn.out_proj",
            f"around_attention.{slot}": "self_attn_layer_norm",
            "cross.query": "encoder_attn.q_proj",
            "cross.key_value": "encoder_attn.{k,v}_proj",
            "cross.output": "encoder_attn.out_proj",
            f"around_cross.{slot}": "encoder_attn_layer_norm",
            "feed_forward.expand": "fc1",
            "feed_forward.contract": "fc2",
            f"around_feed_forward.{slot}": "final_layer_norm",
        }
        found |= below(f"{side}.layers.*.", f"model.{side}.layers.*.", layer)
    if config.embeddings == "shared":
        found["embed_source.table"] = "model.shared"
        copied = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
        copies = dict.fromkeys(copied, "model.shared.weight")
    return Table(found, prefix="model.", copies=copies, useless=(r"embed_positions\.weight$",))


def constants(config: TransformerConfig) -> dict[str, Tensor]:
    table_PD = halved_sinusoid(torch.arange(config.max_length), config.width).float()
    return {f"model.{side}.embed_positions.weight": table_PD.clone() for side in ("encoder", "decoder")}


TIED = {"tie_word_embeddings": True}
MUST = TIED | {"normalize_embedding": False, "static_position_embeddings": True, "add_bias_logits": False}
MARIAN = Foreign(
    "marian", ("MarianMTModel",),
    TransformerConfig(position=parts.Sinusoidal(order="halves"), norm=parts.PostNorm(), output_bias=True),
    FIELDS | {"embeddings": flag(SHARED, True, yes="shared", no="tied")}, names, ignored=IGNORED, constants=constants,
    must=MUST | {"normalize_before": False, "add_final_layer_norm": False}, head_out=lambda head, config: TIED,
    usual=Usual({"end": "</s>", "unknown": "<unk>", "pad": "<pad>"}, frame=(False, True)), seq2seq=True,
)  # fmt: skip
PEGASUS = replace(
    MARIAN, model_type="pegasus", architectures=("PegasusForConditionalGeneration",), fields=FIELDS, usual=Usual(),
    base=replace(MARIAN.base, norm=parts.PreNorm()),
    must=MUST | {"normalize_before": True, "add_final_layer_norm": True, SHARED: True},
)  # fmt: skip

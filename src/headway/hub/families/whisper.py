"""Whisper (Radford et al. 2023) in the Hugging Face format ↔ `headway.models.whisper`. Their keys have no
bias; ours is 0 there, and left out where training has moved it: a softmax does not see it."""

from __future__ import annotations

from typing import Any

from headway.errors import InputError
from headway.generate.speech import Speaking
from headway.hub.config_keys import choice, number, size
from headway.hub.families.foreign import ACTIVATIONS, Foreign, Usual
from headway.hub.names import Table, below
from headway.hub.sound_processor import whisper_processors
from headway.models.whisper import WhisperConfig
from headway.plain import from_plain, to_plain

FIELDS = {
    "bands": size("num_mel_bins", 80),
    "places": size("max_source_positions", 1500),
    "encoder_layers": size("encoder_layers", 4),
    "decoder_layers": size("decoder_layers", 4),
    "width": size("d_model", 384),
    "inner": size("encoder_ffn_dim", 1536, twin="decoder_ffn_dim"),
    "heads": size("encoder_attention_heads", 6, twin="decoder_attention_heads"),
    "dropout": number("dropout", 0.0),
    "attention_dropout": number("attention_dropout", 0.0),
    "feed_forward": choice("activation_function", "gelu", ACTIVATIONS),
    "feed_forward.dropout": number("activation_dropout", 0.0),
    "max_length": size("max_target_positions", 448),
}
# Of training, of a head for labels, of how times are found, and a scale that no program uses.
IGNORED = (
    "scale_embedding", "encoder_layerdrop", "decoder_layerdrop", "init_std", "num_hidden_layers",
    "classifier_proj_size", "use_weighted_layer_sum",
    "median_filter_width", "forced_decoder_ids", "mask_time_prob", "mask_time_length", "mask_time_min_masks",
    "mask_feature_prob", "mask_feature_length", "mask_feature_min_masks",
)  # fmt: skip


def names(config: WhisperConfig, head: None) -> Table:
    found = {
        "embed_source.first": "model.encoder.conv1",
        "embed_source.second": "model.encoder.conv2",
        "embed_source.position.table": "model.encoder.embed_positions",
        "embed_target.table": "model.decoder.embed_tokens",
        "embed_target.position.table": "model.decoder.embed_positions",
    }
    layer = {
        "attention.qkv": "self_attn.{q,k,v}_proj",
        "attention.qkv.bias": "self_attn.{q,–,v}_proj.bias",
        "attention.output": "self_attn.out_proj",
        "around_attention.before": "self_attn_layer_norm",
        "cross.query": "encoder_attn.q_proj",
        "cross.key_value": "encoder_attn.{k,v}_proj",
        "cross.key_value.bias": "encoder_attn.{–,v}_proj.bias",
        "cross.output": "encoder_attn.out_proj",
        "around_cross.before": "encoder_attn_layer_norm",
        "feed_forward.expand": "fc1",
        "feed_forward.contract": "fc2",
        "around_feed_forward.before": "final_layer_norm",
    }
    for side in ("encoder", "decoder"):
        found |= {f"{side}.final": f"model.{side}.layer_norm"}
        found |= below(f"{side}.layers.*.", f"model.{side}.layers.*.", layer)
    return Table(found, prefix="model.", copies={"proj_out.weight": "model.decoder.embed_tokens.weight"})


def speaking_in(facts: dict[str, Any], folder: str) -> dict[str, Any]:
    """Settings of generation_config.json."""
    named = {
        "suppress": facts.get("suppress_tokens"),
        "begin_suppress": facts.get("begin_suppress_tokens"),
        "latest_start": facts.get("max_initial_timestamp_index"),
        "alignment_heads": facts.get("alignment_heads"),
        "beam": facts.get("num_beams"),
        "length_penalty": facts.get("length_penalty"),
    }
    try:
        found: Speaking = from_plain(Speaking, {key: value for key, value in named.items() if value is not None}, "")
    except InputError as error:
        raise InputError(f"{folder}: generation_config.json: {error}") from error
    return to_plain(found)


WHISPER = Foreign(
    "whisper", ("WhisperForConditionalGeneration",), WhisperConfig(), FIELDS, names, ignored=IGNORED,
    must={"tie_word_embeddings": True, "apply_spec_augment": False}, seq2seq=True, channels=(1,),
    processors=whisper_processors, search=speaking_in,
    usual=Usual({"start": "<|endoftext|>", "end": "<|endoftext|>", "unknown": "<|endoftext|>"}),
)  # fmt: skip

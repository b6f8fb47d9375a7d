"""Specifications of CTranslate2, an engine for fast inference on a CPU, filled from headway's own parts: translators.
Language models are in `ctranslate2_decoders.py`.

CTranslate2's own converters need `transformers` and assume the start tokens of Marian and Pegasus. This one keeps every
choice that both sides have: norm placement, positions, start token.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headway.errors import refuse
from headway.extras import wanted
from headway.folder import Loaded
from headway.hub.families.ctranslate2_parts import (
    Engine,
    activation,
    added_positions,
    describe,
    entries,
    feed_forward,
    is_pre_norm,
    linear,
    norm,
    plain,
)
from headway.models.transformer import TransformerConfig


def _translator(loaded: Loaded) -> Any:
    specs = wanted("ctranslate2.specs", "ctranslate2")
    model: Any = loaded.model
    config: TransformerConfig = model.config
    refuse(loaded.card.symbols.first is not None, "headway writes no forced first token for CTranslate2")
    refuse(config.copying, "CTranslate2 has no head that copies: model.copying")
    refuse(config.embedding_norm, "headway writes no norm of embeddings for CTranslate2: model.embedding_norm")
    layers = config.encoder_layers, config.decoder_layers
    spec = specs.TransformerSpec.from_config(layers, config.heads, **_choices(config))
    sides = (spec.encoder, model.embed_source, model.encoder), (spec.decoder, model.embed_target, model.decoder)
    for side, embed, stack in sides:
        table = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        table.weight = plain(embed.table.weight)
        side.scale_embeddings = np.float32(embed.scale)
        side.position_encodings.encodings = added_positions(embed.position, config.max_length, config.width)
        fill_stack(side, stack, config)
    weight_VD = model.head.weight
    spec.decoder.projection.weight = plain(weight_VD[:, : config.width])
    if config.output_bias:
        spec.decoder.projection.bias = plain(weight_VD[:, config.width])
    card = loaded.card
    target = entries(loaded.target_tokenizer, card.sizes[1])
    spec.register_source_vocabulary(entries(loaded.source_tokenizer, card.sizes[0]))
    spec.register_target_vocabulary(target)
    describe(spec.config, config.norm.epsilon, target, loaded.target_tokenizer, card.symbols.end)
    spec.config.decoder_start_token = target[card.symbols.start]
    return spec


def _choices(config: TransformerConfig) -> dict[str, Any]:
    return {"pre_norm": is_pre_norm(config.norm)} | activation(config.feed_forward)


def fill_stack(side: Any, stack: Any, config: Any) -> None:
    """The blocks and the final norm of an encoder or a decoder."""
    slot = "before" if is_pre_norm(config.norm) else "outside"
    if slot == "before":
        side.layer_norm = norm(stack.final)
    for spec, block in zip(side.layer, stack.layers, strict=True):
        linear(spec.self_attention.linear[0], block.attention.qkv)
        linear(spec.self_attention.linear[1], block.attention.output)
        spec.self_attention.layer_norm = norm(getattr(block.around_attention, slot))
        if block.cross is not None:
            maps = (block.cross.query, block.cross.key_value, block.cross.output)
            for into, layer in zip(spec.attention.linear, maps, strict=True):
                linear(into, layer)
            spec.attention.layer_norm = norm(getattr(block.around_cross, slot))
        feed_forward(spec.ffn, block.feed_forward)
        spec.ffn.layer_norm = norm(getattr(block.around_feed_forward, slot))


TRANSLATOR = Engine("Translator", "translate", _translator)

"""Whisper as CTranslate2's specification, filled from headway's own parts."""

from __future__ import annotations

from typing import Any

from headway.errors import refuse
from headway.extras import wanted
from headway.folder import Loaded
from headway.generate.speech import Speaking, SpeechTokens
from headway.generate.word_times import chosen_heads
from headway.hub.families.ctranslate2 import fill_stack
from headway.hub.families.ctranslate2_parts import Engine, added_positions, entries, plain
from headway.models import parts
from headway.plain import from_plain


def _whisper(loaded: Loaded) -> Any:
    specs = wanted("ctranslate2.specs.whisper_spec", "ctranslate2")
    model: Any = loaded.model
    card, config = loaded.card, model.config
    tokens = SpeechTokens.of(loaded.target_tokenizer, card.symbols, card.writes.size)
    refuse(
        tokens.no_times is None,
        "CTranslate2 runs a Whisper with the special tokens of the published ones: this one lacks <|notimestamps|>",
    )
    refuse(
        config.feed_forward != parts.Gelu(dropout=config.feed_forward.dropout), "CTranslate2's Whisper has GELU alone"
    )
    refuse(config.norm.epsilon != 1e-5, "CTranslate2's Whisper has norms with an epsilon of 1e-5: model.norm.epsilon")
    spec = specs.WhisperSpec(config.encoder_layers, config.heads, config.decoder_layers, config.heads)
    for into, layer in (
        (spec.encoder.conv1, model.embed_source.first),
        (spec.encoder.conv2, model.embed_source.second),
    ):
        into.weight, into.bias = plain(layer.weight), plain(layer.bias)
    sides = (
        (spec.encoder, model.embed_source.position, model.encoder, config.places),
        (spec.decoder, model.embed_target.position, model.decoder, config.max_length),
    )
    for side, position, stack, length in sides:
        side.position_encodings.encodings = added_positions(position, length, config.width)
        fill_stack(side, stack, config)
    spec.decoder.embeddings.weight = plain(model.embed_target.table.weight)
    spec.decoder.projection.weight = plain(model.head.weight)
    names = entries(loaded.target_tokenizer, card.writes.size)
    spec.register_vocabulary(names)
    speaking = from_plain(Speaking, card.search, "search")
    spec.config.suppress_ids, spec.config.suppress_ids_begin = list(speaking.suppress), list(speaking.begin_suppress)
    spec.config.lang_ids = sorted(tokens.languages.values())
    spec.config.alignment_heads = chosen_heads(config.decoder_layers, config.heads, speaking.alignment_heads)
    return spec


WHISPER = Engine("models.Whisper", "predict", _whisper)

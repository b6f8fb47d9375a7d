"""The Audio Spectrogram Transformer (Gong et al. 2021) in the Hugging Face format ↔ `headway.models.ast`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.hub.config_keys import Keys, size
from headway.hub.families.encoder import Kin, Row, foreign, labels_in, names
from headway.hub.families.foreign import Usual
from headway.hub.families.vit import FIELDS as VIT_FIELDS
from headway.hub.families.vit import names_below, table_shapes
from headway.hub.names import Table
from headway.hub.sound_processor import sound_processors
from headway.models.ast import ASTConfig
from headway.models.heads import TwoTokens

FIELDS = {key: field for key, field in VIT_FIELDS.items() if key != "image"} | {
    "image": size("num_mel_bins", 128),
    "across": size("max_length", 1024),
    "stem.step": size("time_stride", 10, twin="frequency_stride"),
}
PREFIX = "audio_spectrogram_transformer"
LABELS = {"head.labels": "classifier.dense", "head.norm": "classifier.layernorm"}


def _labels(keys: Keys, config: Any) -> TwoTokens:
    return TwoTokens(labels_in(keys), dropout=0.0, epsilon=config.norm.epsilon)


KIN = Kin(
    "audio-spectrogram-transformer", "AST", f"{PREFIX}.", names_below(PREFIX, distilled_D="distillation_token"),
    {"ForAudioClassification": Row(TwoTokens, _labels, LABELS)},
)  # fmt: skip


def _table(config: ASTConfig, head: Any) -> Table:
    shapes = {name: shape for name, shape in table_shapes(config).items() if not name.endswith("map.weight")}
    return replace(names(KIN, config, head), shapes=shapes)


IGNORED = ("tie_word_embeddings", "num_channels")
AST = replace(
    foreign(KIN, ASTConfig(dropout=0.0), FIELDS, Usual(), {"num_channels": 1}, must={}, ignored=IGNORED),
    names=_table, size_key="num_channels", processors=sound_processors,
)  # fmt: skip

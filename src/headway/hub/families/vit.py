"""ViT (Dosovitskiy et al. 2021) and DeiT (Touvron et al. 2021) in the Hugging Face format ↔ `headway.models.vit`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from headway.hub.config_keys import Keys, choice, flag, number, size
from headway.hub.families.encoder import Kin, Row, foreign, labels_in, names
from headway.hub.families.foreign import ACTIVATIONS, Foreign, Usual
from headway.hub.image_processor import image_processors
from headway.hub.names import Table, below
from headway.models.heads import DistilledClasses, LinearClasses, Vectors
from headway.models.parts import PreNorm
from headway.models.vit import ViTConfig

FIELDS = {
    "image": size("image_size", 224),
    "patch": size("patch_size", 16),
    "layers": size("num_hidden_layers", 12),
    "width": size("hidden_size", 768),
    "inner": size("intermediate_size", 3072),
    "heads": size("num_attention_heads", 12),
    "dropout": number("hidden_dropout_prob", 0.0),
    "attention_dropout": number("attention_probs_dropout_prob", 0.0),
    "norm.epsilon": number("layer_norm_eps", 1e-12),
    "feed_forward": choice("hidden_act", "gelu", ACTIVATIONS),
    "qkv_bias": flag("qkv_bias", True),
}
IGNORED = ("encoder_stride", "num_channels", "tie_word_embeddings")
EMBEDDING = {
    "class_D": "cls_token",
    "position.table.weight": "position_embeddings",
    "map": "patch_embeddings.projection",
}
LAYER = {
    "around_attention.before": "layernorm_before",
    "around_feed_forward.before": "layernorm_after",
    "attention.qkv": "attention.attention.{query,key,value}",
    "attention.output": "attention.output.dense",
    "feed_forward.expand": "intermediate.dense",
    "feed_forward.contract": "output.dense",
}
FIRST = "head.first.layer.map"


def names_below(prefix: str, **more: str) -> dict[str, str]:
    return {
        **below("encoder.embed.", f"{prefix}.embeddings.", EMBEDDING | more),
        **below("encoder.encoder.layers.*.", f"{prefix}.encoder.layer.*.", LAYER),
        "encoder.encoder.final": f"{prefix}.layernorm",
    }


def _labels(part: Any) -> Callable[[Keys, Any], Any]:
    return lambda keys, config: part(labels_in(keys), dropout=0.0)


def _rows(prefix: str) -> dict[str, Row]:
    return {
        "ForImageClassification": Row(LinearClasses, _labels(LinearClasses), {"head.labels": "classifier"}),
        "Model": Row(Vectors, lambda keys, config: Vectors(first=True), {FIRST: f"{prefix}.pooler.dense"}),
    }


TEACHER = Row(
    DistilledClasses, _labels(DistilledClasses),
    {"head.labels": "cls_classifier", "head.distilled": "distillation_classifier"},
)  # fmt: skip
VIT_KIN = Kin("vit", "ViT", "vit.", names_below("vit"), _rows("vit"), (r"^vit\.pooler\.",))
DEIT_KIN = Kin(
    "deit", "DeiT", "deit.", names_below("deit", distilled_D="distillation_token"),
    _rows("deit") | {"ForImageClassificationWithTeacher": TEACHER}, (r"^deit\.pooler\.",),
)  # fmt: skip


def table_shapes(config: ViTConfig) -> dict[str, tuple[int, ...]]:
    """Their learned tokens and positions have a row of the batch before them, their patches lie as convolutions do."""
    width, patch = config.width, config.patch
    one = {f"encoder.embed.{name}": (1, 1, width) for name in ("class_D", "distilled_D")}
    places = {"encoder.embed.position.table.weight": (1, config.before + math.prod(config.sides), width)}
    return one | places | {"encoder.embed.map.weight": (width, -1, patch, patch)}


def _table(kin: Kin, config: ViTConfig, head: Any) -> Table:
    return replace(names(kin, config, head), shapes=table_shapes(config))


def _foreign(kin: Kin, before: int) -> Foreign:
    base = ViTConfig(norm=PreNorm(1e-12), dropout=0.0, before=before)
    found = foreign(kin, base, FIELDS, Usual(), must={}, ignored=IGNORED)
    return replace(found, names=partial(_table, kin), size_key="num_channels", processors=image_processors)


VIT = _foreign(VIT_KIN, 1)
DEIT = _foreign(DEIT_KIN, 2)

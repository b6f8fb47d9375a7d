"""Tiny random models of pictures, for the rows of `tiny.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from torch import Tensor

from headway.nn.placed import ScaledGrid

VIT = {
    "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40, "image_size": 12,
    "patch_size": 4, "num_labels": 5,
}  # fmt: skip
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViTForImageClassification", VIT),
    "vit-odd": (
        "ViTForImageClassification",
        VIT | {"num_channels": 1, "qkv_bias": False, "layer_norm_eps": 1e-3, "hidden_act": "relu", "patch_size": 6},
    ),
    "deit": ("DeiTForImageClassification", VIT),
    "deit-teacher": ("DeiTForImageClassificationWithTeacher", VIT | {"hidden_act": "gelu_new"}),
}
AST = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40, "patch_size": 4,
    "num_mel_bins": 12, "max_length": 20, "time_stride": 3, "frequency_stride": 3, "num_labels": 5,
}  # fmt: skip
SOUND_ROWS = {
    "ast": ("ASTForAudioClassification", AST),
    "ast-odd": ("ASTForAudioClassification", AST | {"qkv_bias": False, "hidden_act": "relu", "layer_norm_eps": 1e-3}),
}
DETR = {
    "d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 3, "decoder_attention_heads": 3,
    "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "num_queries": 5, "num_labels": 3, "dropout": 0.0,
    "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "backbone_config": {
        "model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2],
        "out_features": ["stage2"],
    },
}  # fmt: skip
BOX_ROWS = {"detr": ("DetrForObjectDetection", DETR)}
MASKED = DETR | {
    "d_model": 32, "encoder_attention_heads": 8, "decoder_attention_heads": 8, "backbone_config": {
        "model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1],
        "out_features": ["stage1", "stage2", "stage3", "stage4"],
    },
}  # fmt: skip
MASK_ROWS = {"detr-masks": ("DetrForSegmentation", MASKED)}
# What transformers calls in another way than its files do.
BOX_NAMES = {"backbone.model.": "backbone.conv_encoder.model.", ".mlp.": ".", "attn.o_proj": "attn.out_proj"}
MASK_NAMES = BOX_NAMES | {
    "attention.q_proj": "attention.q_linear", "attention.k_proj": "attention.k_linear",
    "output_conv": "out_lay",
    **{f"conv{number}.conv": f"lay{number}" for number in (1, 2)},
    **{f"conv{number}.norm": f"gn{number}" for number in (1, 2)},
    **{f"fpn_stages.{step}.{theirs}": f"{ours}{step + more}" for step in range(3)
       for theirs, ours, more in (("fpn_adapter", "adapter", 1), ("refine.conv", "lay", 3), ("refine.norm", "gn", 3))},
}  # fmt: skip
NAMES = {
    ".layers.": ".encoder.layer.", "attention.q_proj": "attention.attention.query", "attention.o_proj":
    "attention.output.dense", "attention.k_proj": "attention.attention.key", "attention.v_proj":
    "attention.attention.value", "mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense",
}  # fmt: skip


def saved_detr(
    architecture: str, backbone: Mapping[str, Any], settings: Mapping[str, Any], place: Path, size: tuple[int, int]
) -> Any:
    """Theirs, saved, for pictures of this height and width; random weights, none of them at its first value."""
    torch.manual_seed(3)
    config = transformers.DetrConfig(backbone_config=transformers.ResNetConfig(**backbone), **settings)
    model = getattr(transformers, architecture)(config).eval()
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            noise = torch.randn_like(weight) * 0.2
            weight.add_(noise.abs() if name.endswith("running_var") else noise)
    model.save_pretrained(place)
    sides = dict(zip(("height", "width"), size, strict=True))
    transformers.DetrImageProcessorPil(size=sides, do_pad=False).save_pretrained(place)
    return model


def boxes_as_in_files(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return as_in_files(weights, BOX_NAMES)


def masks_as_in_files(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return as_in_files(weights, MASK_NAMES)


def as_in_files(weights: Mapping[str, Tensor], names: Mapping[str, str] = NAMES) -> dict[str, Tensor]:
    found = {}
    for name, weight in weights.items():
        for old, new in names.items():
            name = name.replace(old, new)
        found[name] = weight
    return found


def _pixels(image: int, channels: int, rows: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(8)
    return torch.randn(rows, channels, image, image, generator=generator, dtype=torch.float64).to(dtype)


def ours(model: Any, ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
    """Of as many pictures as there are rows: the tokens are not read."""
    config, weight = model.config, model.encoder.embed.map.weight
    pixels = _pixels(config.image, weight.shape[1] // config.patch**2, len(ids_BT), weight.dtype)
    return model(SimpleNamespace(pixels_BCHW=pixels))[:, None].expand(-1, ids_BT.shape[1], -1)


def theirs(model: Any, ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
    dtype = next(model.parameters()).dtype
    pixels = _pixels(model.config.image_size, model.config.num_channels, len(ids_BT), dtype)
    return model(pixels).logits[:, None].expand(-1, ids_BT.shape[1], -1)


def ours_of_sounds(model: Any, ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
    bands, frames = model.config.size
    pixels = _spectrograms(bands, frames, len(ids_BT), model.encoder.embed.map.weight.dtype)
    return model(SimpleNamespace(pixels_BCHW=pixels))[:, None].expand(-1, ids_BT.shape[1], -1)


def theirs_of_sounds(model: Any, ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
    dtype = next(model.parameters()).dtype
    pixels = _spectrograms(model.config.num_mel_bins, model.config.max_length, len(ids_BT), dtype)
    return model(pixels[:, 0].mT).logits[:, None].expand(-1, ids_BT.shape[1], -1)


def _spectrograms(bands: int, frames: int, rows: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(9)
    return torch.randn(rows, 1, bands, frames, generator=generator, dtype=torch.float64).to(dtype)


def ours_of_boxes(model: Any, ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
    """Logits and boxes of pictures of 32 pixels, whatever size the config has."""
    model.encoder.grid = ScaledGrid(model.config.width, 4, 4).to(model.head.norm.weight.device)
    pixels = _pixels(32, 3, len(ids_BT), model.head.norm.weight.dtype)
    logits_BQL, boxes_BQ4 = model(SimpleNamespace(pixels_BCHW=pixels))
    return torch.cat([logits_BQL, boxes_BQ4], -1).flatten(1)[:, None].expand(-1, ids_BT.shape[1], -1)


def theirs_of_boxes(model: Any, ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
    found = model(_pixels(32, 3, len(ids_BT), next(model.parameters()).dtype))
    return torch.cat([found.logits, found.pred_boxes], -1).flatten(1)[:, None].expand(-1, ids_BT.shape[1], -1)


def ours_of_masks(model: Any, ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
    """Of pictures of 64 pixels, as `ours_of_boxes`, and the masks."""
    model.encoder.grid, model.head.sides = (
        ScaledGrid(model.config.width, 2, 2).to(model.head.norm.weight.device),
        (2, 2),
    )
    found = model(SimpleNamespace(pixels_BCHW=_pixels(64, 3, len(ids_BT), model.head.norm.weight.dtype)))
    return torch.cat([part.flatten(1) for part in found], -1)[:, None].expand(-1, ids_BT.shape[1], -1)


def theirs_of_masks(model: Any, ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
    found = model(_pixels(64, 3, len(ids_BT), next(model.parameters()).dtype))
    parts = (found.logits, found.pred_boxes, found.pred_masks)
    return torch.cat([part.flatten(1) for part in parts], -1)[:, None].expand(-1, ids_BT.shape[1], -1)

"""Tiny random models of speech, for the rows of `tiny.py`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

WHISPER = {
    "vocab_size": 101, "d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 37, "decoder_ffn_dim": 37, "num_mel_bins": 12,
    "max_source_positions": 10, "max_target_positions": 20, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0,
    "decoder_start_token_id": 1, "begin_suppress_tokens": None,
}  # fmt: skip
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "whisper": ("WhisperForConditionalGeneration", WHISPER),
    "whisper-odd": (
        "WhisperForConditionalGeneration",
        WHISPER | {"activation_function": "relu", "scale_embedding": True, "decoder_layers": 1, "vocab_size": 97},
    ),
}


def spectrograms(bands: int, places: int, rows: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(12)
    return torch.randn(rows, bands, 2 * places, generator=generator, dtype=torch.float64).to(dtype)


def _inputs(model: Any, rows: int) -> SimpleNamespace:
    config, dtype = model.config, model.embed_source.first.weight.dtype
    return SimpleNamespace(pixels_BCHW=spectrograms(config.bands, config.places, rows, dtype)[:, None])


def ours(model: Any, ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
    return model(_inputs(model, len(ids_BT)), ids_BT)


def theirs(model: Any, ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
    config, dtype = model.config, next(model.parameters()).dtype
    heard = spectrograms(config.num_mel_bins, config.max_source_positions, len(ids_BT), dtype)
    return model(heard, decoder_input_ids=ids_BT).logits


def cached(model: Any, ids_BT: Tensor) -> Tensor:
    """Five tokens, then one at a time."""
    spans = [slice(0, 5), *(slice(t, t + 1) for t in range(5, ids_BT.shape[1]))]
    with torch.inference_mode():
        state = model.start(_inputs(model, len(ids_BT)), len(ids_BT), ids_BT.device, room=ids_BT.shape[1] + 3)
        return torch.cat([model.logits(ids_BT[:, span], state)[0] for span in spans], 1)

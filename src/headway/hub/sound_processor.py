"""How a Hugging Face folder says that recordings are read (preprocessor_config.json) ↔ headway's `SoundConfig`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headway.card import Loaded
from headway.errors import InputError, refuse
from headway.hub.hf_folder import write_json
from headway.hub.tokenizer_export import text_beside
from headway.outside import read_object
from headway.processors.sound import SoundConfig

FILE = "preprocessor_config.json"
WINDOW, HOP = 0.025, 0.010  # seconds, as Kaldi has them
MEAN, STD = -4.2677393, 4.5689974  # of AudioSet


def sound_processors(folder: Path | None, config: Any, channels: int) -> dict[str, Any]:
    """The processor of a model of recordings; of a folder that does not say it, the usual one of AST."""
    path = None if folder is None else folder / FILE
    facts = read_object(path) if path is not None and path.is_file() else {}
    usual = {"sampling_rate": 16000, "num_mel_bins": config.image, "max_length": config.across}
    rate, bands, frames = (int(facts.get(key, value)) for key, value in usual.items())
    if (bands, frames) != config.size:
        raise InputError(f"{path} gives spectrograms of {bands} × {frames}, the model takes {config.size}")
    refuse(facts.get("padding_value", 0.0) != 0.0, f"{path}: padding_value must be 0")
    normal = facts.get("do_normalize", True)
    mean, std = (float(facts.get("mean", MEAN)), 2 * float(facts.get("std", STD))) if normal else (0.0, 1.0)
    return {"sound": SoundConfig(1, rate, bands, frames, round(WINDOW * rate), round(HOP * rate), mean, std, "kaldi")}


def whisper_processors(folder: Path | None, config: Any, channels: int) -> dict[str, Any]:
    """The processor of recordings of a Whisper."""
    path = None if folder is None else folder / FILE
    facts = read_object(path) if path is not None and path.is_file() else {}
    usual = {"sampling_rate": 16000, "feature_size": config.bands, "n_fft": 400, "hop_length": 160}
    rate, bands, window, hop = (int(facts.get(key, value)) for key, value in usual.items())
    frames = int(facts.get("nb_max_frames", 2 * config.places))
    if (bands, frames) != config.size:
        raise InputError(f"{path} gives spectrograms of {bands} × {frames}, the model takes {config.size}")
    refuse(
        facts.get("padding_value", 0.0) != 0.0 or facts.get("dither", 0.0), f"{path}: padding_value, dither: must be 0"
    )
    refuse(facts.get("do_normalize"), f"{path}: do_normalize must be false: samples are taken as they are")
    return {"sound": SoundConfig(1, rate, bands, frames, window, hop)}


def whisper_beside(folder: Path, loaded: Loaded, layout: Any) -> None:
    """How recordings are read, the tokenizer, and how text is written."""
    config = loaded.card.reads
    if config.kind == "kaldi" or (config.mean, config.std) != (0.0, 1.0):
        raise InputError("Whisper reads log-mel spectrograms as they are: this model's have no counterpart there")
    samples = config.frames * config.hop
    write_json(folder / FILE, {
        "feature_extractor_type": "WhisperFeatureExtractor", "processor_class": "WhisperProcessor",
        "feature_size": config.bands, "sampling_rate": config.rate, "hop_length": config.hop, "n_fft": config.window,
        "chunk_length": -(-samples // config.rate), "n_samples": samples, "nb_max_frames": config.frames,
        "padding_side": "right", "padding_value": 0.0, "return_attention_mask": False,
    })  # fmt: skip
    text_beside(folder, loaded, layout)


def sound_beside(folder: Path, loaded: Loaded, layout: Any) -> None:
    """How recordings are read."""
    config = loaded.card.reads
    frames = (round(WINDOW * config.rate), round(HOP * config.rate))
    if config.kind != "kaldi" or (config.window, config.hop) != frames:
        raise InputError("AST reads Kaldi's spectrograms of 25 ms every 10 ms: this model's have no counterpart there")
    write_json(folder / FILE, {
        "feature_extractor_type": "ASTFeatureExtractor", "feature_size": 1, "sampling_rate": config.rate,
        "num_mel_bins": config.bands, "max_length": config.frames, "do_normalize": True, "mean": config.mean,
        "std": config.std / 2, "padding_value": 0.0, "padding_side": "right", "return_attention_mask": False,
    })  # fmt: skip

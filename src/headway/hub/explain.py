"""Why something is no model that headway opens, and what to do about it."""

from __future__ import annotations

import re
from pathlib import Path

# Models that other programs find by a name without an owner.
OWNERS = {
    "gpt2": "openai-community", "gpt2-medium": "openai-community", "gpt2-large": "openai-community",
    "gpt2-xl": "openai-community", "bert-base-uncased": "google-bert", "bert-base-cased": "google-bert",
    "bert-large-uncased": "google-bert", "bert-base-multilingual-cased": "google-bert", "roberta-base": "FacebookAI",
    "roberta-large": "FacebookAI", "xlm-roberta-base": "FacebookAI", "distilbert-base-uncased": "distilbert",
    "distilgpt2": "distilbert", "albert-base-v2": "albert", "t5-small": "google-t5", "t5-base": "google-t5",
    "t5-large": "google-t5", "all-MiniLM-L6-v2": "sentence-transformers",
}  # fmt: skip
OPENS = (
    "headway opens its own folders, Hugging Face folders (config.json with weights), LoRA adapters, .gguf, .arpa and "
    "weights of torch.nn.Transformer (.pt)"
)
SAVED = (
    "a file of torch.save without an encoder and a decoder of torch.nn.Transformer: only the program that wrote it can "
    "build its model"
)
HELD = {
    ".safetensors": "weights alone: headway.json, or a config.json of Hugging Face's, is missing beside them",
    ".bin": "weights alone: headway.json, or a config.json of Hugging Face's, is missing beside them",
    ".onnx": "an ONNX graph: its weights are read where the model's config.json lies beside it",
    ".pt": SAVED,
    ".pth": SAVED,
    ".ckpt": "a checkpoint of a training program: export its model as a Hugging Face folder",
    ".h5": "weights of TensorFlow: save them for PyTorch (safetensors)",
    ".msgpack": "weights of Flax: save them for PyTorch (safetensors)",
}


def explained(given: str) -> str | None:
    """What is wrong with a model's place, in one line; None where nothing is known of it."""
    place = Path(given)
    if not place.exists():
        if given in OWNERS:
            return f"there is no folder {given}: the model of that name is hf://{OWNERS[given]}/{given}"
        if re.fullmatch(r"[A-Za-z][\w.-]*/[\w.-]+", given) and not place.parent.exists():
            return f"there is no folder {given}: a model of the Hugging Face hub is written hf://{given}"
        return None
    if place.is_file() and place.suffix.lower() not in HELD:
        return None
    files = [place] if place.is_file() else sorted(path for path in place.iterdir() if path.is_file())
    for suffix, what in HELD.items():
        for file in files:
            if file.suffix.lower() == suffix:
                return f"{file} is {what}" if place.is_file() else f"{given} is no model: {file.name} is {what}"
    if (place / "config.json").is_file():
        return f"{given} is no model: it has config.json, which has no model_type, and no weights"
    return f"{given} is no model (headway.json is missing): {OPENS}; `headway train` makes one"

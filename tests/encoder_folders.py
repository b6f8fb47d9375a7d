"""Tiny encoders in the Hugging Face format, made by transformers with random weights."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

WORDS = (
    "the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "tree", "red", "big", "##s", "##ing", "old", "is",
    "are", "how", "you", "your", "age", "what",
)  # fmt: skip
ENTRIES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, ".", "?", ","]
LABELS = {0: "bad", 1: "fair", 2: "good"}


def write_encoder(folder: Path, head: str, **more: Any) -> Any:
    """Writes `folder`; returns transformers' own model, in evaluation mode."""
    config = transformers.BertConfig(
        vocab_size=len(ENTRIES), hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
        max_position_embeddings=24, id2label=LABELS, **more,
    )  # fmt: skip
    torch.manual_seed(11)
    model = getattr(transformers, f"Bert{head}")(config)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(ENTRIES) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}), encoding="utf-8")
    return model.eval()


def declare_pooling(folder: Path, pooling: dict[str, Any], unit: bool, longest: int | None = None) -> None:
    """What sentence-transformers writes beside a model."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if unit else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": paths[i], "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "1_Pooling").mkdir(exist_ok=True)
    facts = {"word_embedding_dimension": 24} | pooling
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(facts), encoding="utf-8")
    if longest is not None:
        facts = {"max_seq_length": longest, "do_lower_case": False}
        (folder / "sentence_bert_config.json").write_text(json.dumps(facts), encoding="utf-8")


def their_inputs(folder: Path, texts: list[Any], **how: Any) -> Any:
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    pairs = [text if isinstance(text, tuple) else (text, None) for text in texts]
    seconds = [second for _, second in pairs]
    return tokenizer(
        [first for first, _ in pairs], seconds if any(seconds) else None, padding=True, return_tensors="pt", **how
    )

"""A tiny random Whisper of `transformers` with a tokenizer of speech: for the tests of everything that transcribes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

BANDS, PLACES = 12, 50  # a second
NAMED = (
    "<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>",
    "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>",
)  # fmt: skip
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
ID = {name: len(BYTES) + at for at, name in enumerate(NAMED)}
TIMES = len(BYTES) + len(NAMED)
VOCABULARY = TIMES + PLACES + 1
SUPPRESSED, AT_BEGIN = [5, 9, 11, ID["<|startoftranscript|>"], ID["<|startofprev|>"]], [30, ID["<|endoftext|>"]]
HEADS = [[0, 1], [1, 0], [1, 3]]


def tokenizer(named: Sequence[str] = NAMED) -> Tokenizer:
    inner = Tokenizer(models.BPE({letter: at for at, letter in enumerate(BYTES)}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    inner.add_special_tokens([*named, *(f"<|{at * 0.02:.2f}|>" for at in range(PLACES + 1))])
    return inner


def write_whisper(
    folder: Path,
    seed: int = 3,
    spread: float = 0.25,
    context: int = 40,
    named: Sequence[str] = NAMED,
    **generation: Any,
) -> Any:
    """A folder as transformers writes it; the model is returned. spread: of the weights; more makes texts vary more.
    context: the most tokens. named: the special tokens before the timestamps."""
    torch.manual_seed(seed)
    transformers.utils.logging.set_verbosity_error()
    end = ID["<|endoftext|>"]
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY, d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=37, decoder_ffn_dim=37, num_mel_bins=BANDS,
        max_source_positions=PLACES, max_target_positions=context, pad_token_id=end, bos_token_id=end, eos_token_id=end,
        decoder_start_token_id=ID["<|startoftranscript|>"], begin_suppress_tokens=None,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn_like(weight) * spread)
    facts = {
        "lang_to_id": {"<|en|>": ID["<|en|>"], "<|de|>": ID["<|de|>"]},
        "task_to_id": {"transcribe": ID["<|transcribe|>"], "translate": ID["<|translate|>"]},
        "is_multilingual": True, "no_timestamps_token_id": ID["<|notimestamps|>"], "suppress_tokens": SUPPRESSED,
        "begin_suppress_tokens": AT_BEGIN, "max_initial_timestamp_index": 20, "alignment_heads": HEADS,
        "prev_sot_token_id": ID["<|startofprev|>"], "max_length": context,
    }  # fmt: skip
    for key, value in (facts | generation).items():
        setattr(model.generation_config, key, value)
    model.save_pretrained(folder)
    inner = tokenizer(named)
    inner.save(str(folder / "tokenizer.json"))
    roles = {"eos_token": NAMED[0], "bos_token": NAMED[0], "pad_token": NAMED[0], "unk_token": NAMED[0]}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | roles))
    extractor = transformers.WhisperFeatureExtractor(feature_size=BANDS, chunk_length=1)
    extractor.save_pretrained(folder)
    return model


def features(rows: int, seconds: int = 1, seed: int = 5) -> Tensor:
    """Spectrograms that differ."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, BANDS, 100 * seconds, generator=generator)

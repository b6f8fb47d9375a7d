"""GGUF files of tiny models, written with the `gguf` library as llama.cpp's converter writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf.constants import GGMLQuantizationType as Type
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXT = [
    "Call me Ishmael. Some years ago, never mind how long precisely, having little or no money in my purse,",
    "I thought I would sail about a little and see the watery part of the world: 1851, 27 days.",
]
SPECIALS = ["<unk>", "<s>", "</s>", "<|im_start|>"]


def byte_pairs(size: int = 320) -> Tokenizer:
    found = Tokenizer(models.BPE())
    found.pre_tokenizer, found.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    found.train_from_iterator(
        TEXT, trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIALS, initial_alphabet=alphabet)
    )
    return found


def pieces() -> tuple[list[str], list[float], list[int]]:
    """SentencePiece's BPE: tokens, scores and types, bytes among them."""
    merged = [token for token in json.loads(byte_pairs(420).to_str())["model"]["vocab"] if token not in SPECIALS]
    letters = "ĠabcdefghijklmnopqrstuvwxyzCIS.,:"
    words = [token.replace("Ġ", "▁") for token in merged if all(letter in letters for letter in token)]
    words = sorted(dict.fromkeys(words), key=lambda word: (-len(word), word))
    tokens = [*SPECIALS[:3], *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    types = [2, 3, 3, *[6] * 256, *[1] * len(words)]
    return tokens, [0.0] * 259 + [-float(n) for n in range(len(words))], types


def write(path: Path, arch: str, facts: dict[str, Any], tensors: dict[str, np.ndarray], kind: Type = Type.F32,
          tokenizer: str = "gpt2", **more: Any) -> Path:  # fmt: skip
    """`facts`: without the architecture before them."""
    writer = gguf.GGUFWriter(path, arch)
    for key, value in facts.items():
        adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        adders[type(value)](f"{arch}.{key}", value)
    writer.add_tokenizer_model(tokenizer)
    if tokenizer == "gpt2":
        inner = byte_pairs()
        vocabulary = inner.get_vocab()
        tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
        merges = [" ".join(pair) for pair in json.loads(inner.to_str())["model"]["merges"]]
        writer.add_token_list(tokens)
        writer.add_token_types([3 if token in SPECIALS else 1 for token in tokens])
        writer.add_token_merges(merges)
        writer.add_tokenizer_pre(more.pop("pre", "gpt-2"))
    else:
        tokens, scores, types = pieces()
        writer.add_token_list(tokens)
        writer.add_token_scores(scores)
        writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{% for m in messages %}<|im_start|>{{ m['content'] }}{% endfor %}")
    for name, value in more.items():
        getattr(writer, name)(value)
    for name, array in tensors.items():
        array = np.ascontiguousarray(array, np.float32)
        block = gguf.GGML_QUANT_SIZES[kind][0]
        if array.ndim < 2 or array.shape[-1] % block:
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def paired(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """As llama.cpp's converter orders the rows of Llama's queries and keys."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def converted(model: Any, arch: gguf.MODEL_ARCH) -> dict[str, np.ndarray]:
    """The weights of a model of transformers under llama.cpp's names, by the library's own table."""
    config, names = model.config, gguf.get_tensor_name_map(arch, model.config.num_hidden_layers)
    shared = getattr(config, "num_key_value_heads", None)
    tied = config.tie_word_embeddings
    found = {}
    for name, weight in model.state_dict().items():
        if name.endswith((".attn.bias", ".masked_bias")) or (tied and name == "lm_head.weight"):
            continue
        weight = weight.detach().float()
        if arch == gguf.MODEL_ARCH.LLAMA and name.endswith(("q_proj.weight", "k_proj.weight")):
            weight = paired(weight, config.num_attention_heads if "q_proj" in name else shared)
        if arch == gguf.MODEL_ARCH.GEMMA and name.endswith("norm.weight"):
            weight = weight + 1
        if arch == gguf.MODEL_ARCH.GPT2 and ".c_" in name and name.endswith(".weight"):
            weight = weight.T
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert theirs is not None, name
        found[theirs] = weight.numpy()
    return found

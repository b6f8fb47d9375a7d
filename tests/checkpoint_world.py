"""Tiny models as people have them: GGUF files, written with the `gguf` library as llama.cpp's converter writes them,
adapters, and Meta's folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf.constants import GGMLQuantizationType as Type
from safetensors.torch import save_file
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
            writer.add_tensor(name, quantised(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def quantised(array: np.ndarray, kind: Type) -> np.ndarray:
    """What the library cannot quantise is drawn: small bytes, so that every scale among them is a small number."""
    try:
        return gguf.quants.quantize(array, kind)
    except NotImplementedError:
        shape = gguf.quants.quant_shape_to_byte_shape(array.shape, kind)
        return np.random.default_rng(len(array)).integers(0, 0x2B, shape, np.uint8)


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
        if "GEMMA" in arch.name and name.endswith("norm.weight"):
            weight = weight + 1
        if arch == gguf.MODEL_ARCH.GPT2 and ".c_" in name and name.endswith(".weight"):
            weight = weight.T
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert theirs is not None, name
        found[theirs] = weight.numpy()
    return found


SIZE = {"vocab_size": 320, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}  # fmt: skip
IDS = torch.tensor([[5, 300, 17, 44, 261, 3, 99, 12]])


def llama(folder: Path, **more: Any) -> Any:
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZE | more)).eval()
    model.save_pretrained(folder)
    byte_pairs().save(str(folder / "tokenizer.json"))
    return model


def adapter(folder: Path, matrices: dict[str, tuple[int, int]], rank: int = 4, **facts: Any) -> dict[str, torch.Tensor]:
    """An adapter's folder; returns what it adds to each module's weight, before scaling."""
    folder.mkdir(exist_ok=True)
    generator = torch.Generator().manual_seed(3)
    added, saved = {}, {}
    for module, (outputs, inputs) in matrices.items():
        a, b = torch.randn(rank, inputs, generator=generator), torch.randn(outputs, rank, generator=generator)
        saved |= {f"base_model.model.{module}.lora_A.weight": a, f"base_model.model.{module}.lora_B.weight": b}
        added[module] = b @ a
    save_file(saved, folder / "adapter_model.safetensors")
    told = {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "base_model_name_or_path": "someone/base-llama"} | facts
    (folder / "adapter_config.json").write_text(json.dumps(told))
    return added


META = {"self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
        "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
        "mlp.down_proj": "feed_forward.w2", "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm", "model.embed_tokens": "tok_embeddings", "model.norm": "norm",
        "lm_head": "output"}  # fmt: skip


def write_meta(folder: Path, model: Any, files: int = 1) -> dict[str, Any]:
    """A Llama as Meta publishes it, in one file or split as for several devices; returns its params.json."""
    parts: list[dict[str, torch.Tensor]] = [{} for _ in range(files)]
    for name, weight in model.state_dict().items():
        weight = weight.detach()
        if "q_proj" in name or "k_proj" in name:
            weight = paired(weight, 4 if "q_proj" in name else 2)
        theirs = name.removesuffix(".weight").replace("model.layers", "layers")
        theirs = next(theirs.replace(hf, meta) for hf, meta in META.items() if hf in theirs)
        axis = None if "norm" in theirs else 1 if theirs.endswith(("wo", "w2", "embeddings")) else 0
        for part, piece in zip(parts, [weight] * files if axis is None else weight.chunk(files, axis), strict=True):
            part[f"{theirs}.weight"] = piece.clone()
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(parts):
        torch.save(part | {"rope.freqs": torch.ones(4)}, folder / f"consolidated.{number:02}.pth")
    told = {
        "dim": 32,
        "n_layers": 2,
        "n_heads": 4,
        "n_kv_heads": 2,
        "vocab_size": -1,
        "multiple_of": 16,
        "norm_eps": 1e-5,
    }
    (folder / "params.json").write_text(json.dumps(told))
    byte_pairs().save(str(folder / "tokenizer.json"))
    return told


LLAMA_KEYS = {"block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
              "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
              "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
              "attention.layer_norm_rms_epsilon": "rms_norm_eps"}  # fmt: skip


def write_gguf_llama(folder: Path) -> None:
    model = llama(folder / "hf")
    facts = {key: getattr(model.config, name) for key, name in LLAMA_KEYS.items()}
    write(folder / "model.gguf", "llama", facts, converted(model, gguf.MODEL_ARCH.LLAMA), Type.Q4_0)
    shutil.rmtree(folder / "hf")


def write_adapter(folder: Path) -> None:
    llama(folder / "base")
    adapter(folder, {"model.layers.1.self_attn.q_proj": (32, 32)})


def write_meta_llama(folder: Path) -> None:
    write_meta(folder, llama(folder / "hf"), 2)
    shutil.rmtree(folder / "hf")

"""Models as GGUF files, for llama.cpp and the programs built on it: the tables of `gguf_file`, read the other way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.atomic import written
from headway.errors import InputError, refuse
from headway.extras import wanted
from headway.folder import Loaded, read_model
from headway.hub.gguf_architectures import ARCHITECTURES, Architecture
from headway.hub.gguf_tokenizer import SPLITS
from headway.hub.hf_export import held
from headway.hub.sentencepiece import CONTROL, NORMAL, USER
from headway.text.foreign import ForeignTokenizer

# How matrices are stored; vectors and what no block fits stay float32.
PRECISIONS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "q8_0": "Q8_0", "q5_1": "Q5_1", "q5_0": "Q5_0",
              "q4_1": "Q4_1", "q4_0": "Q4_0"}  # fmt: skip
# Keys of a config.json that say nothing which a GGUF file could not hold.
SAID = {"model_type", "architectures", "dtype", "vocab_size", "hidden_act", "hidden_activation", "bos_token_id",
        "eos_token_id", "pad_token_id", "tie_word_embeddings", "attention_bias", "attention_dropout", "use_cache",
        "rope_parameters", "head_dim", "use_sliding_window", "max_window_layers", "sliding_window",
        "activation_function", "attn_pdrop", "embd_pdrop", "resid_pdrop", "n_inner", "layer_types",
        "residual_dropout", "embedding_dropout", "hidden_dropout"}  # fmt: skip


def export_gguf(model: str | Path, path: str | Path, precision: str = "float16") -> str:
    """Write a model; returns the architecture that holds it."""
    refuse(precision not in PRECISIONS, f"GGUF files are written as {', '.join(PRECISIONS)}, not as {precision}")
    loaded = read_model(model)
    foreign, facts, weights = held(loaded)
    kind = next((name for name, one in ARCHITECTURES.items() if one.model_type == foreign.model_type), None)
    if kind is None:
        raise InputError(f"headway writes GGUF files of {', '.join(ARCHITECTURES)}, not of a {foreign.model_type}")
    architecture = ARCHITECTURES[kind]
    _check(facts, architecture, kind)
    library = wanted("gguf", "hub")
    with written(Path(path)) as part:
        writer = library.GGUFWriter(part, kind)
        _write_keys(writer, facts, architecture, kind)
        _write_tokenizer(writer, loaded)
        names = _names(architecture)
        for name, weight in weights.items():
            if name != "lm_head.weight" or not facts.get("tie_word_embeddings"):
                values = architecture.back(weight.float(), name, facts).contiguous()
                _write_tensor(writer, library, names(name), values, PRECISIONS[precision])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return kind


def _check(facts: dict[str, Any], architecture: Architecture, kind: str) -> None:
    """Refuse what the file could not say."""
    rope = _rotary(facts)
    scaling, implied = rope.get("rope_type", "default"), dict(architecture.fixed) | architecture.derived(facts)
    said = {*SAID, *architecture.keys.values(), *implied, *architecture.told}
    lost = [key for key in facts if key not in said]
    lost += [f"{key}={facts[key]}" for key, value in implied.items() if key in facts and facts[key] != value]
    lost += [f"rotary scaling '{scaling}'"] if scaling != "default" else []
    if (near := rope.get("near")) and near != {"rope_type": "default", "rope_theta": implied["rope_local_base_freq"]}:
        lost.append(f"layers with a window that have the positions {near}")
    lost += ["a sliding window"] if facts.get("sliding_window") and not _holds_windows(architecture, facts) else []
    usual = {"hidden_act": ("silu", "gelu_pytorch_tanh"), "activation_function": ("gelu_new",)}
    lost += [key for key, allowed in usual.items() if key in facts and facts[key] not in allowed]
    refuse(lost, f"headway writes no GGUF file of a {kind} with {', '.join(map(str, lost))}")


def _holds_windows(architecture: Architecture, facts: dict[str, Any]) -> bool:
    """Whether the file says the window, or no layer has it."""
    kinds = facts.get("layer_types") or ["sliding_attention"]
    return "sliding_window" in architecture.keys.values() or "sliding_attention" not in kinds


def _rotary(facts: dict[str, Any]) -> dict[str, Any]:
    """rope_parameters of the layers that see all; `near`: those of the others, where they have their own."""
    rope = facts.get("rope_parameters") or {}
    return rope["full_attention"] | {"near": rope["sliding_attention"]} if "full_attention" in rope else rope


def _write_keys(writer: Any, facts: dict[str, Any], architecture: Architecture, kind: str) -> None:
    rope = _rotary(facts)
    inner = facts.get("n_inner") or 4 * facts.get("n_embd", 0)
    facts = facts | {"rope_theta": rope.get("rope_theta"), "n_inner": inner}
    adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
    for key, name in architecture.keys.items():
        if facts.get(name) is not None:
            adders[type(facts[name])](f"{kind}.{key}", facts[name])
    if facts.get("head_dim") and "attention.key_length" in architecture.keys:
        writer.add_value_length(facts["head_dim"])  # llama.cpp would take width / heads
    if architecture.partial:
        width = facts.get("head_dim") or facts["hidden_size"] // facts["num_attention_heads"]
        writer.add_rope_dimension_count(int(width * rope.get("partial_rotary_factor", 1.0)))


def _write_tokenizer(writer: Any, loaded: Loaded) -> None:
    tokenizer: Any = loaded.source_tokenizer
    plain = json.loads(tokenizer.inner.to_str())
    splits = {json.dumps(_steps(part), sort_keys=True): name for name, part in reversed(SPLITS.items())}
    given = plain["pre_tokenizer"] or {}
    steps = given["pretokenizers"] if given.get("type") == "Sequence" else [given]
    name = splits.get(json.dumps(steps, sort_keys=True))
    if plain["model"]["type"] != "BPE" or name is None or plain.get("normalizer"):
        raise InputError(
            "headway writes byte-level BPE into a GGUF file, split as GPT-2, Llama 3, Qwen2 or SmolLM split it; this "
            "tokenizer is another (of headway's own: train with text.kind=bpe and text.exact=true)"
        )
    vocabulary: dict[str, int] = tokenizer.inner.get_vocab(with_added_tokens=True)
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    added = {token.content: token for token in tokenizer.inner.get_added_tokens_decoder().values()}
    types = [(CONTROL if added[text].special else USER) if text in added else NORMAL for text in tokens]
    size = loaded.card.sizes[0]
    tokens += [f"<unused{n}>" for n in range(len(tokens), size)]
    types += [CONTROL] * (size - len(types))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in plain["model"]["merges"]])
    foreign = isinstance(tokenizer, ForeignTokenizer)
    for role, add in (("start", writer.add_bos_token_id), ("end", writer.add_eos_token_id),
                      ("unknown", writer.add_unk_token_id), ("pad", writer.add_pad_token_id)):  # fmt: skip
        if getattr(tokenizer, role) is not None:
            add(getattr(tokenizer, role))
    writer.add_add_bos_token(bool(foreign and tokenizer.opening and tokenizer.opening[0] == tokenizer.start))
    if foreign and tokenizer.settings.chat:
        writer.add_chat_template(tokenizer.settings.chat)


def _steps(parts: list[Any]) -> list[Any]:
    return [json.loads(part.__getstate__()) for part in parts]


def _names(architecture: Architecture) -> Any:
    ours = {theirs: name for name, theirs in architecture.names.items()}
    layer = {theirs: name for name, theirs in architecture.layer.items()}

    def named(name: str) -> str:
        module, _, end = name.rpartition(".")
        if module in ours:
            return f"{ours[module]}.{end}"
        number, _, inner = module.removeprefix(architecture.layers).partition(".")
        return f"blk.{number}.{layer[inner]}.{end}"

    return named


def _write_tensor(writer: Any, library: Any, name: str, values: Tensor, precision: str) -> None:
    kind = library.GGMLQuantizationType[precision]
    block = library.GGML_QUANT_SIZES[kind][0]
    array = values.detach().to(torch.float32).numpy()
    if array.ndim < 2 or precision == "F32" or array.shape[-1] % block:
        writer.add_tensor(name, array)
    else:
        writer.add_tensor(name, library.quants.quantize(array, kind), raw_dtype=kind)

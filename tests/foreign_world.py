"""Tiny Hugging Face folders, made by `transformers` on the spot: for the tests of everything that reads one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor

from headway.hub.names import Table

CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] | trim }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
ENTRIES = 100


def from_hf(table: Table, theirs: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """headway's weights, of these shapes, from foreign ones."""
    name_of = table.resolve(theirs)
    dtype = next(weight.dtype for weight in theirs.values() if weight.is_floating_point())
    ours = {name: torch.zeros(shape, dtype=dtype) for name, shape in shapes.items()}
    table.check({name: tuple(theirs[found].shape) for name, found in name_of.items()}, ours, "the checkpoint")
    for entry in table.entries:
        entry.fill(ours[entry.ours], lambda name: theirs[name_of[name]])
    return ours


def give_tokenizer(folder: Path, chat: str | None = None) -> None:
    """Printable bytes and the space, and <|endoftext|> as the first entry."""
    letters = [*sorted(pre_tokenizers.ByteLevel.alphabet())[: ENTRIES - 3], "Ġ", "Ċ"]
    inner = Tokenizer(models.BPE({piece: i for i, piece in enumerate(["<|endoftext|>", *letters])}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    inner.add_special_tokens(["<|endoftext|>"])
    inner.save(str(folder / "tokenizer.json"))
    facts: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": chat}
    facts |= {"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))


def write_language_model(folder: Path, kind: str = "llama", chat: str | None = None) -> Any:
    """A folder with a tiny random language model; the model is returned."""
    torch.manual_seed(11)
    transformers.utils.logging.set_verbosity_error()
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    if kind == "gpt2":
        config = transformers.GPT2Config(vocab_size=101, n_positions=64, n_embd=24, n_layer=2, n_head=4, **ends)
        model: Any = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            vocab_size=101, hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.3, **ends,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config)
    model.eval().save_pretrained(folder)
    give_tokenizer(folder, chat)
    return model


def write_translator(folder: Path, kind: str, texts: list[str]) -> Any:
    """A folder with a tiny random translator of words, its specials where the family has them: Marian's </s> is the
    first entry, T5's <pad>; the padding starts a target. The model is returned."""
    torch.manual_seed(12)
    transformers.utils.logging.set_verbosity_error()
    words = sorted({word for text in texts for word in text.split()})
    entries = ["</s>", "<unk>", *words, "<pad>"] if kind == "marian" else ["<pad>", "</s>", "<unk>", *words]
    number_of = {word: number for number, word in enumerate(entries)}
    end, pad = number_of["</s>"], number_of["<pad>"]
    ids = {"eos_token_id": end, "pad_token_id": pad, "decoder_start_token_id": pad, "vocab_size": len(entries)}
    if kind == "marian":
        heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
        sizes = {"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
        config: Any = transformers.MarianConfig(
            d_model=32, **heads, **sizes, max_position_embeddings=40, dropout=0.0, forced_eos_token_id=None, **ids
        )  # fmt: skip
        model: Any = transformers.MarianMTModel(config)
    else:
        config = transformers.T5Config(
            d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0.0, n_positions=40, **ids
        )  # fmt: skip
        model = transformers.T5ForConditionalGeneration(config)
    model.eval().save_pretrained(folder)
    inner = Tokenizer(models.WordLevel(number_of, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(["</s>", "<pad>", "<unk>"])
    inner.post_processor = processors.TemplateProcessing(single="$A </s>", pair=None, special_tokens=[("</s>", end)])
    inner.save(str(folder / "tokenizer.json"))
    facts = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts | {"unk_token": "<unk>"}))
    return model

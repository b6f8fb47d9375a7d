"""Tiny Hugging Face folders, made by `transformers` on the spot: for the tests of everything that reads one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] | trim }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
ENTRIES = 100


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

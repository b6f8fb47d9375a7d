"""Tokenizers as files that `AutoTokenizer` opens, with the same ids and the same decoded text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, processors

from headway.errors import InputError
from headway.folder import Card, Loaded
from headway.hub.decoding import GENERATION
from headway.hub.hf_folder import write_json
from headway.hub.layouts import Layout
from headway.models.configs import token_types, window
from headway.text.foreign import ROLES, ForeignTokenizer
from headway.text.tokenizer import END, PAD, SPECIALS, START, UNKNOWN, Tokenizer

OWN = {"pad_token": PAD, "bos_token": START, "eos_token": END, "unk_token": UNKNOWN}


def text_beside(folder: Path, loaded: Loaded, layout: Layout) -> None:
    """The tokenizer, and the defaults of generation."""
    write_json(folder / GENERATION, layout.generation(loaded))
    write_tokenizer(folder, loaded, layout)


def write_tokenizer(folder: Path, loaded: Loaded, layout: Layout) -> None:
    """`tokenizer.json` and `tokenizer_config.json`."""
    tokenizer = loaded.target_tokenizer
    own = isinstance(tokenizer, Tokenizer)
    text, facts = _of_own(tokenizer, loaded.card, layout) if own else _of_foreign(tokenizer)
    inputs = ["input_ids", *(["token_type_ids"] if token_types(loaded.card.config) > 1 else []), "attention_mask"]
    facts |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}
    if limit := window(loaded.card.config):
        facts["model_max_length"] = limit
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    write_json(folder / "tokenizer_config.json", facts)


def _of_foreign(tokenizer: ForeignTokenizer) -> tuple[str, dict[str, Any]]:
    """The text of tokenizer.json as it was read, and the entries of tokenizer_config.json."""
    settings = tokenizer.settings
    named = {key: getattr(settings, role) for role, key in ROLES.items()} | {"chat_template": settings.chat}
    facts: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    if settings.more:
        facts["additional_special_tokens"] = list(settings.more)
    if settings.frame:
        facts |= dict(zip(("add_bos_token", "add_eos_token"), settings.frame, strict=True))
    facts |= {"clean_up_tokenization_spaces": settings.tidy, "split_special_tokens": settings.spelled}
    return tokenizer.to_json(), facts


def _of_own(tokenizer: Tokenizer, card: Card, layout: Layout) -> tuple[str, dict[str, Any]]:
    """With everything that headway does outside its file: special tokens, white space, the space before a text."""
    if tokenizer.kind == "word" and tokenizer.exact:
        raise InputError("no tokenizer.json restores spaces as this tokenizer does: text.exact=true has no counterpart")
    inner = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    single, pair = layout.template(card, inner)
    if single != "$A":
        inner.post_processor = processors.TemplateProcessing(
            single=single, pair=pair, special_tokens=[(SPECIALS[END], END)]
        )
    if tokenizer.kind == "bpe" and not tokenizer.exact:
        inner.decoder = decoders.Sequence([inner.decoder, decoders.Strip(" ", 1, 0)])
    facts: dict[str, Any] = {key: SPECIALS[i] for key, i in OWN.items()}
    # "</s>" in a text is text.
    facts |= {"split_special_tokens": True, "clean_up_tokenization_spaces": False} | layout.tokenizer_facts
    return str(inner.to_str(pretty=True)), facts

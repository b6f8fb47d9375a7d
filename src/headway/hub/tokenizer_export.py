"""headway's tokenizers as files that `AutoTokenizer` opens, with the same ids for the same text, and the same text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, normalizers, processors

from headway.errors import InputError
from headway.folder import Card, Loaded
from headway.text.foreign import ForeignTokenizer
from headway.text.tokenizer import END, PAD, SPACE, SPECIALS, START, UNKNOWN, Tokenizer

ROLES = {"pad_token": PAD, "bos_token": START, "eos_token": END, "unk_token": UNKNOWN}


def write_tokenizer(folder: Path, loaded: Loaded) -> None:
    """`tokenizer.json` and `tokenizer_config.json`."""
    tokenizer, card = loaded.source_tokenizer, loaded.card
    if isinstance(tokenizer, ForeignTokenizer):
        text, facts = tokenizer.to_json(), _of_foreign(tokenizer)
    else:
        text, facts = _of_ours(tokenizer, card), {key: SPECIALS[i] for key, i in ROLES.items()}
        # "</s>" in somebody's text is text.
        facts |= {"split_special_tokens": True, "clean_up_tokenization_spaces": False}
        if len(card.sizes) == 1:
            facts |= {"bos_token": SPECIALS[END], "padding_side": "left"}
    facts["tokenizer_class"] = "PreTrainedTokenizerFast"
    facts["model_input_names"] = ["input_ids", "attention_mask"]
    if limit := getattr(card.config, "max_length", 0):
        facts["model_max_length"] = limit
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    named = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
    (folder / "tokenizer_config.json").write_text(named, encoding="utf-8")


def _of_foreign(tokenizer: ForeignTokenizer) -> dict[str, Any]:
    """What was read from such a file, written again."""
    settings = tokenizer.settings
    named = {
        "pad_token": settings.pad, "bos_token": settings.start, "eos_token": settings.end,
        "unk_token": settings.unknown, "mask_token": settings.mask, "cls_token": settings.first,
        "sep_token": settings.separator, "chat_template": settings.chat,
    }  # fmt: skip
    facts: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    if settings.more:
        facts["additional_special_tokens"] = list(settings.more)
    if settings.frame:
        facts |= dict(zip(("add_bos_token", "add_eos_token"), settings.frame, strict=True))
    return facts | {"clean_up_tokenization_spaces": settings.tidy, "split_special_tokens": settings.spelled}


def _of_ours(tokenizer: Tokenizer, card: Card) -> str:
    """What headway does around the file (END behind a source, spaces, the space before the first word) inside it."""
    if tokenizer.kind == "word" and tokenizer.exact:
        raise InputError("no tokenizer.json puts spaces back as this one does: text.exact=true stands in the way")
    inner = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    end = SPECIALS[END]
    if len(card.sizes) == 2:
        one_space = [normalizers.Replace(Regex(f"{SPACE}+"), " "), normalizers.Strip()]
        inner.normalizer = normalizers.Sequence([*one_space, *([inner.normalizer] if inner.normalizer else [])])
        single, pair = f"$A {end}", f"$A $B {end}"
    else:
        # Where each line was a text, a prompt is the beginning of one.
        single, pair = (f"{end} $A", f"{end} $A $B") if card.text.lines else ("$A", "$A $B")
    if single != "$A":
        inner.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=[(end, END)])
    if tokenizer.kind == "bpe" and not tokenizer.exact:
        inner.decoder = decoders.Sequence([inner.decoder, decoders.Strip(" ", 1, 0)])
    return str(inner.to_str(pretty=True))

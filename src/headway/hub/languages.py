"""The source's language in tokenizers of many: a token before the text or behind its end.

tokenizer.json has a template with one; what tokenizer_config.json says (`src_lang`) comes first, as in transformers.
"""

from __future__ import annotations

import json
from typing import Any

from headway.errors import refuse
from headway.text.foreign import ForeignTokenizer

# By the class of the tokenizer: the language where none is named, and whether its token stands before the text.
USUAL = {"Nllb": ("eng_Latn", True), "MBart50": ("en_XX", True), "MBart": ("en_XX", False)}


def with_source(tokenizer: ForeignTokenizer, facts: dict[str, Any]) -> ForeignTokenizer:
    """The tokenizer with the template of its source language; `facts`: of tokenizer_config.json."""
    kind = str(facts.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer")
    if kind not in USUAL:
        return tokenizer
    usual, before = USUAL[kind]
    language, end = str(facts.get("src_lang") or usual), tokenizer.settings.end or "</s>"
    before = before and not facts.get("legacy_behaviour")
    ids = {token: tokenizer.inner.token_to_id(token) for token in (language, end)}
    for token, i in ids.items():
        refuse(i is None, f"tokenizer_config.json: the tokenizer has no token '{token[:40]}' (src_lang, eos_token)")
    signs = [{"SpecialToken": {"id": token, "type_id": 0}} for token in (language, end)]
    first, last = (signs[:1], signs[1:]) if before else ([], signs[::-1])
    texts = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    plain = json.loads(tokenizer.to_json())
    plain["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [*first, texts[0], *last],
        "pair": [*first, *texts, *last],
        "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]} for token, i in ids.items()},
    }
    return ForeignTokenizer.from_json(json.dumps(plain, ensure_ascii=False), tokenizer.settings)

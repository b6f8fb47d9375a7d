"""How the tokens of an exported model are laid out.

specials: ids by their role in config.json. generation: generation_config.json, the defaults of headway's own commands.
tokenizer_facts: entries of tokenizer_config.json for a tokenizer of headway's. template: a text, and a pair of texts,
with their special tokens; `inner` may be changed.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

import tokenizers
from tokenizers import Regex, normalizers

from headway.folder import Card, Loaded
from headway.generate.speech import Speaking, SpeechTokens
from headway.plain import from_plain
from headway.text.tokenizer import END, SPACE, SPECIALS


@final
class SourceAndTarget:
    """A sequence-to-sequence model: END after the source, a search for the target."""

    tokenizer_facts: ClassVar[dict[str, Any]] = {}

    def specials(self, loaded: Loaded) -> dict[str, Any]:
        symbols, pad = loaded.card.symbols, loaded.source_tokenizer.pad
        first = {} if symbols.first is None else {"forced_bos_token_id": symbols.first}
        return first | {
            "decoder_start_token_id": symbols.start,
            "eos_token_id": symbols.end,
            "forced_eos_token_id": symbols.end,
            "pad_token_id": symbols.end if pad is None else pad,
        }

    def generation(self, loaded: Loaded) -> dict[str, Any]:
        """The longest output is the model's own limit: `generate` has no limit relative to the source."""
        card = loaded.card
        search, symbols = card.search, card.symbols
        found = self.specials(loaded) | {
            "num_beams": search.get("beam", 5),
            "length_penalty": search.get("length_penalty", 1.0),
            "early_stopping": True if search.get("finish", "full") == "full" else "never",
            "max_length": card.config.max_length,
        }
        return found | ({"bad_words_ids": [[i] for i in symbols.never]} if symbols.never else {})

    def title(self, card: Card) -> str:
        return f"{card.reads.language} → {card.writes.language}"

    def template(self, card: Card, inner: tokenizers.Tokenizer) -> tuple[str, str]:
        one_space = [normalizers.Replace(Regex(f"{SPACE}+"), " "), normalizers.Strip()]
        inner.normalizer = normalizers.Sequence([*one_space, *([inner.normalizer] if inner.normalizer else [])])
        return f"$A {SPECIALS[END]}", f"$A $B {SPECIALS[END]}"


@final
class RunningText:
    """A model of one text: sampling."""

    tokenizer_facts: ClassVar[dict[str, Any]] = {"bos_token": SPECIALS[END], "padding_side": "left"}

    def specials(self, loaded: Loaded) -> dict[str, Any]:
        card, tokenizer = loaded.card, loaded.source_tokenizer
        # headway's own texts follow each other, each after the END of the one before.
        start = tokenizer.start if card.foreign_text else END
        named = {"bos_token_id": start, "eos_token_id": tokenizer.end, "pad_token_id": tokenizer.pad}
        return {key: value for key, value in named.items() if value is not None}

    def generation(self, loaded: Loaded) -> dict[str, Any]:
        return self.specials(loaded) | {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}

    def title(self, card: Card) -> str:
        return f"A {card.family}"

    def template(self, card: Card, inner: tokenizers.Tokenizer) -> tuple[str, str]:
        # Where each line was a text, a prompt is the beginning of one.
        before = f"{SPECIALS[END]} " if card.text.lines else ""
        return f"{before}$A", f"{before}$A $B"


@final
class Speech:
    """A recording in, text out: what transformers' Whisper needs to know of the tokens."""

    tokenizer_facts: ClassVar[dict[str, Any]] = {}

    def specials(self, loaded: Loaded) -> dict[str, Any]:
        symbols, pad = loaded.card.symbols, loaded.target_tokenizer.pad
        found = {"decoder_start_token_id": symbols.start, "eos_token_id": symbols.end, "bos_token_id": symbols.end}
        return found | {"pad_token_id": symbols.end if pad is None else pad}

    def generation(self, loaded: Loaded) -> dict[str, Any]:
        card = loaded.card
        tokens = SpeechTokens.of(loaded.target_tokenizer, card.symbols, card.writes.size)
        speaking = from_plain(Speaking, card.search, "search")
        named = {
            "no_timestamps_token_id": tokens.no_times, "prev_sot_token_id": tokens.previous,
            "max_initial_timestamp_index": speaking.latest_start, "suppress_tokens": list(speaking.suppress) or None,
            "begin_suppress_tokens": list(speaking.begin_suppress) or None,
            "alignment_heads": [list(pair) for pair in speaking.alignment_heads] or None,
            "lang_to_id": {f"<|{name}|>": i for name, i in tokens.languages.items()} or None,
            "task_to_id": tokens.tasks or None,
        }  # fmt: skip
        found = {key: value for key, value in named.items() if value is not None}
        return self.specials(loaded) | found | {
            "is_multilingual": bool(tokens.languages), "max_length": card.config.max_length, "return_timestamps": False,
        }  # fmt: skip

    def title(self, card: Card) -> str:
        return f"A {card.family}"

    def template(self, card: Card, inner: tokenizers.Tokenizer) -> tuple[str, str]:
        return f"$A {SPECIALS[END]}", f"$A $B {SPECIALS[END]}"


@final
class Pictures:
    """A model that reads no text: it has no tokens."""

    def specials(self, loaded: Loaded) -> dict[str, Any]:
        return {}

    def title(self, card: Card) -> str:
        return f"A {card.family}"


Layout = SourceAndTarget | RunningText | Speech

"""Labels of tokens that are bytes: whole characters, whichever way a text is cut."""

from __future__ import annotations

import random
import re

import pytest
from tokenizers import Tokenizer as Foreign
from tokenizers import decoders, models

from headway.text.characters import whole_characters
from headway.text.foreign import ForeignTokenizer


@pytest.mark.parametrize(
    "tokens, shown",
    [
        ([b"caf\xc3", b"\xa9"], ["café₁", "é₂"]),
        ([b"\xf0", b"\x9f", b"\x98", b"\x80", b"!"], ["😀₁", "😀₂", "😀₃", "😀₄", "!"]),
        ([b" \xf0\x9f", b"\x98\x80"], [" 😀₁", "😀₂"]),
        ([b"\xc3\xa9\xc3", b"\xa8"], ["éè₁", "è₂"]),
        ([b"\xf0\x9f"], ["‹F0 9F›"]),
        ([b"a\xff", b"\xc3", b"b", b""], ["a‹FF›", "‹C3›", "b", ""]),
    ],
)
def test_a_shared_character_stands_in_each_of_its_tokens(tokens, shown):
    assert whole_characters(tokens) == shown


def test_any_cut_of_a_text_shows_its_characters_and_no_bytes():
    text, dice = "naïve 😀 语言 e\u0301 ok", random.Random(0)
    for _ in range(200):
        cuts = sorted(dice.sample(range(1, len(text.encode())), 8))
        raw = text.encode()
        tokens = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
        shown = "".join(whole_characters(tokens))
        # Every character once for each token that has a part of it.
        assert re.sub(r"(.)₁(?:\1[₂₃₄])*", r"\1", shown) == text


def test_byte_tokens_of_other_programs_are_bytes_too():
    vocabulary = [("<unk>", 0.0), ("▁h", -1.0), ("<0xF0>", -2.0), ("<0x9F>", -2.0), ("<0x98>", -2.0), ("<0x80>", -2.0)]
    inner = Foreign(models.Unigram(vocabulary, 0, byte_fallback=True))
    inner.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = ForeignTokenizer(inner)
    ids = [1, 2, 3, 4, 5]
    assert tokenizer.decode(ids).strip() == "h😀"
    assert tokenizer.labels(ids) == ["▁h", "😀₁", "😀₂", "😀₃", "😀₄"]
    assert tokenizer.words(ids)[0] == ["h😀"]

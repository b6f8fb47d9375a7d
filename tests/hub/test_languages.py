"""The token of a source's language stands where transformers puts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from headway.errors import InputError
from headway.hub.vocabularies import read_tokenizer

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
PIECES = ["▁", "a", "b", "▁a"]
UNIGRAM = [(piece, 0.0) for piece in SPECIALS] + [(piece, -2.0) for piece in PIECES]
KINDS: dict[str, Any] = {
    "MBartTokenizer": {"vocab": UNIGRAM, "src_lang": "de_DE"},
    "MBart50Tokenizer": {"vocab": UNIGRAM, "src_lang": "de_DE"},
    "NllbTokenizer": {
        "vocab": {piece: i for i, piece in enumerate(SPECIALS + PIECES)},
        "merges": [("▁", "a")],
        "src_lang": "fra_Latn",
    },
}
OTHERS = {"MBartTokenizer": "fr_XX", "MBart50Tokenizer": "fr_XX", "NllbTokenizer": "deu_Latn"}


def agree(folder: Path) -> None:
    theirs, mine = transformers.AutoTokenizer.from_pretrained(folder), read_tokenizer(folder)
    texts = ["a b", "aab", "", "b </s> a"]
    assert mine.framed_batch(texts) == [theirs(text).input_ids for text in texts]
    assert [[*mine.opening, *ids, *mine.closing] for ids in mine.encode_batch(texts)] == mine.framed_batch(texts)


def test_the_words_of_mpnet_stand_between_its_own_signs(tmp_path: Path) -> None:
    """A vocab.txt as BERT's, a frame as RoBERTa's."""
    words = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "the", "cat", "##s", "sat", "<mask>"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mpnet"}))
    theirs, mine = transformers.MPNetTokenizer.from_pretrained(tmp_path), read_tokenizer(tmp_path)
    texts = ["The cats sat", "the <mask> zebra", ""]
    assert mine.framed_batch(texts) == [theirs(text).input_ids for text in texts]
    assert mine.template.encode("the cat", "sat").ids == theirs("the cat", "sat").input_ids


@pytest.mark.parametrize("kind", KINDS)
def test_the_language_that_the_folder_names(tmp_path: Path, kind: str) -> None:
    getattr(transformers, kind)(**KINDS[kind]).save_pretrained(tmp_path)
    agree(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    facts = json.loads(path.read_text())
    changes: list[dict[str, Any]] = [{"src_lang": OTHERS[kind]}, {"src_lang": None}, {"legacy_behaviour": True}]
    for change in changes if kind == "NllbTokenizer" else changes[:2]:
        path.write_text(json.dumps(facts | change))
        agree(tmp_path)
    path.write_text(json.dumps(facts | {"src_lang": "xx_XX"}))
    with pytest.raises(InputError, match="the tokenizer has no token 'xx_XX'"):
        read_tokenizer(tmp_path)

"""Vocabularies with a token for a gap."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import transformers

from headway.errors import InputError
from headway.text.foreign import ForeignTokenizer
from headway.text.masked_vocabulary import IDS, learn
from headway.text.tokenizer import TextOptions, Tokenizer

TEXTS = ["The dogs barked at the barking dog.", "Naïve dogs bark; barked dogs run!", "A dog [MASK] runs and barks."] * 3
AGAIN = """
from headway.text.masked_vocabulary import learn
from headway.text.tokenizer import TextOptions
print(learn({texts!r}, TextOptions(kind={kind!r}, size=300, lowercase=True)).fingerprint)
"""


@pytest.mark.parametrize("kind", IDS)
def test_special_tokens_come_first_and_stand_around_texts(kind: str, tmp_path: Path) -> None:
    found = learn(TEXTS, TextOptions(kind=kind, size=300, lowercase=True))  # type: ignore[arg-type]
    assert [found.inner.id_to_token(i) for i in range(5)] == IDS[kind]
    assert found.mask == 4 and len(found.opening) == len(found.closing) == 1
    mask = str(found.settings.mask)
    framed = found.inner.encode(f"the {mask} barked").ids
    assert framed[0] == found.opening[0] and framed[-1] == found.closing[0] and framed.count(4) == 1
    assert found.decode(found.encode("the dog barked")).strip() == "the dog barked"
    found.save(tmp_path / "tokenizer.json")
    again = ForeignTokenizer.load(tmp_path / "tokenizer.json")
    assert again.fingerprint == found.fingerprint and again.mask == 4


def test_wordpiece_splits_as_berts_own_tokenizer_does(tmp_path: Path) -> None:
    found = learn(TEXTS, TextOptions(kind="wordpiece", size=120, lowercase=True))
    vocabulary = found.inner.get_vocab()
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    theirs = transformers.BertTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=True)
    for text in ("Naive DOGS, barking?", "a dogbark 中 runs", "the [MASK] barked"):
        assert found.inner.encode(text).ids == theirs(text)["input_ids"]
    pair = found.inner.encode("a dog", "barks")
    assert pair.type_ids == theirs("a dog", "barks")["token_type_ids"]


@pytest.mark.parametrize("kind", IDS)
def test_another_process_learns_the_same_file(kind: str) -> None:
    """The library's own order of letters differs from process to process."""
    code = AGAIN.format(texts=TEXTS, kind=kind)
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    assert told == learn(TEXTS, TextOptions(kind=kind, size=300, lowercase=True)).fingerprint  # type: ignore[arg-type]


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(InputError, match="masked words need data.text.kind=wordpiece .BERT's. or bpe"):
        learn(TEXTS, TextOptions(kind="word"))
    with pytest.raises(InputError, match="needs at least .* entries"):
        learn(TEXTS, TextOptions(kind="wordpiece", size=10))
    with pytest.raises(InputError, match="no text to learn a vocabulary from"):
        learn(["", "  "], TextOptions(kind="wordpiece"))
    with pytest.raises(InputError, match="wordpiece is for masked words"):
        Tokenizer.train(TEXTS, TextOptions(kind="wordpiece"))

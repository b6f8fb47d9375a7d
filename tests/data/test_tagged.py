"""Texts with a label for each word: forms of files, and words that are cut into several tokens."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from headway.batch import IGNORED
from headway.data.tagged import Sentence, TaggedStore, align, bio, hold_out_tagged, labels_of, read_tagged
from headway.errors import InputError
from headway.text.framing import frame
from headway.text.tokenizer import TextOptions, Tokenizer

COLUMNS = """-DOCSTART- -X- O O

U.N. NNP I-NP I-ORG
official NN I-NP O
# # I-NP O

Ekeus\tNNP\tI-NP\tI-PER
Rolf NNP I-NP B-PER
Baghdad NNP I-NP I-LOC
"""


def test_conlls_columns_and_json_lines(tmp_path: Path) -> None:
    columns, objects = tmp_path / "eng.train.gz", tmp_path / "more.jsonl"
    columns.write_bytes(gzip.compress(COLUMNS.encode()))
    objects.write_text(json.dumps({"words": ["a", "b"], "labels": ["X", "Y"]}) + '\n{"words": [], "labels": []}\n')
    found = read_tagged([columns, objects])
    assert found == [
        Sentence(("U.N.", "official", "#"), ("B-ORG", "O", "O")),
        Sentence(("Ekeus", "Rolf", "Baghdad"), ("B-PER", "B-PER", "B-LOC")),
        Sentence(("a", "b"), ("X", "Y")),
    ]
    assert labels_of(found) == ("O", "B-LOC", "B-ORG", "B-PER", "X", "Y")
    assert [found[0].text[start:end] for start, end in found[0].spans] == ["U.N.", "official", "#"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "EU I-ORG\nrejects\n", r"a\.txt, line 2: one column; expected a word"),
        ("a.txt", "\n\n", r"a\.txt: there is no sentence in it"),
        ("a.jsonl", '{"words": ["a", "b"], "labels": ["O"]}\n', r"a\.jsonl, line 1: 2 words, 1 labels"),
        ("a.jsonl", '{"words": ["New York"], "labels": ["O"]}\n', r"line 1: 'words' must be a list of strings"),
        ("a.jsonl", '{"words": ["a"]}\n', r"line 1: 'labels' must be a list of strings"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_tagged([tmp_path / name])


def test_every_chunk_begins_with_b() -> None:
    assert bio(["I-X", "I-X", "B-X", "I-Y", "O", "I-Y"]) == ("B-X", "I-X", "B-X", "B-Y", "O", "B-Y")
    assert bio(["B-X", "I-X", "O", "B-X", "NN", "-LRB-"]) == ("B-X", "I-X", "O", "B-X", "NN", "-LRB-")


def test_equal_sentences_are_held_out_together() -> None:
    sentences = [Sentence((f"word{number % 20}", "b"), ("O", "B-X")) for number in range(60)]
    train, held = hold_out_tagged(sentences, 0.2)
    assert len(held) == 12 and len(train) == 48 and not set(train) & set(held)


@pytest.mark.parametrize("kind", ["bpe", "word", "char"])
def test_words_of_several_tokens_are_numbered_as_the_tokenizers_library_numbers_given_words(kind: str) -> None:
    words = [["U.N.", "official", "don't", "é漢字", "1996-08-22", "(", "x"], ["end"]]
    options = TextOptions(kind=kind, size=290, min_count=1)  # type: ignore[arg-type]
    tokenizer = Tokenizer.train([" ".join(some) for some in words], options)
    sentences = [Sentence(tuple(some), ("O",) * len(some)) for some in words]
    framed = frame(tokenizer, [sentence.text for sentence in sentences], 200, spans=True)
    for sentence, one in zip(sentences, framed, strict=True):
        theirs = tokenizer.template.encode(list(sentence.words), is_pretokenized=True)
        ours = align(one, sentence.spans)
        spaces = [at for at, token in enumerate(ours.ids) if kind == "char" and tokenizer.decode([token]) == " "]
        assert [number for at, number in enumerate(ours.words) if at not in spaces] == theirs.word_ids
        assert all(ours.words[at] is None for at in spaces)
        assert [ours.words[at] for at, first in enumerate(ours.starts) if first] == list(range(len(sentence.words)))
        if kind == "bpe" and len(sentence.words) > 1:
            assert len(ours.ids) > len(sentence.words) + 2 and one.words != ours.words


def test_labels_stand_at_the_first_tokens_and_come_back_as_labels_of_words() -> None:
    random = np.random.default_rng(0)
    letters, names = list("abcdefgh."), ("O", "B-X", "I-X")
    sentences = [
        Sentence(
            tuple("".join(random.choice(letters, random.integers(1, 9))) for _ in range(count)),
            tuple(random.choice(names, count).tolist()),
        )
        for count in random.integers(1, 12, 40)
    ]
    tokenizer = Tokenizer.train([sentence.text for sentence in sentences], TextOptions(size=270, min_count=1))
    framed = frame(tokenizer, [sentence.text for sentence in sentences], 20, truncate=True, spans=True)
    store = TaggedStore(sentences, framed, {name: number for number, name in enumerate(names)}, pad=0)
    seen = []
    for batch in store.batches(budget=128, seed=3).epoch():
        assert batch.tokens == int((batch.labels_BT != IGNORED).sum())
        for example, ids_T, labels_T in zip(batch.examples, batch.inputs.ids_BT, batch.labels_BT, strict=True):
            kept = sum(store.framed[example].starts)
            whole = sentences[example].labels
            assert store.named(example, labels_T.tolist(), names) == [*whole[:kept], *["O"] * (len(whole) - kept)]
            assert not ids_T[len(store.framed[example].ids) :].any()
            seen.append(example)
    assert sorted(seen) == list(range(40)) and any(
        len(s.words) > sum(f.starts) for s, f in zip(sentences, store.framed, strict=True)
    )

"""Texts with a label for each word: forms of files, and words that are cut into several tokens."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from headway.batch import IGNORED
from headway.data.tagged import (
    Sentence,
    TaggedStore,
    align,
    aligned,
    hold_out_tagged,
    labels_of,
    refuse_swapped,
)
from headway.data.tagged_files import TagColumns, read_given, read_tagged
from headway.errors import InputError
from headway.text.framing import Framed, frame
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
    objects.write_text(json.dumps({"words": ["a", "b"], "tags": ["X", "Y"]}) + "\n")
    found = read_tagged([columns, objects])
    assert found == [
        Sentence(("U.N.", "official", "#"), ("B-ORG", "O", "O")),
        Sentence(("Ekeus", "Rolf", "Baghdad"), ("B-PER", "B-PER", "B-LOC")),
        Sentence(("a", "b"), ("X", "Y")),
    ]
    assert labels_of(found) == ("O", "B-LOC", "B-ORG", "B-PER", "X", "Y")
    assert [found[0].text[start:end] for start, end in found[0].spans] == ["U.N.", "official", "#"]


TREEBANK = """# text = We've cats.
1-2\tWe've\t_\t_\t_\t_\t_\t_\t_\t_
1\tWe\twe\tPRON\tPRP\t_\t3\tnsubj\t_\t_
2\t've\thave\tAUX\tVBP\t_\t3\taux\t_\t_
2.1\tseen\tsee\tVERB\tVBN\t_\t_\t_\t_\t_
3\t#cats\tcat\tNOUN\tNNS\t_\t0\troot\t_\tSpaceAfter=No

# the second
1\tNo one\tno\tPRON\tNN\t_\t0\troot\t_\t_
"""


def test_columns_are_chosen_by_number_or_by_the_treebanks_names(tmp_path: Path) -> None:
    treebank, chunks = tmp_path / "en.conllu.gz", tmp_path / "eng.txt"
    treebank.write_bytes(gzip.compress(TREEBANK.encode()))
    chunks.write_text(COLUMNS)
    words = [("We", "'ve", "#cats"), ("No one",)]
    assert [one.words for one in read_tagged([treebank])] == words
    assert [one.labels for one in read_tagged([treebank])] == [("PRON", "AUX", "NOUN"), ("PRON",)]
    for column in ("xpos", "XPOS", "5"):
        found = read_tagged([treebank], TagColumns(tags=column))
        assert [one.labels for one in found] == [("PRP", "VBP", "NNS"), ("NN",)]
    assert read_tagged([treebank], TagColumns(words="lemma"))[0].words == ("we", "have", "cat")
    assert read_tagged([chunks], TagColumns(tags="2"))[0].labels == ("NNP", "NN", "#")
    assert read_tagged([chunks], TagColumns(words="2", tags="3"))[1] == Sentence(("NNP",) * 3, ("B-NP", "I-NP", "I-NP"))


def test_swapped_columns_are_refused() -> None:
    sentences = [Sentence((f"word{number}", "the"), ("B-X", "O")) for number in range(10)]
    refuse_swapped(sentences, ["a.conll"])
    with pytest.raises(
        InputError, match=r"a\.conll: 2 different words \(O, B-X …\) and 11 different tags \(the, word0, "
    ):
        refuse_swapped([Sentence(one.labels, one.words) for one in sentences], ["a.conll"])


def test_words_without_tags_are_read_where_none_are_needed(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("a\nb\n\nc\n")
    (tmp_path / "a.jsonl").write_text('{"words": ["a", "b"]}\n{"words": ["c"], "tags": ["X"]}\n')
    plain = TagColumns(required=False)
    found = [[(one.words, one.tags) for one in read_given(tmp_path / name, plain)] for name in ("a.conll", "a.jsonl")]
    assert found == [[(("a", "b"), ()), (("c",), ())], [(("a", "b"), ()), (("c",), ("X",))]]
    [_, last] = read_given(tmp_path / "a.conll", plain)
    assert last.where(0) == f"{tmp_path}/a.conll, line 4"


def test_tags_come_in_the_scheme_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(COLUMNS)
    assert [one.labels for one in read_tagged([tmp_path / "a.txt"], scheme="bioes")] == [
        ("S-ORG", "O", "O"), ("S-PER", "S-PER", "S-LOC"),
    ]  # fmt: skip


ROW = "1\ta\ta\tX\tX\t_\t0\troot\t_\t_\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "EU\nrejects\n", r"a\.txt, line 1: one column; expected a word"),
        ("a.txt", "EU I-ORG\nrejects\n", r"a\.txt, line 2: one column, expected 2"),
        ("a.txt", "EU X I-ORG\n\nrejects O\n", r"a\.txt, line 3: 2 columns, expected 3"),
        ("a.txt", "\n\n", r"a\.txt: there is no sentence in it"),
        ("a.txt", "-DOCSTART- O\n\n-DOCSTART- O\n\na O\n", r"a\.txt, line 1: an empty document: no word before"),
        ("a.txt", "a O\n\n-DOCSTART- O\n\n", r"a\.txt, line 3: an empty document: no word follows"),
        ("a.conllu", "# text\n\n", r"a\.conllu, line 1: a sentence without a word ends here"),
        ("a.conllu", ROW + "2\tb X\n", r"a\.conllu, line 2: 2 columns, expected 10"),
        ("a.conllu", ROW.replace("X", " ", 1), r"a\.conllu, line 1: the word or its tag is empty"),
        ("a.jsonl", '{"words": ["a", "b"], "labels": ["O"]}\n', r"a\.jsonl, line 1: 2 words, 1 tags"),
        ("a.jsonl", '{"words": ["New York"], "tags": ["O"]}\n', r"line 1: 'words' must be a list of strings"),
        ("a.jsonl", '{"words": ["\\ud800"], "tags": ["O"]}\n', r"line 1: 'words' holds half a surrogate pair"),
        ("a.jsonl", '{"words": ["a"]}\n', r"line 1: no key 'tags'; there is: words"),
        ("a.jsonl", '{"words": ["a"], "tags": ["O"]}\n{"words": [], "tags": []}\n', r"line 2: no words; leave"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_tagged([tmp_path / name])


@pytest.mark.parametrize("column", ["0", "3", "upos"])
def test_a_column_that_is_not_there_is_refused(tmp_path: Path, column: str) -> None:
    (tmp_path / "a.txt").write_text("a O\n")
    with pytest.raises(InputError, match=rf"a\.txt, line 1: --label-column {column}: give a number from 1 to 2"):
        read_tagged([tmp_path / "a.txt"], TagColumns(tags=column))


def test_a_tag_that_the_model_lacks_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a O\nb I-PER\n\nc E-PRE\n")
    known = ("O", "B-PER", "B-PRE")
    assert len(read_tagged([tmp_path / "a.txt"], known=known)) == 2  # other marks of a type that it has are no fault
    with pytest.raises(InputError, match=r"a\.txt, line 4: the model has no tag 'E-PRE'; did you mean 'B-PER'\?"):
        read_tagged([tmp_path / "a.txt"], known=known[:2])


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


def test_a_column_beside_the_words_stands_behind_their_letters(tmp_path: Path) -> None:
    file = tmp_path / "a.conll"
    file.write_text("Confidence NN B-NP\nin IN B-PP\n\n")
    [sentence] = read_tagged([file], TagColumns(beside="2"))
    assert sentence.beside == ("NN", "IN")
    letters = np.zeros((4, 8), np.uint8)
    for row, word in ((1, b"Confiden"), (2, b"in")):
        letters[row, : len(word)] = np.frombuffer(word, np.uint8) + 1
    framed = Framed([0, 5, 6, 1], None, ((0, 0), (0, 10), (11, 13), (0, 0)), (None, 0, 1, None), letters=letters)
    found = aligned(framed, sentence).letters
    assert bytes(found[1] - 1) == b"Confi\x1fNN" and bytes(found[2][:5] - 1) == b"in\x1fIN"
    assert not found[[0, 3]].any() and not found[2][5:].any()
    assert aligned(framed, sentence._replace(beside=())).letters is letters
    with pytest.raises(InputError, match=r"a\.conll, line 1: no column '4' \(data\.beside\).*there are: 1, 2, 3"):
        read_tagged([file], TagColumns(beside="4"))
    (tmp_path / "b.jsonl").write_text('{"words": ["a", "b"], "tags": ["O", "O"], "pos": ["DT", "NN"], "id": [1]}\n')
    assert read_tagged([tmp_path / "b.jsonl"], TagColumns(beside="pos"))[0].beside == ("DT", "NN")

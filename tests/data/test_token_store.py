"""Documents as ids on disk: everything comes back, counted, once encoded, within bounded memory."""

import json
import os
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from headway.data import token_store as module
from headway.data.documents import Documents
from headway.data.store import PairStore
from headway.data.token_store import TokenStore, prepare_documents, train_document_tokenizer
from headway.errors import InputError
from headway.text.tokenizer import END, PAD, UNKNOWN, TextOptions, Tokenizer

TEXTS = [f"Act {n}.\n\n  Enter the cat, to {'the dog ' * (n % 7)}\nexeunt 😀" for n in range(60)]
OPTIONS = TextOptions(size=300, exact=True)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS, OPTIONS)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHARACTERS_AT_ONCE", 500)


def jsonl(path: Path, texts: list[str]) -> Documents:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return Documents.at(path)


def test_every_document_comes_back_with_an_end_behind_it(tmp_path: Path, tokenizer: Tokenizer) -> None:
    store = prepare_documents(jsonl(tmp_path / "a.jsonl", TEXTS), tokenizer, tmp_path / "c")
    assert len(store) == len(TEXTS) and not store.reused
    for i, text in enumerate(TEXTS):
        ids = store.documents[i]
        assert ids[-1] == END and END not in ids[:-1] and tokenizer.decode(ids) == text and ids.dtype == np.uint16
    row = np.concatenate([store.documents[i] for i in range(len(store))])
    assert store.tokens == len(row) and store.counts().tolist() == np.bincount(row).tolist()
    assert store.windows([0, 5, 300], 40).tolist() == [row[at : at + 40].tolist() for at in (0, 5, 300)]
    joined = "".join(TEXTS)
    amount = store.amount
    assert (amount.documents, amount.characters, amount.bytes) == (60, len(joined), len(joined.encode()))
    assert amount.words == sum(len(text.split()) for text in TEXTS) and amount.unknown == amount.empty == 0
    names = {"documents.ids.bin", "documents.offsets.npy", "store.json", "checksums.json"}
    assert set(os.listdir(store.folder)) == names


@pytest.mark.parametrize("kind", ["char", "word", "bpe"])
def test_a_text_in_many_pieces_is_one_document(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(TEXTS) + "\n" + ("no-end-of-this-word" * 9 if kind != "word" else "")
    chunks = Documents.chunks
    monkeypatch.setattr(Documents, "chunks", lambda self, size=70: chunks(self, 70))
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    corpus = Documents.at(tmp_path / "a.txt")
    learned = train_document_tokenizer(corpus, TextOptions(kind=kind, size=700, min_count=1, exact=True))  # type: ignore[arg-type]
    store = prepare_documents(corpus, learned, tmp_path / "c")
    assert len(store) == 1 and learned.decode(store.documents[0]) == text
    assert store.amount.words == len(text.split()) and store.amount.characters == len(text)


def test_empty_documents_are_left_out_and_unknown_ids_are_counted(tmp_path: Path) -> None:
    letters = Tokenizer.train(["abc \n"], TextOptions(kind="char"))
    store = prepare_documents(jsonl(tmp_path / "a.jsonl", ["", "ab", "", " \n", "axbyz"]), letters, tmp_path / "c")
    assert len(store) == 3 and store.amount.empty == 2 and store.amount.unknown == 3
    assert store.documents[1].tolist() == [*letters.encode(" \n"), END]
    assert (store.documents[2] == UNKNOWN).sum() == 3 and PAD not in store.documents[2]
    with pytest.raises(InputError, match="there is no text: all of 2 documents are empty"):
        prepare_documents(jsonl(tmp_path / "b.jsonl", ["", ""]), letters, tmp_path / "c")
    assert len(os.listdir(tmp_path / "c")) == 1


def test_a_store_is_found_again_by_content_and_made_anew_when_anything_differs(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    first = prepare_documents(jsonl(tmp_path / "a.jsonl", TEXTS), tokenizer, tmp_path / "c")
    again = prepare_documents(jsonl(tmp_path / "b.jsonl", TEXTS), tokenizer, tmp_path / "c")
    assert again.reused and again.folder == first.folder
    other = Tokenizer.train(TEXTS[:2], OPTIONS)
    plain = tmp_path / "a.txt"
    plain.write_bytes((tmp_path / "a.jsonl").read_bytes())
    two = Documents((*Documents.at(plain).files, *Documents.at(plain).files))
    made = [
        prepare_documents(jsonl(tmp_path / "b.jsonl", TEXTS[1:]), tokenizer, tmp_path / "c"),
        prepare_documents(jsonl(tmp_path / "b.jsonl", TEXTS), other, tmp_path / "c"),
        prepare_documents(Documents.at(plain), tokenizer, tmp_path / "c"),
        prepare_documents(two, tokenizer, tmp_path / "c"),
    ]
    assert len({store.folder for store in (first, *made)}) == 5 and not any(store.reused for store in made)


@pytest.mark.parametrize("name", ["documents.ids.bin", "documents.offsets.npy", "store.json"])
def test_a_store_that_was_cut_is_made_again(tmp_path: Path, tokenizer: Tokenizer, name: str) -> None:
    corpus = jsonl(tmp_path / "a.jsonl", TEXTS)
    broken = prepare_documents(corpus, tokenizer, tmp_path / "c").folder / name
    broken.write_bytes(broken.read_bytes()[:-2])
    with pytest.raises(InputError, match="not a complete store of documents"):
        TokenStore(broken.parent)
    again = prepare_documents(corpus, tokenizer, tmp_path / "c")
    assert not again.reused and tokenizer.decode(again.documents[59]) == TEXTS[59]
    with pytest.raises(InputError, match="not a complete store of sentence pairs"):
        PairStore(again.folder)


def test_a_bad_line_or_an_interruption_leaves_nothing(tmp_path: Path, tokenizer: Tokenizer) -> None:
    corpus = jsonl(tmp_path / "a.jsonl", TEXTS)
    told: list[int] = []

    def interrupt(characters: int) -> None:
        told.append(characters)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_documents(corpus, tokenizer, tmp_path / "c", progress=interrupt)
    assert 500 <= told[0] < 700
    with (tmp_path / "a.jsonl").open("a") as stream:
        stream.write("{}\n")
    with pytest.raises(InputError, match="line 61: no key 'text'"):
        prepare_documents(corpus, tokenizer, tmp_path / "c")
    assert os.listdir(tmp_path / "c") == []


def test_a_vocabulary_for_sentences_is_refused(tmp_path: Path) -> None:
    sentences = Tokenizer.train(TEXTS, TextOptions(size=300))
    with pytest.raises(InputError, match="text.exact=true"):
        prepare_documents(jsonl(tmp_path / "a.jsonl", TEXTS), sentences, tmp_path / "c")


def test_a_pickled_store_travels_as_its_place(tmp_path: Path, tokenizer: Tokenizer) -> None:
    store = prepare_documents(jsonl(tmp_path / "a.jsonl", TEXTS), tokenizer, tmp_path / "c")
    packed = pickle.dumps(store)
    assert len(packed) < 1_000 and pickle.loads(packed).documents[7].tolist() == store.documents[7].tolist()


def test_a_large_corpus_is_learned_from_in_part_but_every_character_is_known(tmp_path: Path) -> None:
    text = "the cat sat on the mat\n" * 2000 + "Ω"
    (tmp_path / "a.txt").write_text(text + "\n" + "the dog\n" * 2000, encoding="utf-8")
    corpus = Documents.at(tmp_path / "a.txt")
    letters = train_document_tokenizer(corpus, TextOptions(kind="char"), limit=10)
    assert letters.decode(letters.encode("Ω dog")) == "Ω dog"
    few = train_document_tokenizer(corpus, TextOptions(kind="word", size=99, exact=True), limit=40_000)
    assert few.decode(few.encode("the mat")) == "the mat"


def test_preparing_takes_little_memory_however_large_the_text(tmp_path: Path) -> None:
    """A list of all ids would take eight bytes for each."""
    count = 19 * 60_000
    (tmp_path / "a.txt").write_text("to be or not to be\n" * (count // 19))
    letters = Tokenizer.train(["to be or not\n"], TextOptions(kind="char"))
    tracemalloc.start()
    store = prepare_documents(Documents.at(tmp_path / "a.txt"), letters, tmp_path / "c")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert store.tokens == count + 1 and peak < 5 * count

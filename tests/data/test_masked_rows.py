"""Rows of sentences with gaps: which text is in them, which tokens are hidden, and what decides it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headway.batch import IGNORED
from headway.data.documents import Documents
from headway.data.masked_rows import Marks, MaskedRows
from headway.data.masking import Masking, Shares
from headway.data.sentences import Cut, SentenceStore, prepare_sentences
from headway.errors import InputError
from headway.text.foreign import ForeignTokenizer
from headway.text.masked_vocabulary import learn
from headway.text.tokenizer import TextOptions

PAD, UNK, CLS, SEP, MASK = range(5)
MARKS = Marks(CLS, SEP, PAD)
DOCUMENTS = [
    [f"n{document} has {'very ' * (number % 7)}long words{number}." for number in range(40)] for document in range(6)
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[ForeignTokenizer, SentenceStore]:
    root = tmp_path_factory.mktemp("documents")
    for number, sentences in enumerate(DOCUMENTS):
        (root / f"{number}.txt").write_text(" ".join(sentences) + "\n")
    tokenizer = learn([" ".join(some) for some in DOCUMENTS], TextOptions(kind="wordpiece", size=70, lowercase=True))
    return tokenizer, prepare_sentences(Documents.at(root), tokenizer, SEP, Cut(longest=29), root / "stores")


def rows_of(world: Any, paired: bool = True, rows: int = 8, seed: int = 1, **shares: Any) -> MaskedRows:
    tokenizer, store = world
    return MaskedRows(store, Masking.of(Shares(**shares), tokenizer), MARKS, rows, 32, seed, paired)


def restored(batch: Any) -> torch.Tensor:
    """The texts as they were before tokens were hidden."""
    ids_BT = batch.inputs.ids_BT.clone()
    there_BP = batch.labels_BP != IGNORED
    row_N = there_BP.nonzero()[:, 0]
    ids_BT[row_N, batch.places_BP[there_BP]] = batch.labels_BP[there_BP]
    return ids_BT


def test_sentences_end_at_marks_lines_and_blank_lines() -> None:
    cut = Cut()
    assert cut.of('He said "No!" Then\nhe left... Why?') == ['He said "No!"', "Then he left...", "Why?"]
    assert Cut("lines").of("one two.\n\nthree") == ["one two.", "three"]


@pytest.mark.parametrize(("documents", "ends"), [("files", [False, False, True]), ("blank-lines", [False, True, True])])
def test_documents_end_with_files_or_at_blank_lines(documents: Any, ends: list[bool], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One. Two.\n \n\nThree.\n")
    found = list(Cut(documents=documents).all(Documents.at(tmp_path)))
    assert found == list(zip(["One.", "Two.", "Three."], ends, strict=True))


def test_a_store_has_every_sentence_and_its_documents(world: Any) -> None:
    tokenizer, store = world
    assert len(store.documents) == len(DOCUMENTS) and store.documents[-1] == len(store)
    ids = store.sentences.ids.tolist()
    assert tokenizer.decode(ids) == tokenizer.decode(
        [i for some in DOCUMENTS for sentence in some for i in tokenizer.encode(sentence)]
    )
    assert ids.count(SEP) == len(DOCUMENTS)


def test_the_texts_of_a_row_follow_each_other_or_do_not(world: Any) -> None:
    """By document and number of the sentence, which the text itself tells."""
    tokenizer, _ = world
    seen = {0: 0, 1: 0}
    for step in range(30):
        batch = rows_of(world).batch(step)
        assert batch.pairs_B is not None and batch.inputs.types_BT is not None
        lengths_B = batch.inputs.with_lengths().lengths_B
        for row, ids in enumerate(restored(batch).tolist()):
            length, label = int(lengths_B[row]), int(batch.pairs_B[row])
            middle = ids.index(SEP)
            first, second = tokenizer.decode(ids[1:middle]), tokenizer.decode(ids[middle + 1 : length])
            assert ids[0] == CLS and ids[length - 1] == SEP and set(ids[length:]) <= {PAD}
            assert batch.inputs.types_BT[row].tolist() == [
                int(middle < at < length) for at in range(len(ids))
            ]  # fmt: skip
            assert first.startswith("n") and second.startswith("n")  # both begin with a sentence
            if len(second) < 3:  # cut before it tells its document
                continue
            whole = " ".join(DOCUMENTS[int(first[1])]).lower()
            squeezed = (first + second).replace(" ", "")
            assert (squeezed in whole.replace(" ", "")) == (label == 0)
            seen[label] += 1
    assert min(seen.values()) > 80  # of 240


def test_rows_without_pairs_are_full_and_run_over_documents(world: Any) -> None:
    batch = rows_of(world, paired=False, rows=20).batch(0)
    assert batch.pairs_B is None and batch.inputs.types_BT is None
    full_B = batch.inputs.with_lengths().lengths_B == 32
    assert int((~full_B).sum()) <= 1  # the last of the text
    ids_BT = restored(batch)
    assert (ids_BT[:, 0] == CLS).all() and (ids_BT[full_B, -1] == SEP).all()
    assert (ids_BT[:, 1:-1] == SEP).any()


def test_an_epoch_has_every_sentence_and_its_rows_are_cut_elsewhere_each_time(world: Any) -> None:
    rows = rows_of(world, paired=False, rows=1)
    read = torch.cat([restored(batch)[0, 1:-1] for batch in rows.epoch()])
    tokens = torch.from_numpy(world[1].sentences.ids[:].astype(np.int64))
    assert set(read.tolist()) - {PAD} == set(tokens.tolist())
    firsts = [set(rows._order(epoch).tolist()) for epoch in range(3)]
    assert firsts[0] != firsts[1] and all(len(rows._order(epoch)) == rows.count for epoch in range(3))


@pytest.mark.parametrize("whole", [False, True])
def test_the_shares_of_hidden_tokens_are_those_asked_for(world: Any, whole: bool) -> None:
    rows = rows_of(world, rows=64, chosen=0.2, mask=0.5, random=0.3, whole_words=whole)
    chosen = plain = masked = kept = 0
    for step in range(40):
        batch = rows.batch(step)
        there_BP = batch.labels_BP != IGNORED
        before_BT, shown_BT = restored(batch), batch.inputs.ids_BT
        shown = shown_BT.gather(1, batch.places_BP)[there_BP]
        chosen, plain = chosen + int(there_BP.sum()), plain + int((before_BT > MASK).sum())
        masked, kept = masked + int((shown == MASK).sum()), kept + int((shown == batch.labels_BP[there_BP]).sum())
        assert (batch.labels_BP[there_BP] > MASK).all()
        assert int((before_BT != shown_BT).sum()) <= int(there_BP.sum())
    assert chosen / plain == pytest.approx(0.2, abs=0.015)
    assert masked / chosen == pytest.approx(0.5, abs=0.02)
    assert kept / chosen == pytest.approx(0.2 + 0.3 / 65, abs=0.02)  # some are replaced by themselves


def test_whole_words_are_hidden_whole(world: Any) -> None:
    tokenizer, _ = world
    batch = rows_of(world, rows=32, mask=1.0, random=0.0, whole_words=True).batch(3)
    split = 0
    for shown, ids in zip(batch.inputs.ids_BT.tolist(), restored(batch).tolist(), strict=True):
        words, owner = tokenizer.words(ids)
        hidden = [{at == MASK for at, word in zip(shown, owner, strict=True) if word == n} for n in range(len(words))]
        assert all(len(some) == 1 for some in hidden)
        split += sum(owner.count(n) > 1 and hidden[n] == {True} for n in range(len(words)))
    assert split > 5


def test_a_batch_is_a_function_of_seed_and_step(world: Any) -> None:
    def same(one: Any, other: Any) -> bool:
        pairs = list(zip(one.tensors(), other.tensors(), strict=False))
        return all(a.shape == b.shape and torch.equal(a, b) for (_, a), (_, b) in pairs)

    rows = rows_of(world)
    assert same(rows.batch(7), rows_of(world).batch(7))
    assert not same(rows.batch(7), rows.batch(8)) and not same(rows.batch(7), rows_of(world, seed=2).batch(7))
    again = int(rows.per_epoch + 1)
    assert not same(rows.batch(0), rows.batch(again))


@pytest.mark.parametrize(("name", "text"), [("a.jsonl", '{"text": "One."}\n{"text": " "}\n'), ("a.txt", " \n \n")])
def test_an_empty_document_is_named_by_file_and_line(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    line = text.count("\n") if name.endswith("jsonl") else 1
    with pytest.raises(InputError, match=f"{name}, line {line}: the document is empty: remove it"):
        list(Documents.at(tmp_path / name, filled=True).chunks())


@pytest.mark.parametrize("shares", [{"chosen": 0.0}, {"chosen": 1.5}, {"mask": 0.9, "random": 0.2}, {"mask": -0.1}])
def test_shares_that_make_no_sense_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"data\.mask\."):
        Shares(**shares)

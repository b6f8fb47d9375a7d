"""Answers in a text, next sentences and choices, against transformers' own logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from encoder_folders import ENTRIES, their_inputs, write_encoder
from headway.errors import InputError
from headway.tasks.loading import load, task_of

QUESTIONS = [
    ("how old are you?", "the cats sat on the big red mat, a dog ran."),
    ("what is your age", "sat sitting cats"),
    ("what", "the"),
]


def best_span(theirs: Any, inputs: Any, longest: int = 15) -> tuple[int, int, float]:
    """As the question-answering pipeline of transformers 4 chose: both ends over the text and [CLS], then [CLS] out,
    the largest product of an ordered pair of ends. Token numbers."""
    found = theirs(**inputs)
    own = inputs["token_type_ids"][0].bool() & (inputs["input_ids"][0] != ENTRIES.index("[SEP]"))
    own[0] = True
    first, last = (
        logits[0].masked_fill(~own, -10000.0).softmax(0) for logits in (found.start_logits, found.end_logits)
    )
    first[0] = last[0] = 0.0
    best = max(
        (float(first[i] * last[j]), i, j) for i in range(len(first)) for j in range(i, min(i + longest, len(last)))
    )
    return best[1], best[2], best[0]


def test_the_best_answer_is_that_of_the_pipeline(tmp_path: Path) -> None:
    theirs = write_encoder(tmp_path, "ForQuestionAnswering", num_labels=2)
    reader = load(tmp_path, "cpu")
    words = transformers.BertTokenizer.from_pretrained(tmp_path)
    with torch.no_grad():
        for pair, span in zip(QUESTIONS, reader.find(QUESTIONS), strict=True):
            first, last, share = best_span(theirs, their_inputs(tmp_path, [pair]))
            encoding = words(*pair)
            start = encoding.word_to_chars(encoding.token_to_word(first), sequence_index=1).start
            end = encoding.word_to_chars(encoding.token_to_word(last), sequence_index=1).end
            assert (span.start, span.end, span.text) == (start, end, pair[1][start:end])
            assert span.probability == pytest.approx(share, rel=1e-4)


def test_next_sentences_have_two_probabilities(tmp_path: Path) -> None:
    theirs = write_encoder(tmp_path, "ForNextSentencePrediction")
    pair = ("the cat sat", "a dog ran")
    share = theirs(**their_inputs(tmp_path, [pair])).logits[0].softmax(-1)
    found = {guess.text: guess.probability for guess in load(tmp_path, "cpu").classify([pair])[0]}
    assert [found["next"], found["other"]] == pytest.approx(share.tolist(), rel=1e-4)


def test_every_choice_has_a_probability(tmp_path: Path) -> None:
    theirs = write_encoder(tmp_path, "ForMultipleChoice")
    questions = [("how old are you?", ["a cat", "the big red dog", "what is your age"]), ("the cat", ["sat", "ran on"])]
    for (question, choices), found in zip(questions, load(tmp_path, "cpu").choose(questions), strict=True):
        inputs = their_inputs(tmp_path, [(question, choice) for choice in choices])
        share = theirs(**{name: inputs[name][None] for name in inputs}).logits[0].softmax(-1)
        assert found == pytest.approx(share.tolist(), rel=1e-4)


def answers(folder: Path, *lines: str, **options: Any) -> list[Any]:
    return list(task_of(folder).answer(load(folder, "cpu"), lines, options))


def test_lines_have_tabs(tmp_path: Path) -> None:
    write_encoder(tmp_path / "spans", "ForQuestionAnswering", num_labels=2)
    write_encoder(tmp_path / "next", "ForNextSentencePrediction")
    write_encoder(tmp_path / "choice", "ForMultipleChoice")
    found, blank = answers(tmp_path / "spans", "\t".join(QUESTIONS[0]), "")
    assert blank.line == "" and found.values["answer"] == QUESTIONS[0][1][found.values["start"] : found.values["end"]]
    assert found.line == "{answer}\t{probability:.4f}\t{start}-{end}".format(**found.values)
    (found,) = answers(tmp_path / "next", "the cat\ta dog")
    assert sum(found.values["labels"].values()) == pytest.approx(1, abs=1e-5) and found.line.count("\t") == 3
    (found,) = answers(tmp_path / "choice", "the cat\tsat\tran\ta mat")
    assert [text for text, _ in found.values["choices"]] == ["sat", "ran", "a mat"] and json.dumps(found.values)
    with pytest.raises(InputError, match="line 2 is not a question and a text, with a tab between them"):
        answers(tmp_path / "spans", "a\tb", "a question alone")
    with pytest.raises(InputError, match="line 1 is not two texts"):
        answers(tmp_path / "next", "a\tb\tc")
    with pytest.raises(InputError, match="finds answers in a text"):
        load(tmp_path / "spans", "cpu").classify(["a cat"])
    with pytest.raises(InputError, match=r"this model fills no gaps: it chooses among texts \(headway predict\)"):
        load(tmp_path / "choice", "cpu").fill(["a [MASK]"])

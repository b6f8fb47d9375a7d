"""The scores are sacreBLEU's own, reproducible and silent."""

import json
import logging
import os

import pytest
import sacrebleu

from headway.errors import InputError
from headway.evaluate.bleu import bleu_by_length, corpus_bleu, score

REFERENCES = [
    "The cat sat on the mat, didn't it?",
    "A small dog runs through the park.",
    "Two men are talking in the street.",
    "A Girl in a red dress is dancing.",
]
HYPOTHESES = [
    "The cat sat on the mat, did it not?",
    "A small dog runs in the park.",
    "Two men are talking in the street.",
    "a girl in a red dress is dancing.",
]


@pytest.mark.parametrize("tokenize", ["13a", "char", "intl", "none", "zh"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_bleu_and_chrf_are_those_of_sacrebleu(tokenize, lowercase):
    scores = score(HYPOTHESES, REFERENCES, tokenize=tokenize, lowercase=lowercase)
    bleu = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], tokenize=tokenize, lowercase=lowercase)
    chrf = sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES])
    assert scores.bleu == bleu.score and scores.precisions == tuple(bleu.precisions)
    assert scores.brevity_penalty == bleu.bp and scores.length_ratio == bleu.ratio
    if not lowercase:
        assert scores.chrf == chrf.score
    assert corpus_bleu(HYPOTHESES, REFERENCES, tokenize, lowercase) == bleu.score


def test_bleu_by_length_is_that_of_each_group_and_small_groups_join():
    lengths = [1, 2, 5, 6, 7, 11, 12, 13, 24]
    sources = [" ".join(["w"] * length) for length in lengths]
    ours, theirs = ([f"{side[at % 4]} {at}" for at in range(len(lengths))] for side in (HYPOTHESES, REFERENCES))
    found = bleu_by_length(sources, ours, theirs, words=5, fewest=3)
    assert [(row["from"], row["to"], row["count"]) for row in found] == [(1, 5, 3), (6, 24, 6)]
    assert [row["value"] for row in found] == [
        round(corpus_bleu(ours[a:b], theirs[a:b]), 2) for a, b in ((0, 3), (3, 9))
    ]  # fmt: skip
    found = bleu_by_length(sources, ours, theirs, words=5, fewest=1)
    assert [(row["from"], row["to"]) for row in found] == [(1, 5), (6, 10), (11, 15), (16, 24)]
    [alone] = bleu_by_length(sources, ours, theirs, fewest=20)  # too few for any group
    assert (alone["from"], alone["to"], alone["count"]) == (1, 24, 9)


def test_a_perfect_translation_scores_full_marks_and_an_empty_one_none():
    perfect = score(REFERENCES, REFERENCES)
    assert perfect.bleu == pytest.approx(100) and perfect.chrf == pytest.approx(100)
    assert perfect.exact_match == 1 and perfect.sentences == 4
    empty = score([""] * 4, REFERENCES)
    assert empty.bleu == 0 and empty.chrf == 0 and empty.exact_match == 0


def test_exact_match_ignores_outer_space_and_follows_lowercase():
    assert score(HYPOTHESES, REFERENCES).exact_match == 1 / 4
    assert score(HYPOTHESES, REFERENCES, lowercase=True).exact_match == 2 / 4
    assert score([f" {text}\n" for text in REFERENCES], REFERENCES).exact_match == 1


def test_signatures_tell_how_the_score_was_made():
    scores = score(HYPOTHESES, REFERENCES, tokenize="intl", lowercase=True, bootstrap=50)
    for part in ("nrefs:1", "bs:50", "seed:12345", "case:lc", "tok:intl", "smooth:exp"):
        assert part in scores.bleu_signature
    assert "nc:6" in scores.chrf_signature and "bs" not in score(HYPOTHESES, REFERENCES).bleu_signature


def test_intervals_hold_the_score_repeat_exactly_and_ignore_the_environment(monkeypatch):
    first = score(HYPOTHESES * 10, REFERENCES * 10, bootstrap=100)
    assert first.bleu_interval is not None and first.chrf_interval is not None
    assert first.bleu_interval[0] < first.bleu < first.bleu_interval[1]
    assert first.chrf_interval[0] < first.chrf < first.chrf_interval[1]
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert score(HYPOTHESES * 10, REFERENCES * 10, bootstrap=100) == first
    assert os.environ["SACREBLEU_SEED"] == "7"


def test_no_interval_unless_asked_for():
    scores = score(HYPOTHESES, REFERENCES)
    assert scores.bleu_interval is None and scores.chrf_interval is None


def test_text_that_looks_tokenised_is_scored_in_silence(caplog, capfd):
    tokenised = ["a dog runs in the park ."] * 120
    with caplog.at_level(logging.DEBUG):
        score(tokenised, tokenised, bootstrap=40)
        corpus_bleu(tokenised, tokenised)
    assert not caplog.records and capfd.readouterr() == ("", "")


def test_scores_survive_json():
    scores = score(HYPOTHESES, REFERENCES, bootstrap=40)
    plain = scores.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["bleu"] == scores.bleu and plain["bleu_interval"] == list(scores.bleu_interval or ())


def test_wrong_input_is_told_in_one_line():
    with pytest.raises(InputError, match="3 hypotheses but 4 references"):
        score(HYPOTHESES[:3], REFERENCES)
    with pytest.raises(InputError, match="nothing to score"):
        corpus_bleu([], [])
    with pytest.raises(InputError, match="lists of sentences"):
        corpus_bleu("a", "a")
    with pytest.raises(InputError, match="did you mean '13a'"):
        score(HYPOTHESES, REFERENCES, tokenize="13")
    with pytest.raises(InputError, match="offline"):
        corpus_bleu(HYPOTHESES, REFERENCES, tokenize="flores200")
    with pytest.raises(InputError, match="bootstrap=10 is too few"):
        score(HYPOTHESES, REFERENCES, bootstrap=10)


def test_a_packaged_tokeniser_that_is_not_installed_says_what_to_install(monkeypatch):
    monkeypatch.setattr("headway.evaluate.bleu.find_spec", lambda module: None)
    with pytest.raises(InputError, match=r"sacrebleu\[ja\]"):
        corpus_bleu(HYPOTHESES, REFERENCES, tokenize="ja-mecab")


def test_resamples_without_any_match_do_not_break_the_interval():
    found = score(["le chat dort ici .", "q r"], ["le chat dort ici .", "x y"], bootstrap=100)
    assert found.bleu_interval is not None and found.bleu_interval[0] <= found.bleu_interval[1]

"""The translator as a user has it: what it counts, what it takes for the same text, and what it refuses."""

from pathlib import Path

import pytest

from headway.errors import InputError
from headway.tasks.loading import load

FOLDER = Path(__file__).parents[1] / "folders" / "format-1"


@pytest.fixture(scope="module")
def translator():
    return load(FOLDER, "cpu")


def test_progress_counts_the_texts_that_are_done(translator):
    told = []
    texts = ["He drives the car", "", "The cat sleeps", "She sings"]
    found = translator.translate_n(texts, batch=2, progress=told.append)
    assert told == [1, 2, 3] and [bool(one) for one in found] == [True, False, True, True]


def test_runs_of_white_space_count_as_one_space(translator):
    loose, tidy = "  He\tdrives   the\u00a0car ", "He drives the car"
    assert translator.encode([loose]) == translator.encode([tidy])
    assert translator.translate([loose]) == translator.translate([tidy])


def test_a_setting_that_is_none_names_the_nearest_that_is_one(translator):
    with pytest.raises(InputError, match=r"unknown key 'search\.bem'; did you mean 'beam'\?"):
        translator.translate(["He sings"], bem=2)
    with pytest.raises(InputError, match=r"search\.beam must be a whole number, not \"2\""):
        translator.translate(["He sings"], beam="2")


def test_sampled_translations_are_seeded_and_a_stream_joins_to_them(translator):
    texts = ["He drives the car", "", "The cat sleeps"]
    found = translator.sample(texts, seed=3)
    assert found == translator.sample(texts, seed=3, batch=1) and found[1] == "" and found[0]
    assert translator.sample(texts[:1], seed=3) == found[:1]
    assert "".join(translator.stream(texts[2], seed=3)) == found[2]
    many = translator.sample_n(texts[:1], samples=6, temperature=2.0)[0]
    assert len({passage.text for passage in many}) > 1
    best = max(many, key=lambda passage: passage.written.mean)
    assert translator.sample(texts[:1], best_of=6, temperature=2.0) == [best.text]


def test_greedy_samples_are_what_a_beam_of_one_finds(translator):
    texts = ["He drives the car", "The cat sleeps", "She sings"]
    assert translator.sample(texts, temperature=0) == translator.translate(texts, beam=1)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda t: t.sample(["He sings"], beam=3), "a beam is for translate"),
        (lambda t: t.stream(""), "there is nothing to translate"),
        (lambda t: t.stream("He sings", samples=2), "a stream is one text, not 2"),
        (lambda t: t.sample(["He sings"], temprature=1), "unknown setting 'temprature'.*temperature"),
    ],
)
def test_what_cannot_be_sampled_is_one_line(translator, call, line):
    with pytest.raises(InputError, match=line):
        call(translator)

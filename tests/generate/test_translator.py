"""The translator's face: what it counts, what it takes for the same text, and what it refuses."""

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


def test_one_text_instead_of_a_list_is_refused(translator):
    with pytest.raises(InputError, match=r"write \[text\]"):
        translator.translate("He sings")

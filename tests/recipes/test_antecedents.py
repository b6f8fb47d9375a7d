"""Which noun a pronoun of the demo's language goes back to."""

import pytest

from headway.recipes import grammar
from headway.recipes.grammar import Sentence, antecedent, words
from headway.recipes.grammar_words import NOUNS


@pytest.fixture(scope="module")
def many() -> list[Sentence]:
    dice = grammar.Dice(3)
    return [grammar.draw(dice) for _ in range(4000)]


@pytest.mark.parametrize(
    ("source", "pronoun_and_noun"),
    [
        ("The old car is red but it is new.", "it car"),
        ("This girl washes two owls but does not like them.", "them owls"),
        ("The cats hear his sad horses because they are happy.", "they cats"),
        ("He buys the truck and washes it", "it truck"),
        ("She hears the dog because she is happy.", None),  # goes back to a pronoun
        ("He drives the car.", None),
    ],
)
def test_the_noun_that_a_pronoun_goes_back_to_is_known(source: str, pronoun_and_noun: str | None) -> None:
    found, spelled = antecedent(source), words(source)
    assert (None if found is None else " ".join(spelled[at] for at in found)) == pronoun_and_noun


def test_a_pronoun_and_its_noun_agree_in_gender_and_number_in_every_sentence(many: list[Sentence]) -> None:
    """What the French pronoun and the French noun say, found through the alignments."""
    forms: dict[str, set[tuple[str, bool]]] = {}  # autobus is both singular and plural
    for noun in NOUNS.values():
        forms.setdefault(noun.french_singular, set()).add((noun.gender, False))
        forms.setdefault(noun.french_plural, set()).add((noun.gender, True))
    said = {"il": ("m", False), "elle": ("f", False), "ils": ("m", True), "elles": ("f", True),
            "le": ("m", False), "la": ("f", False)}  # fmt: skip
    checked = 0
    for sentence in many:
        if (found := antecedent(sentence.source)) is None:
            continue
        target = words(sentence.target)
        pronoun_word, noun_word = (
            [target[t].lower() for s, t in sentence.sure if s == at] for at in found
        )  # fmt: skip
        if noun_word and pronoun_word and pronoun_word[0] in said and noun_word[0] in forms:
            assert said[pronoun_word[0]] in forms[noun_word[0]], sentence
            checked += 1
    assert checked > 500

"""The demo's language: right French, one answer for each English sentence, alignments that hold."""

from collections import Counter

import pytest

from headway.errors import InputError
from headway.recipes import grammar, grammar_words
from headway.recipes.grammar import Sentence, finish, sample, splits, words
from headway.recipes.grammar_rules import (
    Phrase,
    act,
    agree,
    ask_act,
    ask_be,
    be,
    clitic,
    noun_phrase,
    pair,
    place,
    pronoun,
    refer,
    verb_group,
)
from headway.recipes.grammar_words import ADJECTIVES, ALL, DETERMINERS, NOUNS, VERBS

NOTHING = Phrase()
FUNCTION_WORDS = {"ne", "n'", "que", "qu'", "est-ce"}
UNELIDED = {"je", "ne", "le", "la", "de", "que", "ce", "ma", "sa", "beau", "nouveau"}


@pytest.fixture(scope="module")
def many() -> list[Sentence]:
    """Draws as they come: repeated sentences and very short ones too."""
    dice = grammar.Dice(3)
    return [grammar.draw(dice) for _ in range(20_000)]


def drive(who: str, how: str = "") -> Sentence:
    return finish(act(pronoun(who), VERBS["drive"], noun_phrase("the", "car").phrase, how), ".")


def linked(sentence: Sentence) -> tuple[set[str], set[str]]:
    """The sure links and the merely possible ones, as "english-french"."""
    source, target = words(sentence.source), words(sentence.target)

    def spell(links: frozenset[tuple[int, int]]) -> set[str]:
        return {f"{source[s]}-{target[t]}" for s, t in links}

    return spell(sentence.sure), spell(sentence.possible - sentence.sure)


def french(phrase: Phrase) -> str:
    return finish(phrase).target


def test_he_drives_the_car() -> None:
    sentence = finish(act(pronoun("he"), VERBS["drive"], noun_phrase("the", "car").phrase))
    assert sentence == Sentence(
        "He drives the car",
        "Il conduit la voiture",
        frozenset({(0, 0), (1, 1), (2, 2), (3, 3)}),
        frozenset({(0, 0), (1, 1), (2, 2), (3, 3)}),
    )
    assert drive("he").target == "Il conduit la voiture."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Il conduit la voiture.", ["Il", "conduit", "la", "voiture", "."]),
        (
            "Est-ce qu'il n'aime pas l'homme ?",
            ["Est-ce", "qu'", "il", "n'", "aime", "pas", "l'", "homme", "?"],
        ),
        ("Does he sleep?", ["Does", "he", "sleep", "?"]),
        ("L’homme dort", ["L’", "homme", "dort"]),
        ("", []),
    ],
)
def test_words_split_at_spaces_apostrophes_and_punctuation(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        ("I", "Je conduis la voiture."),
        ("she", "Elle conduit la voiture."),
        ("we", "Nous conduisons la voiture."),
        ("they", "Ils conduisent la voiture."),
    ],
)
def test_verbs_agree_with_their_subject(who: str, expected: str) -> None:
    assert drive(who).target == expected


@pytest.mark.parametrize(
    ("determiner", "noun", "plural", "adjectives", "english", "expected"),
    [
        ("the", "car", False, ("small", "red"), "The small red car", "La petite voiture rouge"),
        ("the", "horse", True, ("big", "white"), "The big white horses", "Les grands chevaux blancs"),
        ("these", "story", True, ("old", "sad"), "These old sad stories", "Ces vieilles histoires tristes"),
        ("a", "man", False, ("old",), "An old man", "Un vieil homme"),
        ("this", "bird", False, ("beautiful", "black"), "This beautiful black bird", "Ce bel oiseau noir"),
        ("this", "hotel", False, (), "This hotel", "Cet hôtel"),
        ("the", "hotel", False, ("new",), "The new hotel", "Le nouvel hôtel"),
        ("the", "owl", False, ("old",), "The old owl", "Le vieux hibou"),
        ("this", "owl", False, (), "This owl", "Ce hibou"),
        ("the", "owl", False, (), "The owl", "Le hibou"),
        ("the", "man", False, (), "The man", "L'homme"),
        ("the", "clock", False, (), "The clock", "L'horloge"),
        ("my", "clock", False, (), "My clock", "Mon horloge"),
        ("my", "clock", False, ("new", "blue"), "My new blue clock", "Ma nouvelle horloge bleue"),
        ("her", "brother", False, (), "Her brother", "Son frère"),
        ("his", "aunt", False, (), "His aunt", "Sa tante"),
        ("our", "egg", True, (), "Our eggs", "Nos œufs"),
        ("a", "apple", False, ("good", "green"), "A good green apple", "Une bonne pomme verte"),
    ],
)
def test_noun_phrases_agree_elide_and_order_their_adjectives(
    determiner: str, noun: str, plural: bool, adjectives: tuple[str, ...], english: str, expected: str
) -> None:
    nominal = noun_phrase(determiner, noun, plural=plural, adjectives=adjectives)
    sentence = finish(nominal.phrase)
    assert (sentence.source, sentence.target) == (english, expected)


def test_an_adjective_after_its_noun_crosses_it() -> None:
    sentence = finish(noun_phrase("the", "car", adjectives=("small", "red")).phrase)
    assert sentence.sure == {(0, 0), (1, 1), (2, 3), (3, 2)}


def test_predicates_agree_and_keep_beau_before_a_vowel() -> None:
    cars = noun_phrase("the", "car", plural=True)
    sentence = finish(be(cars, agree(ADJECTIVES["white"], cars.gender, cars.plural), "always"), ".")
    assert sentence.target == "Les voitures sont toujours blanches."
    boy = noun_phrase("the", "boy")
    first = be(boy, agree(ADJECTIVES["beautiful"], "m", False)) + pair("and", "et")
    assert french(first + be(refer(boy), agree(ADJECTIVES["tired"], "m", False))) == (
        "Le garçon est beau et il est fatigué"
    )


def test_negation_stands_around_the_verb() -> None:
    sentence = drive("he", "not")
    assert sentence.source == "He does not drive the car."
    assert sentence.target == "Il ne conduit pas la voiture."
    sure, maybe = linked(sentence)
    assert sure == {"He-Il", "not-pas", "drive-conduit", "the-la", "car-voiture", ".-."}
    assert maybe == {"does-ne", "does-conduit", "does-pas", "not-ne"}


def test_negation_elides_and_never_needs_no_do() -> None:
    eggs = noun_phrase("the", "egg", plural=True).phrase
    assert french(act(pronoun("I"), VERBS["like"], eggs, "not")) == "Je n'aime pas les œufs"
    assert french(act(pronoun("I"), VERBS["like"], eggs)) == "J'aime les œufs"
    sentence = drive("she", "never")
    assert sentence.source == "She never drives the car."
    assert sentence.target == "Elle ne conduit jamais la voiture."
    assert "never-jamais" in linked(sentence)[0]


def test_an_indefinite_object_becomes_de_under_negation() -> None:
    car = noun_phrase("a", "car", negated=True).phrase
    assert french(act(pronoun("we"), VERBS["drive"], car, "not")) == "Nous ne conduisons pas de voiture"
    clock = noun_phrase("a", "clock", negated=True).phrase
    assert french(act(pronoun("she"), VERBS["buy"], clock, "not")) == "Elle n'achète pas d'horloge"


def test_be_is_negated_without_do() -> None:
    sentence = finish(be(noun_phrase("the", "car"), agree(ADJECTIVES["old"], "f", False), "not"), ".")
    assert sentence.source == "The car is not old."
    assert sentence.target == "La voiture n'est pas vieille."
    assert sentence.sure == {(0, 0), (1, 1), (2, 3), (3, 4), (4, 5), (5, 6)}
    assert sentence.possible - sentence.sure == {(3, 2)}


def test_questions_open_with_est_ce_que() -> None:
    car = noun_phrase("the", "car").phrase
    sentence = finish(ask_act(pronoun("he"), VERBS["drive"], car), "?")
    assert sentence.source == "Does he drive the car?"
    assert sentence.target == "Est-ce qu'il conduit la voiture ?"
    assert sentence.sure == {(1, 2), (2, 3), (3, 4), (4, 5), (5, 6)}
    assert sentence.possible - sentence.sure == {(0, 0), (0, 1)}
    assert finish(ask_act(pronoun("they"), VERBS["drive"], car, "often"), "?") == Sentence(
        "Do they often drive the car?",
        "Est-ce qu'ils conduisent souvent la voiture ?",
        frozenset({(1, 2), (2, 4), (3, 3), (4, 5), (5, 6), (6, 7)}),
        frozenset({(0, 0), (0, 1), (1, 2), (2, 4), (3, 3), (4, 5), (5, 6), (6, 7)}),
    )


def test_questions_with_be_move_it_behind_the_subject() -> None:
    sentence = finish(ask_be(noun_phrase("the", "clock"), agree(ADJECTIVES["old"], "f", False)), "?")
    assert sentence.source == "Is the clock old?"
    assert sentence.target == "Est-ce que l'horloge est vieille ?"
    assert sentence.sure == {(0, 4), (1, 2), (2, 3), (3, 5), (4, 6)}
    assert sentence.possible - sentence.sure == {(0, 0), (0, 1)}


@pytest.mark.parametrize(
    ("noun", "plural", "english", "expected"),
    [
        ("car", False, "The car is old but it is red.", "La voiture est vieille mais elle est rouge."),
        ("truck", False, "The truck is old but it is red.", "Le camion est vieux mais il est rouge."),
        (
            "car",
            True,
            "The cars are old but they are red.",
            "Les voitures sont vieilles mais elles sont rouges.",
        ),
        ("bus", True, "The buses are old but they are red.", "Les autobus sont vieux mais ils sont rouges."),
    ],
)
def test_a_subject_pronoun_has_the_gender_of_its_antecedent(
    noun: str, plural: bool, english: str, expected: str
) -> None:
    subject = noun_phrase("the", noun, plural=plural)
    again = refer(subject)
    first = be(subject, agree(ADJECTIVES["old"], subject.gender, plural)) + pair("but", "mais")
    sentence = finish(first + be(again, agree(ADJECTIVES["red"], again.gender, plural)), ".")
    assert (sentence.source, sentence.target) == (english, expected)


@pytest.mark.parametrize(
    ("noun", "plural", "verb", "how", "english", "expected"),
    [
        ("dog", False, "like", "", "the dog and likes it", "le chien et l'aime"),
        ("car", False, "wash", "", "the car and washes it", "la voiture et la lave"),
        ("truck", False, "wash", "not", "the truck and does not wash it", "le camion et ne le lave pas"),
        ("cow", False, "like", "not", "the cow and does not like it", "la vache et ne l'aime pas"),
        ("book", True, "read", "never", "the books and never reads them", "les livres et ne les lit jamais"),
        ("boy", False, "hear", "", "the boy and hears him", "le garçon et l'entend"),
        ("aunt", False, "see", "often", "the aunt and often sees her", "la tante et la voit souvent"),
    ],
)
def test_an_object_pronoun_stands_before_the_verb(
    noun: str, plural: bool, verb: str, how: str, english: str, expected: str
) -> None:
    thing = noun_phrase("the", noun, plural=plural)
    first = act(noun_phrase("the", "girl"), VERBS["see"], thing.phrase) + pair("and", "et")
    sentence = finish(first + verb_group(VERBS[verb], 1, how, clitic(thing)))
    assert sentence.source == f"The girl sees {english}"
    assert sentence.target == f"La fille voit {expected}"


def test_the_links_of_an_object_pronoun_under_negation() -> None:
    thing = noun_phrase("the", "dog")
    sure, maybe = linked(finish(verb_group(VERBS["like"], 1, "not", clitic(thing))))
    assert sure == {"not-pas", "like-aime", "it-l'"}
    assert maybe == {"Does-Ne", "Does-aime", "Does-pas", "not-Ne"}


@pytest.mark.parametrize(
    ("noun", "plural", "expected"),
    [
        ("garden", False, "Il dort près du jardin"),
        ("hotel", False, "Il dort près de l'hôtel"),
        ("house", False, "Il dort près de la maison"),
        ("forest", True, "Il dort près des forêts"),
    ],
)
def test_de_contracts_with_le_and_les_only(noun: str, plural: bool, expected: str) -> None:
    where = place("near", noun_phrase("the", noun, plural=plural))
    assert french(act(pronoun("he"), VERBS["sleep"], where)) == expected


def test_a_contracted_word_has_the_links_of_both_parts() -> None:
    sentence = finish(act(pronoun("he"), VERBS["talk"], pair("to", "à") + noun_phrase("the", "boy").phrase))
    assert (sentence.source, sentence.target) == ("He talks to the boy", "Il parle au garçon")
    assert sentence.sure == {(0, 0), (1, 1), (2, 2), (3, 2), (4, 3)}


def test_several_words_align_with_one() -> None:
    where = place("in front of", noun_phrase("the", "school"))
    sentence = finish(act(pronoun("we"), VERBS["work"], where), ".")
    assert sentence.target == "Nous travaillons devant l'école."
    assert {(2, 2), (3, 2), (4, 2), (5, 3), (6, 4)} <= sentence.sure


def test_because_elides_before_a_pronoun() -> None:
    girl = noun_phrase("the", "girl")
    first = act(girl, VERBS["sing"], NOTHING) + pair("because", "parce que")
    assert french(first + be(refer(girl), agree(ADJECTIVES["happy"], "f", False))) == (
        "La fille chante parce qu'elle est heureuse"
    )


def test_every_english_sentence_has_one_french_answer(many: list[Sentence]) -> None:
    answers: dict[str, str] = {}
    for sentence in many:
        assert answers.setdefault(sentence.source, sentence.target) == sentence.target
    assert len(answers) < len(many)  # some English did come twice


def test_links_are_in_range_and_reach_every_word(many: list[Sentence]) -> None:
    for sentence in many:
        source, target = words(sentence.source), words(sentence.target)
        assert sentence.sure <= sentence.possible
        assert all(0 <= s < len(source) and 0 <= t < len(target) for s, t in sentence.possible)
        assert {s for s, _ in sentence.possible} == set(range(len(source))), sentence.source
        assert {t for _, t in sentence.possible} == set(range(len(target))), sentence.target
        unsure = {target[t].lower() for t in set(range(len(target))) - {t for _, t in sentence.sure}}
        assert unsure <= FUNCTION_WORDS, sentence.target


def test_nouns_link_to_their_own_translation(many: list[Sentence]) -> None:
    french_of = {noun.singular: noun.french_singular for noun in NOUNS.values()}
    french_of |= {noun.plural: noun.french_plural for noun in NOUNS.values()}
    for sentence in many[:5_000]:
        target = words(sentence.target)
        for s, word in enumerate(words(sentence.source)):
            if word in french_of:
                assert [target[t] for i, t in sentence.sure if i == s] == [french_of[word]]


def test_sentences_are_well_spelt_text(many: list[Sentence]) -> None:
    for sentence in many:
        assert sentence.source[0].isupper() and sentence.target[0].isupper()
        assert sentence.source.endswith("?") == sentence.target.endswith(" ?")
        assert sentence.source.endswith(".") == sentence.target.endswith(".")
        assert "  " not in sentence.source + sentence.target and "-" not in words(sentence.target)
        parts = words(sentence.target.replace(" et ", " , "))  # beau et ... is no "bel et ..."
        for word, follower in zip(parts, parts[1:], strict=False):
            assert not (word.lower() in UNELIDED and follower[0] in "aeiouéêœ"), sentence.target
            assert (word.lower(), follower) not in {("de", "le"), ("de", "les"), ("à", "le"), ("à", "les")}


def test_the_vocabulary_is_small_and_every_form_is_met(many: list[Sentence]) -> None:
    forms = Counter(word.lower() for sentence in many for word in words(sentence.target))
    assert 150 <= len(forms) <= 250
    assert min(forms.values()) >= 10
    for table in (NOUNS, ADJECTIVES, DETERMINERS):
        assert all(set(getattr(row, "kinds", ())) <= set(ALL) for row in table.values())
    assert all(len(verb.french.split()) == 4 for verb in VERBS.values())
    assert all(len(row.forms.split()) == 4 for row in (*ADJECTIVES.values(), *DETERMINERS.values()))
    assert all(len(be_form) == 2 for be_form in grammar_words.BE)


def test_the_language_has_more_than_a_million_sentences(many: list[Sentence]) -> None:
    # n draws from N equally likely sentences meet n²/2N pairs of equals; unequal chances only add to them
    long = [sentence.source for sentence in many if len(words(sentence.source)) >= 9]
    pairs = sum(count * (count - 1) // 2 for count in Counter(long).values())
    assert len(long) ** 2 / (2 * max(pairs, 1)) > 1_000_000


def test_sample_depends_on_its_seed_alone() -> None:
    sentences = sample(2_000, seed=3)
    assert sample(500, seed=3) == sentences[:500]
    assert sample(50, seed=4) != sentences[:50]
    assert len({sentence.source for sentence in sentences}) == len(sentences)
    assert all(grammar.SHORTEST <= len(words(s.source)) <= grammar.LONGEST for s in sentences)


def test_sample_is_the_same_on_every_machine() -> None:
    assert [sentence.source for sentence in sample(3, seed=0)] == [
        "My cow is beautiful but it runs in front of the hotel",
        "My mouse is beautiful and it is not small.",
        "These boys are very tired but they are happy.",
    ]


def test_splits_share_no_sentence_and_hold_out_the_example() -> None:
    train, valid, test = splits(train=3_000, valid=200, test=300, seed=1)
    assert [len(train), len(valid), len(test)] == [3_000, 200, 300]
    bare = [{s.source.removesuffix(".") for s in part} for part in (train, valid, test)]
    assert not (bare[0] & bare[1] or bare[0] & bare[2] or bare[1] & bare[2])
    assert all("He drives the car" not in part for part in bare)


def test_the_held_out_example_is_in_the_language_but_in_no_split() -> None:
    first = sample(1, seed=7)[0].source
    assert all(s.source.removesuffix(".") != first.removesuffix(".") for s in sample(200, 7, exclude=[first]))
    assert grammar.HELD_OUT == ("He drives the car",)


def test_impossible_counts_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="count of 0 or more"):
        sample(-1, seed=0)
    with pytest.raises(InputError, match="valid is -5"):
        splits(train=10, valid=-5, test=1)
    monkeypatch.setattr(grammar, "PATIENCE", 0)
    with pytest.raises(InputError, match="ask for fewer"):
        sample(10, seed=0)

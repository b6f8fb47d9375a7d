"""The demo's language: English sentences, their one French translation and the word alignment between them.

`sample` and `splits` draw sentences from a grammar of a few million; `grammar_words` lists its words,
`grammar_rules` composes them. It has gender and number, adjectives on both sides of the noun, elision and
contraction, negation, questions, and pronouns that refer back.

Decisions that keep the French answer unique: there is no "you"; "they" without an antecedent is "ils"; I and
we take masculine adjectives; a pronoun in a second clause refers to the first clause's subject (he, she, it,
they) or object (him, her, it, them).
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from headway.errors import refuse
from headway.recipes import grammar_rules as rules
from headway.recipes import grammar_words as lexicon
from headway.recipes.grammar_rules import Links, Nominal, Phrase, act, be, pair
from headway.recipes.grammar_words import ADJECTIVES, ANIMATE, NOUNS, VERBS, Adjective, Kinds, Verb
from headway.text.words import word_spans

Item = TypeVar("Item")

NOUN_FORMS = frozenset(form for noun in NOUNS.values() for form in (noun.singular, noun.plural))
FORWARD = frozenset(("i", "he", "she", "it", "we", "they"))
BACKWARD = frozenset(("he", "she", "it", "they", "him", "her", "them"))
# In no split, with or without its full stop, so that the demo can show it as unseen.
HELD_OUT = ("He drives the car",)
SHORTEST, LONGEST = 3, 15  # words of an English sentence, its full stop counted
PATIENCE = 10_000  # draws in a row without a new sentence, after which the language counts as exhausted


@dataclass(frozen=True)
class Sentence:
    """An English sentence, its French translation, and links (English, French) between their `words`.

    `sure` links are translations; `possible`, a superset, adds words that only share a function (does, ne).
    """

    source: str
    target: str
    sure: Links
    possible: Links


def words(text: str) -> list[str]:
    """The words that alignments count: split at spaces, after an apostrophe, and before punctuation.

    "Est-ce qu'il dort ?" gives Est-ce, qu', il, dort, ?
    """
    return [text[start:end] for start, end in word_spans(text, "marks")]


def antecedent(source: str) -> tuple[int, int] | None:
    """(pronoun, noun) of an English sentence whose second clause goes back to the first, as numbers of `words`.

    Directly behind the conjunction stands a subject, which goes back to the subject; any other goes back to the object,
    with which the first clause then ends. A pronoun that goes back to a pronoun is none of ours.
    """
    spelled = [word.lower() for word in words(source)]
    joint = next((at for at, word in enumerate(spelled) if word in ("and", "but", "because")), None)
    if joint is None:
        return None
    nouns = [at for at in range(joint) if spelled[at] in NOUN_FORMS]
    pronouns = [at for at in range(joint + 1, len(spelled)) if spelled[at] in BACKWARD]
    if not nouns or not pronouns:
        return None
    if pronouns[0] > joint + 1:
        return pronouns[0], nouns[-1]
    return None if spelled[0] in FORWARD else (pronouns[0], nouns[0])


def finish(clause: Phrase, mark: str = "") -> Sentence:
    """The clause as text, with its sound rules, a capital and the mark: "", "." or "?" (" ?" in French)."""
    phrase = rules.smooth(clause + pair(mark, mark))

    def text(parts: Sequence[str], gap: str) -> str:
        line = " ".join(parts).replace("' ", "'").replace(" .", ".").replace(" ?", gap + "?")
        return line[0].upper() + line[1:]

    return Sentence(text(phrase.source, ""), text(phrase.target, " "), phrase.sure, phrase.sure | phrase.maybe)


# --- Drawing sentences ---


class Dice:
    """Choices from `random()` alone, the one method whose stream Python promises never to change."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def happens(self, probability: float) -> bool:
        return self._random() < probability

    def pick(self, options: Sequence[Item]) -> Item:
        return options[int(self._random() * len(options))]

    def weighted(self, options: Sequence[tuple[float, Item]]) -> Item:
        """One of the items, each with its weight before it; the weights sum to 1."""
        left = self._random()
        for weight, item in options:
            left -= weight
            if left < 0:
                return item
        return options[-1][1]  # rounding


def draw_noun_phrase(
    dice: Dice, kinds: Kinds, *, richness: float = 0.25, definite: bool = False, negated: bool = False
) -> Nominal:
    """A noun of one of the kinds; an adjective on either side of it with probability `richness` each."""
    noun = dice.pick([noun for noun in NOUNS.values() if noun.kind in kinds])
    determiner = lexicon.DETERMINERS["the"]
    if dice.happens(0.6):
        unfit = ("a", "two") if definite else ()
        fitting = [one for one in lexicon.DETERMINERS.values() if noun.kind in one.kinds and one.english not in unfit]
        determiner = dice.pick(fitting)
    plural = dice.happens(0.3) if len(determiner.numbers) == 2 else determiner.numbers[0]
    adjectives: list[Adjective] = []
    for before_noun in (True, False):
        said = [adjective.topic for adjective in adjectives]
        suited = [a for a in describing(noun.kind, said) if a.before_noun == before_noun]
        if suited and dice.happens(richness):
            adjectives.append(dice.pick(suited))
    names = [adjective.english for adjective in adjectives]
    return rules.noun_phrase(determiner.english, noun.singular, plural=plural, adjectives=names, negated=negated)


def describing(kind: str, said: Sequence[str]) -> list[Adjective]:
    """The adjectives for a kind of thing that say nothing on the topics already `said`."""
    return [a for a in ADJECTIVES.values() if kind in a.kinds and a.topic not in said]


def draw_agent(dice: Dice, pronouns: Sequence[str]) -> Nominal:
    """Who does something: one of the pronouns, or a person or animal."""
    if dice.happens(0.5):
        return rules.pronoun(dice.pick(pronouns))
    return draw_noun_phrase(dice, ANIMATE, richness=0.15)


def draw_theme(dice: Dice, pronouns: Sequence[str] = ()) -> Nominal:
    """What something is said of: one of the pronouns, or anything definite."""
    if pronouns and dice.happens(0.3):
        return rules.pronoun(dice.pick(pronouns))
    return draw_noun_phrase(dice, lexicon.ALL, richness=0.15, definite=True)


def draw_place(dice: Dice, kind: str) -> Phrase:
    """in the old house: where something of this kind is. Vehicles stay outside."""
    prepositions = [name for name in lexicon.PLACES if not (name == "in" and kind == "vehicle")]
    return rules.place(dice.pick(prepositions), draw_noun_phrase(dice, ("place",), richness=0.15))


def draw_verb(dice: Dice, subject: Nominal) -> Verb:
    """Something that the subject can do."""
    return dice.pick([verb for verb in VERBS.values() if subject.kind in verb.subjects])


def draw_complement(dice: Dice, verb: Verb, how: str) -> Phrase:
    """What follows the verb: its object, whom one talks to, with whom, where."""
    phrase, kind = Phrase(), "person"
    if verb.objects:
        thing = draw_noun_phrase(dice, verb.objects, richness=0.3, negated=how in lexicon.NEGATIONS)
        phrase, kind = thing.phrase, thing.kind
    elif verb.base == "talk":
        phrase = pair("to", "à") + draw_noun_phrase(dice, lexicon.PEOPLE).phrase
    elif verb.joint and dice.happens(0.25):
        phrase = pair("with", "avec") + draw_noun_phrase(dice, lexicon.PEOPLE).phrase
    if kind != "place" and dice.happens(0.2 if verb.objects else 0.5):
        phrase = phrase + draw_place(dice, kind)
    return phrase


def draw_quality(dice: Dice, subject: Nominal, topics: Sequence[str] = ()) -> tuple[Phrase, str]:
    """A predicate such as "very old" and its topic: one of `topics`, if given, and new for the subject."""
    fitting = describing(subject.kind, subject.topics)
    adjective = dice.pick([a for a in fitting if not topics or a.topic in topics])
    very = pair("very", "très") if adjective.topic != "colour" and dice.happens(0.25) else Phrase()
    return very + rules.agree(adjective, subject.gender, subject.plural), adjective.topic


def draw_how(dice: Dice, lasting: bool = False) -> str:
    """Plain, with an adverb, or negated; `lasting` (one is not often old) leaves plain and "not"."""
    if lasting:
        return "not" if dice.happens(0.3) else ""
    return dice.weighted([(0.6, ""), (0.06, "often"), (0.06, "always"), (0.08, "never"), (0.2, "not")])


# --- The kinds of sentences ---

SPEAKERS = ("I", "he", "she", "we", "they")
ASKED_ABOUT = SPEAKERS[1:]  # not I: "do I see the car?" is no natural question
PASSING = ("mood", "strength")  # topics of states that come and go: often tired, never old
AND, BUT = pair("and", "et"), pair("but", "mais")


def draw_action(dice: Dice) -> Phrase:
    """The girl does not eat the apple in the garden."""
    subject = draw_agent(dice, SPEAKERS)
    verb = draw_verb(dice, subject)
    how = draw_how(dice, verb.lasting)
    return act(subject, verb, draw_complement(dice, verb, how), how)


def draw_state(dice: Dice) -> Phrase:
    """The car is red; she is never in the house."""
    subject = draw_theme(dice, SPEAKERS)
    if subject.kind != "place" and dice.happens(0.3):
        return be(subject, draw_place(dice, subject.kind), draw_how(dice))
    quality, topic = draw_quality(dice, subject)
    return be(subject, quality, draw_how(dice, lasting=topic not in PASSING))


def draw_question(dice: Dice) -> Phrase:
    """Does he drive the car? Is the owl happy?"""
    if dice.happens(0.35):
        subject = draw_theme(dice, ASKED_ABOUT)
        return rules.ask_be(subject, draw_quality(dice, subject)[0])
    subject = draw_agent(dice, ASKED_ABOUT)
    verb = draw_verb(dice, subject)
    how = dice.pick(tuple(lexicon.ADVERBS)) if not verb.lasting and dice.happens(0.15) else ""
    return rules.ask_act(subject, verb, draw_complement(dice, verb, how), how)


def draw_contrast(dice: Dice) -> Phrase:
    """The car is old but it is red; the boy is tired and he does not drive the car."""
    subject = draw_theme(dice)
    quality, topic = draw_quality(dice, subject)
    first = be(subject, quality) + dice.pick((AND, BUT))
    again, how = rules.refer(subject), dice.pick(("", "", "not"))
    if subject.kind in ANIMATE and dice.happens(0.4):
        verb = draw_verb(dice, again)
        return first + act(again, verb, draw_complement(dice, verb, how), how)
    others = [adjective.topic for adjective in ADJECTIVES.values() if adjective.topic != topic]
    return first + be(again, draw_quality(dice, again, others)[0], how)


def draw_reason(dice: Dice) -> Phrase:
    """My sister sings because she is happy."""
    subject = draw_agent(dice, SPEAKERS)
    verb = draw_verb(dice, subject)
    first = act(subject, verb, draw_complement(dice, verb, "")) + pair("because", "parce que")
    again = rules.refer(subject)
    return first + be(again, draw_quality(dice, again, (*PASSING, "age"))[0])


def draw_object_pronoun(dice: Dice) -> Phrase:
    """The girl sees the dog but does not like it."""
    subject = draw_agent(dice, SPEAKERS)
    able = [verb for verb in VERBS.values() if verb.objects and subject.kind in verb.subjects]
    first = dice.pick([verb for verb in able if verb.base != "eat"])  # what is eaten is gone
    thing = draw_noun_phrase(dice, first.objects)
    # one wants, writes or sees a thing before doing more with it, though one may hear it sooner
    odd = (first.base, "want", "write", "" if first.base in ("like", "hear") else "see")
    second = dice.pick([verb for verb in able if thing.kind in verb.objects and verb.base not in odd])
    how = "" if dice.happens(0.4) else "not" if second.lasting else dice.pick(("not", "not", "never"))
    group = rules.verb_group(second, subject.person, how, rules.clitic(thing))
    return act(subject, first, thing.phrase) + (BUT if how else AND) + group


STATEMENTS: tuple[tuple[float, Callable[[Dice], Phrase]], ...] = (
    (0.5, draw_action),
    (0.15, draw_state),
    (0.15, draw_contrast),
    (0.15, draw_object_pronoun),
    (0.05, draw_reason),
)


def draw(dice: Dice) -> Sentence:
    """One sentence; statements end with a full stop or, now and then, with nothing."""
    if dice.happens(0.15):
        return finish(draw_question(dice), "?")
    return finish(dice.weighted(STATEMENTS)(dice), "." if dice.happens(0.7) else "")


def _distinct(seed: int, exclude: Sequence[str] = ()) -> Iterator[Sentence]:
    """Endless sentences; no two differ by a full stop alone, which would leak from one split to another."""
    dice = Dice(seed)
    seen = {source.removesuffix(".") for source in exclude}
    misses = 0
    while misses < PATIENCE:
        sentence = draw(dice)
        key = sentence.source.removesuffix(".")
        if key in seen or not SHORTEST <= len(words(sentence.source)) <= LONGEST:
            misses += 1
            continue
        misses = 0
        seen.add(key)
        yield sentence


def sample(count: int, seed: int, exclude: Sequence[str] = ()) -> list[Sentence]:
    """`count` sentences with distinct English sides, none of them in `exclude`; the same on every machine."""
    refuse(count < 0, f"cannot draw {count} sentences: give a count of 0 or more")
    sentences = list(islice(_distinct(seed, exclude), count))
    refuse(len(sentences) < count, f"the demo's grammar gave only {len(sentences)} of {count} sentences: ask for fewer")
    return sentences


def splits(
    train: int = 15_000, valid: int = 500, test: int = 500, seed: int = 0
) -> tuple[list[Sentence], list[Sentence], list[Sentence]]:
    """Training, validation and test sentences that share no English sentence, `HELD_OUT` in none of them."""
    for name, count in (("train", train), ("valid", valid), ("test", test)):
        refuse(count < 0, f"{name} is {count}: give a count of 0 or more")
    sentences = sample(train + valid + test, seed, HELD_OUT)
    return sentences[:train], sentences[train : train + valid], sentences[train + valid :]

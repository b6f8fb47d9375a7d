"""The rules of the demo's language: how words become English and French phrases that know their alignment.

A sentence is composed from `Phrase`s, which know which of their words translate which, so the alignment comes
out of the construction. Three ways to compose are enough:

    a + b               the red car is | old       la voiture rouge est | vieille
    cross(a, b)         red | car                  voiture | rouge
    negate(a, "not")    does not | drive           ne | conduit | pas

French sound rules (l'homme, du garçon) are applied once, to the finished sentence, by `smooth`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headway.recipes import grammar_words as lexicon
from headway.recipes.grammar_words import ADVERBS, BE, NEGATIONS, Agreeing, Gender, Verb

Links = frozenset[tuple[int, int]]

# --- Phrases: aligned fragments that compose ---


@dataclass(frozen=True)
class Phrase:
    """English words, French words and the links between them; `maybe` are possible but not sure."""

    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    sure: Links = frozenset()
    maybe: Links = frozenset()

    def __add__(self, other: "Phrase") -> "Phrase":
        """Both languages in the same order."""
        moved = other.moved(len(self.source), len(self.target))
        words = self.source + other.source, self.target + other.target
        return Phrase(*words, self.sure | moved.sure, self.maybe | moved.maybe)

    def moved(self, by_source: int, by_target: int) -> "Phrase":
        """The same phrase with its links shifted."""
        both = (self.sure, self.maybe)
        sure, maybe = (frozenset((s + by_source, t + by_target) for s, t in links) for links in both)
        return replace(self, sure=sure, maybe=maybe)


def pair(english: str, french: str) -> Phrase:
    """A word and its translation, or several words that translate as one unit: all linked to all."""
    source, target = tuple(english.split()), tuple(french.split())
    return Phrase(source, target, frozenset((s, t) for s in range(len(source)) for t in range(len(target))))


def cross(first: Phrase, second: Phrase) -> Phrase:
    """English says first, second; French says second, first (red car, voiture rouge)."""
    left, right = first.moved(0, len(second.target)), second.moved(len(first.source), 0)
    words = first.source + second.source, second.target + first.target
    return Phrase(*words, left.sure | right.sure, left.maybe | right.maybe)


def negate(verb: Phrase, negation: str, auxiliary: str = "") -> Phrase:
    """[does] not V: ne V pas. The French words of `verb` end with the verb itself, which clitics precede."""
    opening = (auxiliary, negation) if auxiliary else (negation,)
    core = verb.moved(len(opening), 1)
    word, first, last = len(opening) - 1, 0, len(verb.target) + 1
    maybe = {(word, first)}
    if auxiliary:
        maybe |= {(0, first), (0, last - 1), (0, last)}
    words = opening + verb.source, ("ne", *verb.target, NEGATIONS[negation])
    return Phrase(*words, core.sure | {(word, last)}, core.maybe | maybe)


# --- Sound: what French words do to their neighbours ---


def opens_with_vowel(french: str) -> bool:
    """Whether the word takes elision and bel, cet, mon before it; a mute h counts as a vowel."""
    return french[0] in lexicon.LISTED["vowels"] or (french[0] == "h" and french not in lexicon.LISTED["aspirated"])


ELIDED = {"le": "l'", "la": "l'", "je": "j'", "ne": "n'", "de": "d'", "que": "qu'"}
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}


def elide(target: Sequence[str]) -> list[str]:
    """le homme: l' homme."""
    before_vowel = [*map(opens_with_vowel, target[1:]), False]
    return [ELIDED.get(word, word) if elided else word for word, elided in zip(target, before_vowel, strict=True)]


def smooth(phrase: Phrase) -> Phrase:
    """Elision, then contraction (de le garçon: du garçon); the contracted word has the links of both."""
    target: list[str] = []
    moved_to: list[int] = []  # where each old French word ends up
    for word in elide(phrase.target):
        if target and (target[-1], word) in CONTRACTED:
            target[-1] = CONTRACTED[target[-1], word]
        else:
            target.append(word)
        moved_to.append(len(target) - 1)
    sure, maybe = (frozenset((s, moved_to[t]) for s, t in links) for links in (phrase.sure, phrase.maybe))
    return Phrase(phrase.source, tuple(target), sure, maybe)


# --- Noun phrases and pronouns ---


@dataclass(frozen=True)
class Nominal:
    """A subject or object: its words, and what others must know to agree with it or to refer back to it.

    `person` is 0 for I, 1 for he, she and it, 2 for we, 3 for they; `again` is the English pronoun for it.
    """

    phrase: Phrase
    person: int
    gender: Gender
    again: str
    kind: str = "person"
    topics: tuple[str, ...] = ()  # what its adjectives have said about it already

    @property
    def plural(self) -> bool:
        return self.person >= 2


def agree(word: Agreeing, gender: Gender, plural: bool, before: str = "") -> Phrase:
    """The word with the French form for this gender and number, standing before the French word `before`."""
    forms = word.forms.split()
    if word.before_vowel and not plural and before and opens_with_vowel(before):
        forms = word.before_vowel.split()
    return pair(word.english, forms[2 * plural + (gender == "f")])


def noun_phrase(
    determiner: str, noun: str, *, plural: bool = False, adjectives: Sequence[str] = (), negated: bool = False
) -> Nominal:
    """the small red cars: les petites voitures rouges. `negated`: the object after ne ... pas, de."""
    entry = lexicon.NOUNS[noun]
    described = [lexicon.ADJECTIVES[name] for name in adjectives]
    english, french = (entry.plural, entry.french_plural) if plural else (entry.singular, entry.french_singular)
    phrase = pair(english, french)
    for adjective in reversed(described):
        agreed = agree(adjective, entry.gender, plural, phrase.target[0] if adjective.before_noun else "")
        phrase = agreed + phrase if adjective.before_noun else cross(agreed, phrase)
    article = agree(lexicon.DETERMINERS[determiner], entry.gender, plural, phrase.target[0])
    if determiner == "a":
        article = pair("an" if phrase.source[0][0] in "aeiou" else "a", "de" if negated else article.target[0])
    single = {"m": "he", "f": "she"}[entry.gender] if entry.kind in lexicon.PEOPLE else "it"
    topics = tuple(adjective.topic for adjective in described)
    return Nominal(article + phrase, 3 if plural else 1, entry.gender, "they" if plural else single, entry.kind, topics)


def pronoun(english: str, gender: Gender = "m", kind: str = "person") -> Nominal:
    """I, he, she, it, we or they as a subject; `gender` is the antecedent's and decides it and they."""
    if english in ("he", "she"):
        gender = "m" if english == "he" else "f"
    third = {"m": "il", "f": "elle"}[gender]
    french = {"I": "je", "we": "nous", "they": third + "s"}.get(english, third)
    person = {"I": 0, "we": 2, "they": 3}.get(english, 1)
    return Nominal(pair(english, french), person, gender, english, kind)


def refer(subject: Nominal) -> Nominal:
    """The pronoun that refers back to a subject: the car, it, elle."""
    return replace(pronoun(subject.again, subject.gender, subject.kind), topics=subject.topics)


def clitic(thing: Nominal) -> Phrase:
    """The pronoun that refers back to an object: it, him, her, them; le, la, les."""
    english = {"he": "him", "she": "her", "they": "them"}.get(thing.again, thing.again)
    return pair(english, "les" if thing.plural else {"m": "le", "f": "la"}[thing.gender])


def place(preposition: str, where: Nominal) -> Phrase:
    """near the garden: près du jardin."""
    return pair(preposition, lexicon.PLACES[preposition]) + where.phrase


# --- Clauses: `how` is "", an adverb (often, always) or a negation (not, never) ---


def _do(person: int) -> str:
    return "does" if person == 1 else "do"


def verb_group(verb: Verb, person: int, how: str = "", back: Phrase | None = None, base: bool = False) -> Phrase:
    """often sees it: le voit souvent; does not see it: ne le voit pas. `base`: a "do" stands elsewhere."""
    third = person == 1 and how != "not" and not base
    phrase = pair(verb.third if third else verb.base, verb.french.split()[person])
    if how in ADVERBS:
        phrase = cross(pair(how, ADVERBS[how]), phrase)
    if back:
        phrase = cross(phrase, back)
    if how in NEGATIONS:
        phrase = negate(phrase, how, _do(person) if how == "not" else "")
    return phrase


def act(subject: Nominal, verb: Verb, rest: Phrase, how: str = "") -> Phrase:
    """He does not drive | the car."""
    return subject.phrase + verb_group(verb, subject.person, how) + rest


def ask_act(subject: Nominal, verb: Verb, rest: Phrase, how: str = "") -> Phrase:
    """Does he often drive | the car: est-ce qu'il conduit souvent la voiture."""
    opening = Phrase((_do(subject.person),), ("est-ce", "que"), maybe=frozenset({(0, 0), (0, 1)}))
    return opening + subject.phrase + verb_group(verb, subject.person, how, base=True) + rest


def be(subject: Nominal, rest: Phrase, how: str = "") -> Phrase:
    """The car is not | old: la voiture n'est pas vieille."""
    verb = pair(*BE[subject.person])
    if how in ADVERBS:
        verb = verb + pair(how, ADVERBS[how])
    if how in NEGATIONS:
        # "be" stands before its negation and needs no "do", so `negate` does not fit
        english, french = BE[subject.person]
        sure, maybe = frozenset({(0, 1), (1, 2)}), frozenset({(1, 0)})
        verb = Phrase((english, how), ("ne", french, NEGATIONS[how]), sure, maybe)
    return subject.phrase + verb + rest


def ask_be(subject: Nominal, rest: Phrase) -> Phrase:
    """Is the car | old: est-ce que la voiture est vieille."""
    opening = Phrase((), ("est-ce", "que"))
    phrase = opening + cross(pair(*BE[subject.person]), subject.phrase) + rest
    return replace(phrase, maybe=phrase.maybe | {(0, 0), (0, 1)})

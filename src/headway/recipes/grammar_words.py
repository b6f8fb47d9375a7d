"""The words of the demo's language: every noun, adjective, determiner and verb, English beside French.

Each English word has one French answer, so that each English sentence has one too. What goes with what
(people drive vehicles, animals are never expensive) is told by the *kinds* of nouns that a word goes with.
"""

from dataclasses import dataclass
from typing import Literal

Gender = Literal["m", "f"]
Kinds = tuple[str, ...]

PEOPLE: Kinds = ("person", "kin")
ANIMATE: Kinds = (*PEOPLE, "animal")
GOODS: Kinds = ("vehicle", "text", "food", "thing")
ALL: Kinds = (*ANIMATE, *GOODS, "place")


@dataclass(frozen=True)
class Noun:
    """A noun in English and French: singular and plural, the French gender, the kind of thing."""

    singular: str
    plural: str
    french_singular: str
    french_plural: str
    gender: Gender
    kind: str


@dataclass(frozen=True)
class Agreeing:
    """A word whose French form follows its noun: masculine, feminine, masculine plural, feminine plural.

    `before_vowel` holds the masculine and feminine singular that stand directly before a vowel, where those
    differ: bel, vieil, cet, mon (amie).
    """

    english: str
    forms: str
    kinds: Kinds = ALL
    before_vowel: str = ""


@dataclass(frozen=True)
class Determiner(Agreeing):
    """An `Agreeing` that opens a noun phrase, with the numbers (False singular, True plural) it can have."""

    numbers: tuple[bool, ...] = (False, True)


@dataclass(frozen=True)
class Adjective(Agreeing):
    """An `Agreeing` that stands before or after its French noun.

    Two adjectives of one `topic` never describe the same thing: no car is both small and big.
    """

    topic: str = ""
    before_noun: bool = False


@dataclass(frozen=True)
class Verb:
    """A verb: English base and third person; French after je, il/elle, nous, ils/elles; who does it to what.

    `lasting` verbs (like, want) take neither adverb nor "never"; `joint` ones are done with another person.
    """

    base: str
    third: str
    french: str
    subjects: Kinds = PEOPLE
    objects: Kinds = ()
    lasting: bool = False
    joint: bool = False


NOUNS: dict[str, Noun] = {
    noun.singular: noun
    for noun in (
        Noun("boy", "boys", "garçon", "garçons", "m", "person"),
        Noun("girl", "girls", "fille", "filles", "f", "person"),
        Noun("man", "men", "homme", "hommes", "m", "person"),
        Noun("woman", "women", "femme", "femmes", "f", "person"),
        Noun("queen", "queens", "reine", "reines", "f", "person"),
        Noun("actress", "actresses", "actrice", "actrices", "f", "person"),
        Noun("uncle", "uncles", "oncle", "oncles", "m", "kin"),
        Noun("aunt", "aunts", "tante", "tantes", "f", "kin"),
        Noun("brother", "brothers", "frère", "frères", "m", "kin"),
        Noun("sister", "sisters", "sœur", "sœurs", "f", "kin"),
        Noun("dog", "dogs", "chien", "chiens", "m", "animal"),
        Noun("cat", "cats", "chat", "chats", "m", "animal"),
        Noun("horse", "horses", "cheval", "chevaux", "m", "animal"),
        Noun("bird", "birds", "oiseau", "oiseaux", "m", "animal"),
        Noun("owl", "owls", "hibou", "hiboux", "m", "animal"),
        Noun("cow", "cows", "vache", "vaches", "f", "animal"),
        Noun("mouse", "mice", "souris", "souris", "f", "animal"),
        Noun("car", "cars", "voiture", "voitures", "f", "vehicle"),
        Noun("truck", "trucks", "camion", "camions", "m", "vehicle"),
        Noun("bus", "buses", "autobus", "autobus", "m", "vehicle"),
        Noun("book", "books", "livre", "livres", "m", "text"),
        Noun("letter", "letters", "lettre", "lettres", "f", "text"),
        Noun("story", "stories", "histoire", "histoires", "f", "text"),
        Noun("newspaper", "newspapers", "journal", "journaux", "m", "text"),
        Noun("apple", "apples", "pomme", "pommes", "f", "food"),
        Noun("cake", "cakes", "gâteau", "gâteaux", "m", "food"),
        Noun("egg", "eggs", "œuf", "œufs", "m", "food"),
        Noun("clock", "clocks", "horloge", "horloges", "f", "thing"),
        Noun("chair", "chairs", "chaise", "chaises", "f", "thing"),
        Noun("coat", "coats", "manteau", "manteaux", "m", "thing"),
        Noun("umbrella", "umbrellas", "parapluie", "parapluies", "m", "thing"),
        Noun("garden", "gardens", "jardin", "jardins", "m", "place"),
        Noun("house", "houses", "maison", "maisons", "f", "place"),
        Noun("school", "schools", "école", "écoles", "f", "place"),
        Noun("forest", "forests", "forêt", "forêts", "f", "place"),
        Noun("hotel", "hotels", "hôtel", "hôtels", "m", "place"),
    )
}

_OWNED: Kinds = ("kin", "animal", *GOODS, "place")
_COUNTED: Kinds = ("person", "animal", *GOODS, "place")

DETERMINERS: dict[str, Determiner] = {
    determiner.english: determiner
    for determiner in (
        Determiner("the", "le la les les"),
        Determiner("a", "un une - -", _COUNTED, numbers=(False,)),
        Determiner("this", "ce cette - -", _COUNTED, "cet cette", numbers=(False,)),
        Determiner("these", "- - ces ces", _COUNTED, numbers=(True,)),
        Determiner("two", "- - deux deux", _COUNTED, numbers=(True,)),
        Determiner("my", "mon ma mes mes", _OWNED, "mon mon"),
        Determiner("his", "son sa ses ses", _OWNED, "son son"),
        Determiner("her", "son sa ses ses", _OWNED, "son son"),
        Determiner("our", "notre notre nos nos", _OWNED),
    )
}

_PAINTED: Kinds = ("vehicle", "thing")
_MADE: Kinds = ("vehicle", "text", "thing", "place")

ADJECTIVES: dict[str, Adjective] = {
    adjective.english: adjective
    for adjective in (
        Adjective("small", "petit petite petits petites", topic="size", before_noun=True),
        # un grand homme is a great man, so persons are left out, as they are of what is owned
        Adjective("big", "grand grande grands grandes", _OWNED, topic="size", before_noun=True),
        Adjective("old", "vieux vieille vieux vieilles", (*ANIMATE, *_MADE), "vieil vieille", "age", before_noun=True),
        Adjective("young", "jeune jeune jeunes jeunes", ANIMATE, topic="age", before_noun=True),
        Adjective("new", "nouveau nouvelle nouveaux nouvelles", _MADE, "nouvel nouvelle", "age", before_noun=True),
        Adjective("beautiful", "beau belle beaux belles", ALL, "bel belle", topic="look", before_noun=True),
        Adjective("good", "bon bonne bons bonnes", ("text", "food"), topic="worth", before_noun=True),
        Adjective("red", "rouge rouge rouges rouges", _PAINTED, topic="colour"),
        Adjective("green", "vert verte verts vertes", (*_PAINTED, "food"), topic="colour"),
        Adjective("blue", "bleu bleue bleus bleues", _PAINTED, topic="colour"),
        Adjective("white", "blanc blanche blancs blanches", (*_PAINTED, "animal"), topic="colour"),
        Adjective("black", "noir noire noirs noires", (*_PAINTED, "animal"), topic="colour"),
        Adjective("expensive", "cher chère chers chères", (*GOODS,), topic="price"),
        Adjective("interesting", "intéressant intéressante intéressants intéressantes", ("text",), topic="worth"),
        Adjective("happy", "heureux heureuse heureux heureuses", ANIMATE, topic="mood"),
        Adjective("sad", "triste triste tristes tristes", (*ANIMATE, "text"), topic="mood"),
        Adjective("tired", "fatigué fatiguée fatigués fatiguées", ANIMATE, topic="strength"),
    )
}

VERBS: dict[str, Verb] = {
    verb.base: verb
    for verb in (
        Verb("drive", "drives", "conduis conduit conduisons conduisent", PEOPLE, ("vehicle",)),
        Verb("see", "sees", "vois voit voyons voient", ANIMATE, ALL),
        Verb("like", "likes", "aime aime aimons aiment", ANIMATE, ALL, lasting=True),
        Verb("hear", "hears", "entends entend entendons entendent", ANIMATE, (*ANIMATE, "vehicle")),
        Verb("eat", "eats", "mange mange mangeons mangent", ANIMATE, ("food",)),
        Verb("read", "reads", "lis lit lisons lisent", PEOPLE, ("text",)),
        Verb("write", "writes", "écris écrit écrivons écrivent", PEOPLE, ("text",)),
        Verb("buy", "buys", "achète achète achetons achètent", PEOPLE, ("animal", *GOODS)),
        Verb("want", "wants", "veux veut voulons veulent", PEOPLE, ("animal", *GOODS), lasting=True),
        Verb("wash", "washes", "lave lave lavons lavent", PEOPLE, ("animal", *_PAINTED)),
        Verb("sleep", "sleeps", "dors dort dormons dorment", ANIMATE),
        Verb("run", "runs", "cours court courons courent", ANIMATE, joint=True),
        Verb("play", "plays", "joue joue jouons jouent", ANIMATE, joint=True),
        Verb("sing", "sings", "chante chante chantons chantent", joint=True),
        Verb("work", "works", "travaille travaille travaillons travaillent", joint=True),
        Verb("talk", "talks", "parle parle parlons parlent"),  # "talk to", "parler à"
    )
}

# I, he/she/it, we, they
BE: tuple[tuple[str, str], ...] = (("am", "suis"), ("is", "est"), ("are", "sommes"), ("are", "sont"))

ADVERBS: dict[str, str] = {"often": "souvent", "always": "toujours"}
NEGATIONS: dict[str, str] = {"not": "pas", "never": "jamais"}
PLACES: dict[str, str] = {"in": "dans", "near": "près de", "behind": "derrière", "in front of": "devant"}

VOWELS = "aeiouyàâéèêëîïôûùœ"
ASPIRATED = ("hibou", "hiboux")  # no elision before these: le hibou, but l'homme

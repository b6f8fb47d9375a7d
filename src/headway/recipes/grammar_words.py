"""The words of the demo's language: every noun, adjective, determiner and verb, English beside French.

They are listed in `grammar.toml`. Each English word has one French answer, so that each English sentence has one too.
What goes with what (people drive vehicles, animals are never expensive) is given by the *kinds* of nouns that a word
goes with.
"""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal, TypeVar

Gender = Literal["m", "f"]
Kinds = tuple[str, ...]
Entry = TypeVar("Entry")

LISTED = tomllib.loads(files(__package__).joinpath("grammar.toml").read_text(encoding="utf-8"))
GROUPS: dict[str, Kinds] = {name: tuple(kinds) for name, kinds in LISTED["groups"].items()}
PEOPLE, ANIMATE, ALL = GROUPS["people"], GROUPS["animate"], GROUPS["all"]


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


def _entries(kind: Callable[..., Entry], table: str) -> dict[str, Entry]:
    """The entries of a table by their English word, which is their first field."""
    return {
        english: kind(english, **{key: _without_groups(value) for key, value in row.items()})
        for english, row in LISTED[table].items()
    }


def _without_groups(value: Any) -> Any:
    """A list with the kinds of each group that it names; anything else as it is."""
    return tuple(kind for name in value for kind in GROUPS.get(name, (name,))) if isinstance(value, list) else value


NOUNS = _entries(Noun, "nouns")
DETERMINERS = _entries(Determiner, "determiners")
ADJECTIVES = _entries(Adjective, "adjectives")
VERBS = _entries(Verb, "verbs")
BE: tuple[tuple[str, str], ...] = tuple((english, french) for english, french in LISTED["be"])
ADVERBS: dict[str, str] = LISTED["adverbs"]
NEGATIONS: dict[str, str] = LISTED["negations"]
PLACES: dict[str, str] = LISTED["places"]

"""Sentences about strawberries (Artzi, CS5740): what the verb of the sentence was decides how it ends, near or far.

    she tasted a strawberry with some cream
    she tasted a strawberry that was grown in the old garden by the best farmer in the world with some cream
    she tasted a strawberry that was trimmed in the old garden by the best farmer in the world with some cream
    she trimmed a strawberry that was tasted in the old garden by the best farmer in the world with small clippers

The last two hold the same words but for their ends: only their order says which verb is the sentence's. Three sets of
minimal pairs ask for the end, each with the mirror of every pair, so that a model that does not see what matters scores
exactly one half:

    near       a 5-gram sees the verb
    far        it does not; whoever sees the whole sentence finds the only verb of the two kinds
    mirrored   both kinds are there: only who knows the order knows which verb comes first
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from minimal_pairs import Pair

from headway.errors import InputError
from headway.recipes.grammar import Dice

WHO = ("she", "he", "my sister", "the boy", "our cook", "the old man", "her friend")
# Their past and their participle are one word, so that a bag cannot tell which of the two it holds.
MEALS = ("tasted", "served", "enjoyed", "finished")
WORK = ("trimmed", "picked", "gathered", "pruned")
OTHER = ("grown", "found", "kept", "seen")
FRUIT = ("a strawberry", "a cherry", "a plum", "the apple", "the pear", "one grape")
PLACES = ("in the old garden", "in the field", "behind the house", "near the river", "on the hill")
PEOPLE = ("by the best farmer", "by a young girl", "by the happy gardener", "by an old woman")
WORLDS = ("in the world", "of the village", "in the whole land", "of them all")
# As many words each, so that no end is more likely for being shorter.
SWEET = ("some cream", "brown sugar", "warm custard")
SHARP = ("small clippers", "garden shears", "pruning scissors")
KINDS = {verb: ends for verbs, ends in ((MEALS, SWEET), (WORK, SHARP)) for verb in verbs}


def clause(dice: Dice, verb: str) -> str:
    return f" that was {verb} {dice.pick(PLACES)} {dice.pick(PEOPLE)} {dice.pick(WORLDS)}"


def draw(dice: Dice) -> str:
    """One sentence: a fifth without a clause, half of the others with a verb of the other kind in it."""
    verb = dice.pick(MEALS + WORK)
    middle = ""
    if not dice.happens(0.2):
        other = WORK if verb in MEALS else MEALS
        middle = clause(dice, dice.pick(other if dice.happens(0.5) else OTHER))
    return f"{dice.pick(WHO)} {verb} {dice.pick(FRUIT)}{middle} with {dice.pick(KINDS[verb])}"


def corpus(sentences: int, seed: int = 0) -> list[str]:
    """Sentences to learn from; the same on every machine."""
    dice = Dice(seed)
    return [draw(dice) for _ in range(sentences)]


def minimal_pairs(count: int, seed: int = 1) -> dict[str, list[Pair]]:
    """Of each set `count` pairs and the mirror of each."""
    if count < 1:
        raise InputError(f"cannot make {count} pairs: give a count of 1 or more")
    dice = Dice(seed)
    return {name: list(islice(_pairs(dice, name), 2 * count)) for name in ("near", "far", "mirrored")}


def _pairs(dice: Dice, name: str) -> Iterator[Pair]:
    """A pair, its mirror, the next pair, and so on."""
    while True:
        who, fruit = dice.pick(WHO), dice.pick(FRUIT)
        meal, work = dice.pick(MEALS), dice.pick(WORK)
        sweet, sharp = f" {dice.pick(SWEET)}", f" {dice.pick(SHARP)}"
        middle = clause(dice, "{}") if name != "near" else ""
        others = (work, meal) if name == "mirrored" else (dice.pick(OTHER),) * 2
        for verb, other, right, wrong in ((meal, others[0], sweet, sharp), (work, others[1], sharp, sweet)):
            yield Pair(f"{who} {verb} {fruit}{middle.format(other)} with", right, wrong)

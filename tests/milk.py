"""Stories of our own like deck C's: two people, some places, and the milk that one of them left somewhere."""

from __future__ import annotations

import random
from pathlib import Path

PLACES = ("kitchen", "office", "bathroom")
PEOPLE = ("Joe", "Fred")
VERBS = ("went", "travelled", "moved")
DECK_C = (
    "Joe went to the kitchen.",
    "Fred went to the kitchen.",
    "Joe picked up the milk.",
    "Joe travelled to the office.",
    "Joe left the milk.",
    "Joe went to the bathroom.",
)


def story(drawn: random.Random) -> list[str]:
    """Some walks, a walk of one person with the milk, and some walks; then the questions with their answers."""
    lines: list[str] = []
    at: dict[str, str] = {}

    def walk(who: str) -> None:
        at[who] = drawn.choice([place for place in PLACES if place != at.get(who)])
        lines.append(f"{who} {drawn.choice(VERBS)} to the {at[who]}.")

    for who in PEOPLE:
        walk(who)
    carrier = drawn.choice(PEOPLE)
    lines.append(f"{carrier} picked up the milk.")
    walk(carrier)
    milk = at[carrier]
    lines.append(f"{carrier} left the milk.")
    for _ in range(drawn.choice((1, 1, 2))):
        walk(drawn.choice(PEOPLE))
    asked = drawn.choice(PEOPLE)
    return [*lines, f"Where is the milk now?\t{milk}\t4 5", f"Where is {asked}?\t{at[asked]}"]


def write_stories(path: Path, count: int, seed: int = 1) -> Path:
    drawn = random.Random(seed)
    rows = (f"{number} {line}\n" for _ in range(count) for number, line in enumerate(story(drawn), 1))
    path.write_text("".join(rows), encoding="utf-8")
    return path

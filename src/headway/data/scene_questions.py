"""Questions about drawn scenes, whose answers are known: how many shapes, of which colour one is, whether one is there.

M questions, K shapes of a scene.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from headway.data.augment import generator
from headway.data.picture_questions import PictureQuestions
from headway.data.scenes import COLOURS, SHAPES, Numbers, Placed, Scenes, drawn, placed

COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")


def questions_about(found: Placed, row: int, seed: int) -> Iterator[tuple[str, str]]:
    """Three or four of one scene. Whether something is there is asked of what is, or of what could be, in turn."""
    colours, draw = tuple(COLOURS), generator(seed, row, 5)
    there = [k for k in range(found.reach_BK.shape[1]) if found.reach_BK[row, k]]
    named = [(colours[found.colours_BK[row, k]], SHAPES[found.kinds_BK[row, k]]) for k in there]
    shapes = Counter(shape for _, shape in named)
    yield "how many shapes are there?", COUNTS[len(named)]
    shape = SHAPES[int(draw.integers(len(SHAPES)))]
    yield f"how many are a {shape}?", COUNTS[shapes[shape]]
    if single := [pair for pair in named if shapes[pair[1]] == 1]:
        colour, shape = single[int(draw.integers(len(single)))]
        yield f"what colour is the {shape}?", colour
    other = (colours[int(draw.integers(len(colours)))], SHAPES[int(draw.integers(len(SHAPES)))])
    asked = named[int(draw.integers(len(named)))] if draw.random() < 0.5 else other
    yield f"is there a {asked[0]} {asked[1]}?", "yes" if asked in named else "no"


def drawn_questions(scenes: Scenes, seed: int, numbers: Numbers, size: int) -> PictureQuestions:
    """About the scenes of these numbers."""
    found, pictures = placed(scenes, seed, numbers, size), drawn(scenes, seed, numbers, size)
    rows = [(row, *pair) for row in range(len(numbers)) for pair in questions_about(found, row, seed)]
    picture, questions, answers = zip(*rows, strict=True)
    names = tuple(f"{pictures.names[row]}, {question}" for row, question, _ in rows)
    return PictureQuestions(
        pictures.pixels_NCHW, np.array(picture, np.int64), questions, tuple((one,) for one in answers), names
    )


def save_picture_questions(path: Path, found: PictureQuestions) -> None:
    """As an .npz that `read_picture_questions` reads, with the first answer of each."""
    np.savez_compressed(
        path, pictures=found.pixels_NCHW.transpose(0, 2, 3, 1), rows=found.picture_M,
        questions=np.array(found.questions), answers=np.array([answers[0] for answers in found.answers]),
    )  # fmt: skip

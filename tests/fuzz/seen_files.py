"""Pictures with what is in them, and episodes, in files, to learn from and to damage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np


def scenes(folder: Path) -> None:
    """Drawn ones as files, and a picture of them."""
    from PIL import Image

    from headway.data.annotated_files import save_annotated
    from headway.data.scenes import Scenes, drawn

    found = drawn(Scenes(most=2), 3, np.arange(24), 16)
    save_annotated(folder / "train.npz", found)
    Image.fromarray(found.pixels_NCHW[0].transpose(1, 2, 0)).save(folder / "0.png")


def trajectories(folder: Path, pictures: int = 0) -> None:
    """Episodes of a car that is steered at random."""
    from headway.data.trajectories import save_trajectories
    from headway.generate.acting import episodes, gathered
    from headway.worlds.lane import LaneKeeping
    from headway.worlds.policies import policy_named

    world = LaneKeeping()
    found = list(episodes([world], policy_named("random", world), 12, (3,), most=12, pictures=pictures))
    save_trajectories(folder / "train.npz", gathered(world, found))


def filmed(folder: Path) -> None:
    """The same with pictures."""
    trajectories(folder, 8)


def nothing(folder: Path) -> None:
    """A policy that learns by acting reads no files."""


def mixed(folder: Path) -> None:
    """Captions, questions and a car that is steered, one file of each."""
    from headway.data.scene_questions import drawn_questions
    from headway.data.scenes import Scenes

    scenes(folder)
    (folder / "train.npz").rename(folder / "captions.npz")
    filmed(folder)
    (folder / "train.npz").rename(folder / "steps.npz")
    asked = drawn_questions(Scenes(most=2), 4, np.arange(8), 16)
    from PIL import Image

    for number, pixels in enumerate(asked.pixels_NCHW):
        Image.fromarray(pixels.transpose(1, 2, 0)).save(folder / f"asked-{number}.png")
    rows = [
        {"picture": f"asked-{at}.png", "question": question, "answers": list(answers)}
        for at, question, answers in zip(asked.picture_M.tolist(), asked.questions, asked.answers, strict=True)
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

"""What a mixture can be learned from: each kind of rows says how its files are read and held out, what its prompts and
answers are, and how the answers of a model are judged.

A file is known by what is in it. N pictures, K steps, C channels, H height, W width, A width of an action.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from headway.data.annotated import Annotated, hold_out_annotated
from headway.data.annotated_files import read_annotated
from headway.data.examples import names_in
from headway.data.image_files import Bytes
from headway.data.mixed import Source
from headway.data.picture_questions import PictureQuestions, hold_out_picture_questions, read_picture_questions
from headway.data.readers import bare_suffix, must_be_there
from headway.data.steps import hold_out_episodes
from headway.data.trajectories import Trajectories, read_trajectories
from headway.errors import refuse
from headway.evaluate.captions import CaptionScores
from headway.generate.mixture import MixtureModel

Read = Callable[[Any], Bytes]  # a picture to pixels (C, H, W)
WANTED = "FILE... (captions or demonstrations as .npz, questions as .jsonl)"


class Kind(ABC):
    """Abstract. What its files have is `found` below. said: a phrase for its rows."""

    name: ClassVar[str]
    said: ClassVar[str]

    @abstractmethod
    def read(self, places: Sequence[Path], image: Any, read: Read) -> Any:
        """What is in these files. image: how large pictures are (`channels`, `size`)."""

    @abstractmethod
    def hold_out(self, found: Any, share: float) -> tuple[Any, Any]: ...

    @abstractmethod
    def texts(self, found: Any) -> Iterable[str]:
        """For a vocabulary."""

    def count(self, found: Any) -> int:
        return len(found)

    def pixels(self, found: Any, read: Read, most: int | None = None) -> Bytes:
        """(N, C, H, W) of all pictures, or of about so many."""
        pixels_NCHW: Bytes = found.pixels_NCHW[:: every(len(found.pixels_NCHW), most)]
        return pixels_NCHW

    @abstractmethod
    def source(self, found: Any, model: MixtureModel, read: Read, data: Any) -> Source:
        """Its rows. data: the settings of the run's data."""

    @abstractmethod
    def figures(self, found: Any, model: MixtureModel, **search: Any) -> dict[str, float]:
        """How good the answers of a model are."""

    @abstractmethod
    def example(self, found: Any, model: MixtureModel) -> str:
        """What a model makes of the first of its rows."""


class Captions(Kind):
    """No prompt, and one of the captions of a picture."""

    name, said = "captions", "pictures with captions"

    def read(self, places: Sequence[Path], image: Any, read: Read) -> Annotated:
        return read_annotated(places, image.channels, image.size, "captions", read)

    def hold_out(self, found: Annotated, share: float) -> tuple[Annotated, Annotated]:
        return hold_out_annotated(found, share)

    def texts(self, found: Annotated) -> Iterable[str]:
        return (text for some in found.captions for text in some)

    def source(self, found: Annotated, model: MixtureModel, read: Read, data: Any) -> Source:
        answers = [model.ended(texts) for texts in found.captions]
        return Source(
            self.name, found.pixels_NCHW, np.arange(len(found)), [()] * len(found), answers, flip=data.flip
        )  # fmt: skip

    def figures(self, found: Annotated, model: MixtureModel, **search: Any) -> dict[str, float]:
        given = model.ask_read(found.pixels_NCHW, [""] * len(found), **search)
        return CaptionScores.of(given, found.captions).figures()

    def example(self, found: Annotated, model: MixtureModel) -> str:
        return f"{found.captions[0][0]} → {model.ask_read(found.pixels_NCHW[:1], [''])[0]}"


class Questions(Kind):
    """A question, and one of its answers."""

    name = said = "questions"

    def read(self, places: Sequence[Path], image: Any, read: Read) -> PictureQuestions:
        return read_picture_questions(places, read)

    def hold_out(self, found: PictureQuestions, share: float) -> tuple[PictureQuestions, PictureQuestions]:
        return hold_out_picture_questions(found, share)

    def texts(self, found: PictureQuestions) -> Iterable[str]:
        return (*found.questions, *(text for some in found.answers for text in some))

    def source(self, found: PictureQuestions, model: MixtureModel, read: Read, data: Any) -> Source:
        prompts, answers = model.ids(found.questions), [model.ended(texts) for texts in found.answers]
        return Source(self.name, found.pixels_NCHW, found.picture_M, prompts, answers)

    def figures(self, found: PictureQuestions, model: MixtureModel, **search: Any) -> dict[str, float]:
        given = model.ask_read(found.pixels_NCHW[found.picture_M], list(found.questions), **search)
        pairs = zip(model.ids(given), found.answers, strict=True)
        return {"right answers": float(np.mean([ids in model.ids(answers) for ids, answers in pairs]))}

    def example(self, found: PictureQuestions, model: MixtureModel) -> str:
        [given] = model.ask_read(found.pixels_NCHW[found.picture_M[:1]], [found.questions[0]])
        return f"{found.questions[0]} {found.answers[0][0]} → {given}"


class Demonstrations(Kind):
    """A command, and the numbers of the action as tokens; beside the picture the state."""

    name, said = "demonstrations", "steps of demonstrations"

    def read(self, places: Sequence[Path], image: Any, read: Read) -> Trajectories:
        found = read_trajectories(places, several=True)
        missing = f"{places[0]}: the demonstrations have no pictures of one size: headway collect --pictures 84"
        refuse(found.pictures_KPP3 is None, missing)
        for task in found.tasks:
            told = f"the episodes of '{task.world}' have no command: headway collect --command TEXT gives one"
            refuse(not task.command.strip(), told)
        return found

    def hold_out(self, found: Trajectories, share: float) -> tuple[Trajectories, Trajectories]:
        return hold_out_episodes(found, share)

    def texts(self, found: Trajectories) -> Iterable[str]:
        return (task.command for task in found.tasks)

    def count(self, found: Trajectories) -> int:
        return len(found.rewards_K)

    def pixels(self, found: Trajectories, read: Read, most: int | None = None) -> Bytes:
        assert found.pictures_KPP3 is not None
        return np.stack([read(one) for one in found.pictures_KPP3[:: every(self.count(found), most)]])

    def source(self, found: Trajectories, model: MixtureModel, read: Read, data: Any) -> Source:
        commands, task_K = model.ids([task.command for task in found.tasks]), np.repeat(found.task_E, found.lengths_E)
        return Source(
            self.name, self.pixels(found, read), np.arange(len(task_K)), [commands[task] for task in task_K],
            [[bins] for bins in model.binned(found.actions_K).tolist()], model.observations.encode(found.states_KS),
            data.shift,
        )  # fmt: skip

    def figures(self, found: Trajectories, model: MixtureModel, **search: Any) -> dict[str, float]:
        """Of every number the squared distance from what was done, as the model's own numbers."""
        model.check(found, found.world)
        return {"mse": float(np.square(model.actions_of(found) - model.actions.encode(found.actions_K)).mean())}

    def example(self, found: Trajectories, model: MixtureModel) -> str:
        return f"{found.tasks[0].command} → {np.round(model.actions_of(found, 1)[0], 2).tolist()}"


def every(count: int, most: int | None) -> int:
    return 1 if most is None else max(1, count // most)


KINDS: dict[str, Kind] = {kind.name: kind for kind in (Captions(), Questions(), Demonstrations())}
ARRAYS = {"captions": "captions", "questions": "questions", "states": "demonstrations"}


def kind_of(place: Path) -> str:
    """What a file has, by its name or its arrays."""
    must_be_there(place)
    if place.suffix != ".npz":
        refuse(bare_suffix(place) != ".jsonl", f"cannot read {place}: give {WANTED}")
        return Questions.name
    arrays = names_in(place)
    kinds = [kind for name, kind in ARRAYS.items() if name in arrays]
    refuse(len(kinds) != 1, f"{place} must have one of the arrays {', '.join(ARRAYS)}; it has {', '.join(arrays)}")
    return kinds[0]


def read_kinds(places: Sequence[Path], image: Any, read: Read, kinds: Sequence[str] = tuple(KINDS)) -> dict[str, Any]:
    """What the files of these kinds have."""
    by: dict[str, list[Path]] = {}
    for place in places:
        by.setdefault(kind_of(place), []).append(place)
    return {name: KINDS[name].read(by[name], image, read) for name in kinds if name in by}


def measured(found: dict[str, Any], read: Read, most: int) -> tuple[Any, Any]:
    """Mean and standard deviation of each channel, by the same share of each kind."""
    each = [KINDS[name].pixels(one, read, most) for name, one in found.items()]
    mean_C = np.mean([pixels.mean((0, 2, 3)) / 255 for pixels in each], 0)
    std_C = np.mean([pixels.std((0, 2, 3)) / 255 for pixels in each], 0).clip(min=1e-3)
    return mean_C, std_C

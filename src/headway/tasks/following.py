"""Following: a robot policy that is learned from demonstrations of several tasks, each named in words."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from headway.data.demonstrations import with_command
from headway.data.steps import StepBatch
from headway.data.trajectories import read_trajectories
from headway.errors import refuse
from headway.generate.follower import Follower
from headway.models.heads import ActionChunks, Actions
from headway.processors.text import TextConfig, TextProcessor
from headway.tasks.acting import Acting, TrajectoryFiles
from headway.tasks.files import vocabularies
from headway.text.tokenizer import TextOptions, Tokenizer

WORDS = 256  # of the commands, for an estimate


@dataclass(frozen=True)
class Demonstrations(TrajectoryFiles):
    """Episodes of one world or of several whose states and actions are alike, with what each world asks for in words.
    text: for the vocabulary of the commands. reads: the first so many numbers of a state are read (0: all). shift:
    training pictures are moved by at most so many pixels."""

    name: ClassVar[str] = "demonstrations"
    text: TextOptions = field(default_factory=lambda: TextOptions("word", lowercase=True, min_count=1))
    reads: int = 0
    shift: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("reads", "shift"):
            refuse(getattr(self, name) < 0, f"data.{name} must be 0 or more, not {getattr(self, name)}")


class Following(Acting):
    name = "following"
    data = Demonstrations
    takes = ("observations", "actions", "text")
    heads = (Actions, ActionChunks)
    opens = Follower
    open_episodes = staticmethod(partial(read_trajectories, several=True))

    def open_processors(self, earlier: Any) -> dict[str, Any]:
        """Beside states and actions, the words of the commands."""
        run, train = self.run, self.parts["train"]
        found, tasks = super().open_processors(earlier), train.tasks
        for task in tasks:
            refuse(
                not task.command.strip(),
                f"the episodes of '{task.world}' have no command: headway collect --command TEXT gives one",
            )
        before, reads = found["observations"].config, run.data.reads
        refuse(reads > before.size, f"data.reads is {reads}, a state has {before.size} numbers")
        if earlier is None and reads:
            before = replace(before, size=reads, given=before.size, mean=before.mean[:reads], std=before.std[:reads])
        observations = replace(
            before, world=tasks[0].world, worlds=tuple(task.world for task in tasks),
            commands=tuple(task.command for task in tasks),
            pixels=run.model.image if "picture" in run.model.sees else 0,
        )  # fmt: skip
        if earlier is not None:
            text = earlier.processors["text"]
        else:
            with self.context.ranks.in_turn():
                [tokenizer] = vocabularies(self.context, self.learned)
            text = TextProcessor(TextConfig(len(tokenizer), run.data.text), tokenizer)
        self.data_names["vocabulary"] = text.fingerprint
        return found | {"observations": observations.open(self.context.out), "text": text}

    def learned(self) -> list[Tokenizer]:
        return [Tokenizer.train((task.command for task in self.parts["train"].tasks), self.run.data.text)]

    def training(self) -> dict[str, Any]:
        return {"shift": self.run.data.shift}

    def played(self) -> dict[str, Any]:
        """The mean over its commands, and each of them, where there are several."""
        actor = self.actor()
        each = {task: self.played_in(task.world, actor, actor.policy(command=task.command)) for task in actor.tasks()}
        names = dict.fromkeys(name for found in each.values() for name in found)
        means = {name: round(float(np.mean([one[name] for one in each.values() if name in one])), 4) for name in names}
        alike = len({task.command for task in each}) < len(each)
        own = {
            f"{name}, {task.world}: {task.command}" if alike else f"{name}, {task.command}": value
            for task, found in each.items() for name, value in found.items()
        }  # fmt: skip
        return means | (own if len(each) > 1 else {})

    @classmethod
    def sizes(cls, run: Any, likely: bool = False) -> tuple[int, ...]:
        return (run.data.reads or 39, 4, WORDS)  # of Meta-World; the data decide

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> StepBatch:
        """As that of its base, with a command and pictures."""
        plain, model = super().sample(run, size, device), run.model
        rows, window = plain.there_BT.shape
        shape = (rows, window, model.image, model.image, 3)
        pixels = torch.zeros(shape, dtype=torch.uint8, device=device) if "picture" in model.sees else None
        words_BW = torch.zeros(rows, model.words, dtype=torch.long, device=device)
        counts_B = torch.ones(rows, dtype=torch.long, device=device)
        return replace(plain, inputs=with_command(plain.inputs, words_BW, counts_B, pixels))

"""An episode that is watched: frames of it, and where the policy looks at each.

F frames, H heads, S places that are looked at, P pixels of a side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from headway.errors import InputError, refuse
from headway.generate.acting import Episode
from headway.generate.tracing import sides
from headway.nn import tap
from headway.nn.tap import Choice, chosen
from headway.traces import LAYERED, Array, Trace, Track
from headway.worlds.policies import Seen
from headway.worlds.world import Bytes, Floats, World

SIZE = 4_000_000  # bytes of all pictures of an episode
FRAMES, SIDE = 128, 96  # frames at most; pixels of a side of those that the policy does not see itself
STEPS = 2000  # of an episode that are played at most
PICTURES, OF_FRAME = "frames", "frame."  # the tensor of the pictures; what the others' names begin with


def asked_step(value: Any, default: int) -> tuple[str, int]:
    """`3 @20` asks for an episode, or a command, and for a step of it."""
    asked, _, at = str(value).rpartition("@") if "@" in str(value) else (str(value), "", str(default))
    refuse(not at.strip().isdecimal(), f"behind the @ stands the number of a step, not {at.strip()!r}")
    return asked.strip(), int(at)


class Watcher:
    """A policy in one world. Where the choice takes `frames`, picture and attention of every k-th step are kept;
    k doubles when there are too many, since the length of an episode is known at its end. at: the step whose inputs
    are kept."""

    name, at_once = "watched", 1

    def __init__(self, actor: Any, policy: Any, world: World, choice: Choice, at: int) -> None:
        self.actor, self.policy, self.world, self.choice, self.at = actor, policy, world, choice, at
        self.sees: int = policy.sees
        side = self.sees or SIDE
        self.most = max(2, min(FRAMES, SIZE // (3 * side * side)))
        self.watches = self.draws = choice.takes(PICTURES, None)
        self.step, self.every = 0, 1
        self.inputs: Any = None
        self.steps: list[int] = []
        self.pictures: list[Bytes] = []
        self.looks: dict[str, list[Floats]] = {}
        self.notes: list[str] = []

    def begin(self, draws: Sequence[np.random.Generator]) -> None:
        self.policy.begin(draws)

    def act(self, rows: Sequence[int], seen: Sequence[Seen]) -> list[Any]:
        done: list[Any] = self.policy.act(rows, seen)
        if self.step == self.at:
            self.inputs = self.window()
        if self.watches and self.step % self.every == 0:
            self.keep(seen[0].picture)
        self.step += 1
        return done

    def window(self) -> Any:
        """The last steps, as the model reads them."""
        return self.policy.window(np.array([0])).map(lambda tensor: tensor.to(self.actor.device))

    def keep(self, picture: Bytes | None) -> None:
        self.steps.append(self.step)
        self.draw(picture)
        for name, row_HS in self.looked().items():
            self.looks.setdefault(name, []).append(row_HS)
        if len(self.steps) > self.most:
            self.every *= 2
            every_other: list[list[Any]] = [self.steps, self.pictures, *self.looks.values()]
            for kept in every_other:
                del kept[1::2]

    def draw(self, picture: Bytes | None = None) -> None:
        """What the policy sees itself, or else what the world's camera sees; a world may have none."""
        if not self.draws:
            return
        try:
            self.pictures.append(self.world.picture(self.sees or SIDE) if picture is None else picture)
        except InputError as error:
            self.draws = False
            self.notes.append(f"There are no pictures of the episode: {error}.")

    def looked(self) -> dict[str, Floats]:
        """(H, S) of each attention: where the policy looks at this step."""
        only = chosen(self.choice.layers, self.choice.heads, "weights")
        with tap.record(self.actor.model, only) as recorder, torch.inference_mode():
            self.actor.model.encode(self.window())
        found = {}
        for name, tensor in recorder.tensors.items():
            hit = LAYERED.match(name)
            of_heads = recorder.axes[name][:2] == ("row", "head")
            if of_heads and self.choice.takes(OF_FRAME + name, int(hit[2]) if hit else None):
                found[OF_FRAME + name] = self.actor.present(name, tensor).float().cpu().numpy()
        return found

    @property
    def longest(self) -> int:
        """Steps that are played at most: where nothing is kept of the episode, up to the one that is asked for."""
        return max(self.at + 1, STEPS) if self.watches else self.at + 1

    def end(self) -> None:
        """The episode is over: a last frame shows what the last action led to."""
        if self.inputs is None:
            self.inputs, self.at = self.window(), self.step - 1
        if not self.watches:
            return
        if self.step == self.longest:
            self.notes.append(f"The episode is played for its first {self.step:,} steps.")
        if self.every > 1:
            self.notes.append(f"Of the episode's {self.step:,} steps one in {self.every} is shown.")
        self.steps.append(self.step)
        self.draw()
        for rows in self.looks.values():
            rows.append(np.zeros_like(rows[-1]))


def with_episode(trace: Trace, watcher: Watcher, episode: Episode, before: Track, about: dict[str, Any]) -> Trace:
    """A trace of one step, with the frames of its episode. before: the places of the last steps, which a step looks
    at."""
    if not watcher.watches:
        return trace
    steps, tensors, axes = watcher.steps, dict[str, Array](), dict[str, tuple[str, ...]]()
    labels = (*(f"step {step}" for step in steps[:-1]), "end")
    frames = Track("frames", "frames", labels, specials=(len(steps) - 1,), text="")
    if watcher.draws:
        tensors[PICTURES] = np.stack(watcher.pictures)
        axes[PICTURES] = ("frames", "height", "width", "channel")
    for name, rows in watcher.looks.items():
        tensors[name] = np.stack(rows, 1)
        seen = sides(name.removeprefix(OF_FRAME), watcher.actor.model.tracks)[1]
        axes[name] = ("head", "frames", before.name if seen == "steps" else seen)
    notes = {"told": watcher.notes} if watcher.notes else {}
    facts = {
        "steps": steps, "every": watcher.every, "rewards": [float(f"{reward:.6g}") for reward in episode.rewards],
        "actions": [_action(episode.actions[step]) for step in steps[:-1]], "at": watcher.at,
        "succeeded": episode.succeeded, "tokens": list(watcher.actor.step_tokens), **about,
    }  # fmt: skip
    return replace(
        trace, tracks=trace.tracks | {frames.name: frames, before.name: before}, tensors=tensors | trace.tensors,
        axes=axes | trace.axes, about=trace.about | {"episode": facts} | notes,
    )  # fmt: skip


def _action(action: Any) -> str:
    return ", ".join(f"{number:.3g}" for number in np.ravel(action).tolist())

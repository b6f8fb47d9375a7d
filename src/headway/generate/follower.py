"""A trained robot policy: it is told in words what to do, sees states or pictures, and acts.

R rows, T steps, W words, P pixels of a side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.card import Loaded
from headway.data.demonstrations import CommandedInputs, CommandedSteps, commanded, padded, with_command
from headway.data.steps import Ints
from headway.data.trajectories import Asked, Trajectories
from headway.errors import refuse
from headway.generate.acting import Episode
from headway.generate.actor import CPU, Actor, ActorPolicy
from headway.generate.tracing import checked, trace_of
from headway.generate.watching import asked_step, with_episode
from headway.nn import tap
from headway.nn.tap import chosen
from headway.processors.image import places
from headway.text.tokenizer import UNKNOWN
from headway.traces import Trace, Track
from headway.worlds.policies import Seen
from headway.worlds.world import Bytes, Floats


class Follower(Actor):
    """`headway.load(folder)` gives one: `model.play(10, world="Meta-World/reach-v3")`."""

    def __init__(self, loaded: Loaded, device: torch.device = CPU, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(loaded, device, dtype)
        self.text = loaded.processors["text"]

    @property
    def known(self) -> list[Asked]:
        """The worlds that it has learned from, with their commands."""
        config = self.observations.config
        return [Asked(*pair) for pair in zip(config.worlds, config.commands, strict=True)]

    @property
    def first_question(self) -> str:
        return self.known[0].command

    def tasks(self, world: str = "", command: str = "") -> list[Asked]:
        known = [one for one in self.known if world in ("", one.world)]
        if command:
            return [Asked(one, command) for one in dict.fromkeys(one.world for one in known)] or [Asked(world, command)]
        refuse(not known, f"it has not learned from '{world}': say with --command what it is to do there")
        return known

    def unknown(self, command: str) -> list[str]:
        """The words of a command that it has never read."""
        words = command.split()
        ids = self.text.encode(words)
        return [word for word, some in zip(words, ids, strict=True) if UNKNOWN in some]

    def words(self, commands: Sequence[str]) -> tuple[Ints, Ints]:
        """Ids and counts of each."""
        for command in commands:
            refuse(not command.strip(), "a robot policy needs a command")
        ids = self.text.encode(commands)
        return padded(ids, min(self.model.config.words, max(map(len, ids))))

    def policy(
        self, wanted: float | Sequence[float] | None = None, sample: bool = False, command: str = ""
    ) -> FollowerPolicy:
        known = {one.command for one in self.known}
        refuse(not command and len(known) != 1, f"it follows {len(known)} commands: say which, with command=…")
        return FollowerPolicy(self, command or next(iter(known)), sample)

    def steps(self, found: Trajectories) -> CommandedSteps:
        observe, act, scale = self.observations.encode, self.actions.encode, self.observations.config.scale
        words = self.words([task.command for task in found.tasks])
        return commanded(found, observe, act, scale, words, self._pictures(found))

    def _pictures(self, found: Trajectories) -> Bytes | None:
        side, pictures = self.observations.config.pixels, found.pictures_KPP3
        if not side:
            return None
        missing = f"the episodes have no pictures of one size, which the model sees: headway collect --pictures {side}"
        refuse(pictures is None, missing)
        assert pictures is not None
        other = f"the episodes have pictures of {pictures.shape[1]} pixels, the model sees {side}"
        refuse(pictures.shape[1] != side, other)
        return pictures

    def play(
        self, episodes: int = 10, wanted: Any = None, world: str = "", seed: int = 1, sample: bool = False,
        command: str = "", **how: Any,
    ) -> list[Episode]:  # fmt: skip
        """Episodes in one of its worlds. command: other words than those that it has learned for this world."""
        task, *others = self.tasks(world or self.world, command)
        refuse(others, f"it follows {1 + len(others)} commands in '{task.world}': say which, with command=…")
        return super().play(episodes, wanted, task.world, seed, sample, task.command, **how)

    @torch.inference_mode()
    def trace(
        self, value: Any, *, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None,
        tensors: Sequence[str] | str | None = None, top: int = 5,
    ) -> Trace:  # fmt: skip
        """What the model computes at a step of an episode: over the last steps, and over what it sees there; and frames
        of the whole episode, with where it looks at each. value: the command, and behind an @ the number of the step
        (default: the last that it reads at once with the first)."""
        command, at = asked_step(value, self.window - 1)
        choice = checked(self.model, chosen(layers, heads, tensors))
        asked = command or self.known[0].command
        task = next((one for one in self.known if one.command == asked), Asked(self.world, asked))
        watcher, episode = self.watched(self.policy(command=task.command), task.world, choice, at, 1)
        inputs = watcher.inputs
        with tap.record(self.model, choice) as recorder:
            self.model(inputs)
        seen, words = self.sights, self.text.tokenizer.encode(task.command)[: self.model.config.words]
        for name, tensor in recorder.tensors.items():
            if name.startswith("look."):
                recorder.tensors[name] = _of_last_step(name, tensor, len(seen))
        last, count = watcher.at + 1, inputs.times_BT.shape[1]
        steps = Track("steps", "steps", tuple(f"step {number}" for number in range(last - count, last)))
        sight = Track("sight", "patches" if self.grid else "tokens", seen, specials=(0,), text=str(value))
        said = Track("words", "tokens", tuple(self.text.tokenizer.inner.id_to_token(one) for one in words))
        about = {"world": task.world, "command": task.command, "return": episode.total}
        about |= {"grid": [*self.grid, 1]} if self.grid else {}
        trace = trace_of(self.model, recorder, [steps, sight, said], name=self.name, about=about)
        if self.grid:
            trace = replace(
                trace, tensors=trace.tensors | {"pixels": inputs.pixels_BTPP3[0, -1].cpu().numpy()},
                axes=trace.axes | {"pixels": ("height", "width", "channel")},
            )  # fmt: skip
        return with_episode(trace, watcher, episode, self.before, {"asked": task.command, "wanted": None})

    def present(self, name: str, weights_RHTS: Tensor) -> Tensor:
        if not name.startswith("look."):
            return super().present(name, weights_RHTS)
        return _of_last_step(name, weights_RHTS, len(self.sights))[0, :, 0]

    @property
    def grid(self) -> tuple[int, ...]:
        """Rows and columns of the places of a picture; none without pictures."""
        return tuple(self.model.config.sides) if self.observations.config.pixels else ()

    @property
    def sights(self) -> tuple[str, ...]:
        """The tokens of what is seen at a step, by name."""
        state = ("state",) if "state" in self.model.config.sees else ()
        return ("[read]", *(places(self.model.config.sides, 0) if self.grid else ()), *state)

    @torch.inference_mode()
    def looked(self, inputs: CommandedInputs) -> Floats:
        """(R, rows, columns): where in the last picture the token that is read out looks, in the last layer, the mean
        of its heads."""
        last = self.model.config.looks - 1
        name = f"look.{last}.attention.weights"
        with tap.record(self.model, chosen([last], None, [name])) as recorder:
            self.model.encode(inputs.map(lambda tensor: tensor.to(self.device)))
        rows, steps = inputs.times_BT.shape
        weights_RHN = recorder.tensors[name].unflatten(0, (rows, steps))[:, -1, :, 0]
        count = self.grid[0] * self.grid[1]
        found: Floats = weights_RHN.mean(1)[:, 1 : 1 + count].float().cpu().numpy().reshape(rows, *self.grid)
        return found


def _of_last_step(name: str, tensor: Tensor, sights: int) -> Tensor:
    """Of what was seen at each step of a window, the last. The queries of all steps look at the words together, whose
    keys and values are those of the command."""
    if ".cross." not in name or name.endswith(".output"):
        return tensor[-1:]
    return tensor if name.endswith((".keys", ".values")) else tensor[..., -sights:, :]


class FollowerPolicy(ActorPolicy):
    """It is told the same in all rows. watched: where it looks in the pictures of the first row is kept, in `looks`."""

    watched = False
    actor: Follower

    def __init__(self, actor: Follower, command: str, sample: bool) -> None:
        super().__init__(actor, 0.0, sample)
        self.words_W, self.count = (part[0] for part in actor.words([command]))

    def begin(self, draws: Sequence[np.random.Generator]) -> None:
        super().begin(draws)
        self.pictures: list[Bytes] = []
        self.looks: list[Floats] = []
        self.vectors: list[Tensor] = []

    def act(self, rows: Sequence[int], seen: Sequence[Seen]) -> list[Any]:
        if self.sees:
            shown_RPP3 = np.zeros((len(self.togo_R), self.sees, self.sees, 3), np.uint8)
            shown_RPP3[list(rows)] = np.stack([one.picture for one in seen])  # type: ignore[misc]
            self.pictures = [*self.pictures, shown_RPP3][-self.actor.window :]
        done = super().act(rows, seen)
        if self.watched:
            self.looks.append(self.looking(np.asarray(rows))[0])
        return done

    def looking(self, at_R: Any) -> Floats:
        """Where these rows look in their last pictures."""
        return self.actor.looked(self.window(at_R))

    @torch.inference_mode()
    def given(self, at_R: Any) -> Floats:
        """What is seen at a step is read once: its vector is kept."""
        actor, model = self.actor, self.actor.model
        x_RD = model.encoder.seen(self.last(at_R).map(lambda tensor: tensor.to(actor.device)))[:, 0]
        all_RD = x_RD.new_zeros(len(self.togo_R), x_RD.shape[1])
        all_RD[at_R] = x_RD
        self.vectors = [*self.vectors, all_RD][-actor.window :]
        encoded = model.encoder.over(torch.stack(self.vectors, 1)[at_R])
        found: Floats = model.head.actions(encoded)[:, -1].float().cpu().numpy()
        return found

    def last(self, at_R: Any) -> CommandedInputs:
        """The present step of these rows."""
        inputs = self.window(at_R)
        of_steps: dict[str, Any] = {
            field.name: value[:, -1:] for field in fields(inputs)
            if isinstance(value := getattr(inputs, field.name), Tensor) and "_BT" in field.name
        }  # fmt: skip
        return replace(inputs, **of_steps)

    def window(self, at_R: Any) -> CommandedInputs:
        rows = len(at_R)
        words_BW, counts_B = torch.from_numpy(np.tile(self.words_W, (rows, 1))), torch.full((rows,), int(self.count))
        pixels = torch.from_numpy(np.stack(self.pictures, 1)[at_R]) if self.sees else None
        return with_command(super().window(at_R), words_BW, counts_B, pixels)

"""Episodes of policies in a world: states, actions and rewards, step after step, in one .npz.

    states (K, S)    actions (K) or (K, A)    rewards (K)    begins (E): the first step of each episode
    ended (E): whether its world ended it, rather than cut it    succeeded (E): 1, 0, or −1 where the world does not say
    pictures (K, P, P, 3), where they were asked for    about: a JSON text: world, command, spaces, policies

A folder of minari is read as it lies (`headway.data.minari_folders`).

E episodes, K steps of all of them, S width of a state, A width of an action, P pixels of a side.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.atomic import written
from headway.data.examples import arrays_in
from headway.data.minari_folders import is_minari, minari_arrays
from headway.errors import InputError, refuse
from headway.outside import parsed
from headway.worlds.world import Bytes, Choices, Floats, Numbers, Space, space_of

Ints = NDArray[np.int64]
NEEDED = ("states", "actions", "rewards", "begins", "ended", "succeeded", "about")


class Asked(NamedTuple):
    """A world, and what it asks for in words ("": it does not say)."""

    world: str
    command: str = ""


@dataclass(frozen=True)
class Trajectories:
    """Episodes of one world, or of several whose states and actions are alike: `world` is the first one's. policies:
    who acted, with its noise and number of episodes, in order. command: what it asks for. others, asked_E: all worlds,
    and which of them an episode is of, where there are several."""

    world: str
    states: Numbers
    actions: Space
    states_KS: Floats
    actions_K: NDArray[Any]
    rewards_K: Floats
    begins_E: Ints
    ended_E: NDArray[np.bool_]
    succeeded_E: NDArray[np.int8]
    policies: tuple[dict[str, Any], ...] = ()
    pictures_KPP3: Bytes | None = None
    command: str = ""
    others: tuple[Asked, ...] = ()
    asked_E: Ints | None = None

    @property
    def tasks(self) -> tuple[Asked, ...]:
        return self.others or (Asked(self.world, self.command),)

    @cached_property
    def task_E(self) -> Ints:
        return np.zeros(len(self), np.int64) if self.asked_E is None else self.asked_E

    def __len__(self) -> int:
        return len(self.begins_E)

    @cached_property
    def lengths_E(self) -> Ints:
        return np.diff(self.begins_E, append=len(self.rewards_K))

    @cached_property
    def returns_E(self) -> Floats:
        """The sum of each episode's rewards."""
        return np.add.reduceat(self.rewards_K, self.begins_E) if len(self) else np.zeros(0, np.float32)


def save_trajectories(path: Path, found: Trajectories) -> None:
    about = {
        "world": found.world, "command": found.command, "states": found.states.plain(),
        "actions": found.actions.plain(), "policies": list(found.policies),
    }  # fmt: skip
    arrays: dict[str, Any] = {
        "states": found.states_KS, "actions": found.actions_K, "rewards": found.rewards_K, "begins": found.begins_E,
        "ended": found.ended_E, "succeeded": found.succeeded_E, "about": np.array(json.dumps(about)),
    }  # fmt: skip
    if found.pictures_KPP3 is not None:
        arrays["pictures"] = found.pictures_KPP3
    refuse(len(found.tasks) > 1, f"{path}: a file has the episodes of one world")
    with written(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_trajectories(places: Sequence[str | Path], several: bool = False) -> Trajectories:
    """Those of several files, one after the other. several: they may be of different worlds, if states and actions are
    alike."""
    parts = [_read(Path(place)) for place in places]
    refuse(not parts, "there is no file of trajectories")
    first = parts[0]
    for place, part in zip(places, parts, strict=True):
        other = f"{place} is of the world '{part.world}', {places[0]} of '{first.world}': learn them apart"
        refuse(not several and part.world != first.world, other)
        same = (part.states.width, part.actions.plain()) == (first.states.width, first.actions.plain())
        refuse(not same, f"{place} has other states or actions than {places[0]}")
    if len(parts) == 1:
        return first
    starts = np.cumsum([0, *(len(part.rewards_K) for part in parts[:-1])])
    pictures = [part.pictures_KPP3 for part in parts if part.pictures_KPP3 is not None]
    alike = len(pictures) == len(parts) and len({one.shape[1:] for one in pictures}) == 1

    tasks = tuple(dict.fromkeys(task for part in parts for task in part.tasks))

    def all_of(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in parts])

    return replace(
        first, states_KS=all_of("states_KS"), actions_K=all_of("actions_K"), rewards_K=all_of("rewards_K"),
        begins_E=np.concatenate([part.begins_E + start for part, start in zip(parts, starts, strict=True)]),
        ended_E=all_of("ended_E"), succeeded_E=all_of("succeeded_E"),
        policies=tuple(one for part in parts for one in part.policies),
        pictures_KPP3=np.concatenate(pictures) if alike else None, others=tasks,
        asked_E=np.concatenate([np.full(len(part), tasks.index(part.tasks[0])) for part in parts]),
    )  # fmt: skip


def _read(place: Path) -> Trajectories:
    if is_minari(place):
        arrays = minari_arrays(place)
        about = arrays["about"]
    else:
        arrays = arrays_in(place)
        missing = [name for name in NEEDED if name not in arrays]
        refuse(missing, f"{place} is no file of trajectories: it has no array '{next(iter(missing), '')}'")
        about = parsed(str(arrays["about"]), f"{place}: about")
    try:
        world, policies = str(about["world"]), tuple(about["policies"])
        command = str(about.get("command", ""))
        states, actions = space_of(about["states"]), space_of(about["actions"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{place}: about does not describe a world: {error!r}") from error
    if not isinstance(states, Numbers):
        raise InputError(f"{place}: states must be numbers")
    found = Trajectories(
        world, states, actions, _floats(arrays, "states", place, 2), _actions(arrays["actions"], actions, place),
        _floats(arrays, "rewards", place, 1), _whole(arrays, "begins", place), _whole(arrays, "ended", place) != 0,
        _whole(arrays, "succeeded", place).astype(np.int8), policies, _pictures(arrays, place),
        command,
    )  # fmt: skip
    _check(found, place)
    return found


def _floats(arrays: dict[str, Any], name: str, place: Path, dimensions: int) -> Floats:
    array = arrays[name]
    right = array.ndim == dimensions and array.dtype.kind in "fiu"
    refuse(not right, f"{place}: {name} must be numbers in {dimensions} dimensions, not {array.dtype} {array.shape}")
    with np.errstate(over="ignore"):
        return np.asarray(array, np.float32)


def _whole(arrays: dict[str, Any], name: str, place: Path) -> Ints:
    array = arrays[name]
    right = array.ndim == 1 and array.dtype.kind in "iub"
    refuse(not right, f"{place}: {name} must be a row of whole numbers, not {array.dtype} {array.shape}")
    return np.asarray(array, np.int64)


def _pictures(arrays: dict[str, Any], place: Path) -> Bytes | None:
    found: Bytes | None = arrays.get("pictures")
    if found is None:
        return None
    right = found.ndim == 4 and found.dtype == np.uint8 and found.shape[1] == found.shape[2] and found.shape[3] == 3
    refuse(not right, f"{place}: pictures must be bytes (steps, pixels, pixels, 3), not {found.dtype} {found.shape}")
    return found


def _actions(array: NDArray[Any], space: Space, place: Path) -> NDArray[Any]:
    if isinstance(space, Choices):
        found = _whole({"actions": array}, "actions", place)
        wrong = np.flatnonzero((found < 0) | (found >= space.count))
        refuse(len(wrong), f"{place}: step {wrong[:1]}: an action is one of 0 to {space.count - 1}")
        return found
    numbers = _floats({"actions": array}, "actions", place, 2)
    refuse(numbers.shape[1] != space.width, f"{place}: actions have {numbers.shape[1]} numbers, not {space.width}")
    return numbers


def _check(found: Trajectories, place: Path) -> None:
    steps, episodes = len(found.rewards_K), len(found.begins_E)
    refuse(not steps or not episodes, f"{place}: there is no episode in it")
    lengths = {"states": len(found.states_KS), "actions": len(found.actions_K)}
    lengths |= {} if found.pictures_KPP3 is None else {"pictures": len(found.pictures_KPP3)}
    for name, length in lengths.items():
        refuse(length != steps, f"{place}: {length:,} {name} beside {steps:,} rewards")
    for name, some in (("ended", found.ended_E), ("succeeded", found.succeeded_E)):
        refuse(len(some) != episodes, f"{place}: {len(some):,} of {name} beside {episodes:,} episodes")
    wide = found.states_KS.shape[1]
    refuse(wide != found.states.width, f"{place}: states have {wide} numbers, not {found.states.width}")
    rising = found.begins_E[0] == 0 and (found.lengths_E > 0).all()
    refuse(not rising, f"{place}: begins must rise from 0, and stay below {steps:,}")
    for name, array in (("state", found.states_KS), ("action", found.actions_K), ("reward", found.rewards_K)):
        bad_K = ~np.isfinite(array).reshape(steps, -1).all(1)
        if bad_K.any():
            step = int(bad_K.argmax())
            episode = int(np.searchsorted(found.begins_E, step, "right")) - 1
            at = step - int(found.begins_E[episode])
            raise InputError(f"{place}: the {name} at step {at:,} of episode {episode:,} is no finite number")

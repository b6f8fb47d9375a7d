"""Worlds by name."""

from __future__ import annotations

from collections.abc import Callable

from headway.worlds.gym import GymWorld, ids
from headway.worlds.lane import LaneKeeping
from headway.worlds.meta import PREFIX, MetaWorld, task_names
from headway.worlds.world import World

OWN: dict[str, Callable[[], World]] = {LaneKeeping.name: LaneKeeping}


def open_world(name: str) -> World:
    """One of our own, a task of Meta-World, or gymnasium's with this id. An unknown name is an error that tells the
    nearest one."""
    if name in OWN:
        return OWN[name]()
    return MetaWorld(name) if name.startswith(PREFIX) else GymWorld(name)


def world_names() -> list[str]:
    """Our own, those that gymnasium knows, and Meta-World's where it is installed."""
    return [*OWN, *ids(), *task_names()]

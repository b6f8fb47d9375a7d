"""Worlds by name."""

from __future__ import annotations

from collections.abc import Callable

from headway.worlds.lane import LaneKeeping
from headway.worlds.meta import PREFIX, MetaWorld
from headway.worlds.world import World

OWN: dict[str, Callable[[], World]] = {LaneKeeping.name: LaneKeeping}


def open_world(name: str) -> World:
    """One of our own, or gymnasium's with this id. An unknown name is an error that tells the nearest one."""
    if name in OWN:
        return OWN[name]()
    if name.startswith(PREFIX):
        return MetaWorld(name)
    from headway.worlds.gym import GymWorld

    return GymWorld(name)


def world_names() -> list[str]:
    """Our own, then those that gymnasium knows."""
    from headway.worlds.gym import ids

    return [*OWN, *ids()]

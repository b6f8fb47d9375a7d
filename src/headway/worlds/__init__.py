"""Worlds that a policy acts in: those of gymnasium by their ids, and lane keeping."""

from headway.worlds.catalog import open_world
from headway.worlds.world import Choices, Moved, Numbers, Space, World

__all__ = ["Choices", "Moved", "Numbers", "Space", "World", "open_world"]

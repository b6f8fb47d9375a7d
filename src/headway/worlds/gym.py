"""A world of gymnasium, by its id."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from ctypes.util import find_library
from importlib import import_module
from typing import Any

import numpy as np

from headway.errors import InputError, nearest, refuse
from headway.extras import wanted
from headway.worlds.spaces import Spaces
from headway.worlds.world import Bytes, Floats, Moved, Numbers

SAYS = ("success", "is_success")  # what worlds call it in their `info`
PACKAGES = {"MiniGrid-": "minigrid", "BabyAI-": "minigrid"}  # that register their worlds when they are imported
REWARDED = ("MiniGrid-", "BabyAI-")  # whose only reward is for success


CANNOT = "no picture can be drawn here: set MUJOCO_GL to egl or osmesa, and install the library that it names"


def without_a_screen() -> None:
    """MuJoCo draws without a screen where there is none. It reads this when it is first imported."""
    screen = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"))
    if sys.platform == "linux" and not screen:
        found = [way for way, library in (("egl", "EGL"), ("osmesa", "OSMesa")) if find_library(library)]
        if found:
            os.environ["MUJOCO_GL"] = found[0]


def ids() -> list[str]:
    """The worlds that are registered."""
    return sorted(_gymnasium(tuple(PACKAGES)).registry)


def _gymnasium(prefixes: tuple[str, ...]) -> Any:
    """The library, with the worlds of these packages where they are installed."""
    found = wanted("gymnasium", "worlds")
    for package in {PACKAGES[prefix] for prefix in prefixes}:
        with suppress(ModuleNotFoundError):
            import_module(package)
    return found


def _made(gymnasium: Any, name: str) -> Any:
    """With pictures, where the world can draw any."""
    with warnings.catch_warnings():  # it warns of what is tried here
        warnings.simplefilter("ignore")
        try:
            world = gymnasium.make(name, render_mode="rgb_array", disable_env_checker=True)
        except TypeError:
            world = gymnasium.make(name, disable_env_checker=True)
    if name.startswith(REWARDED):  # the kind, colour and state of what is at a place are numbers of names
        world = import_module("minigrid.wrappers").OneHotPartialObsWrapper(world)
    return world


class GymWorld:
    """States are flattened to one row of numbers, of several parts those that are numbers (a mission in words is none);
    actions are as gymnasium has them. It is carried as its seed and the
    actions since: `restore` repeats them, since most worlds have no state to take out."""

    def __init__(self, name: str) -> None:
        prefixes = tuple(prefix for prefix in PACKAGES if name.startswith(prefix))
        without_a_screen()
        gymnasium = _gymnasium(prefixes)
        for prefix in prefixes:
            wanted(PACKAGES[prefix], "grids")
        try:
            world = self._made(gymnasium, name)
        except gymnasium.error.Error as error:
            known = ids()
            refuse(name not in known, f"there is no world {name!r}{nearest(name, known, 'headway collect --worlds')}")
            raise InputError(f"the world {name!r} cannot be opened: {' '.join(str(error).split())}") from error
        except AttributeError as error:  # of a graphics library that MUJOCO_GL names and that is missing
            raise InputError(CANNOT) from error
        except ImportError as error:  # a package of its own, such as mujoco
            raise InputError(f"the world {name!r} needs {error.name or 'a package'}, which is not installed") from error
        self.name, self.command, self.world = name, "", world
        self.spaces = Spaces(gymnasium.spaces, world.observation_space, world.action_space, name)
        self.actions, self.states = self.spaces.actions, self.spaces.states
        self.seed, self.done = 0, list[Any]()

    def _made(self, gymnasium: Any, name: str) -> Any:
        return _made(gymnasium, name)

    def _first(self, seed: int) -> Any:
        """The first state of an episode, a function of the seed."""
        return self.world.reset(seed=seed)[0]

    def reset(self, seed: int) -> Floats:
        self.seed, self.done = seed, []
        return self.spaces.flat(self._first(seed))

    def step(self, action: Any) -> Moved:
        if isinstance(self.actions, Numbers):
            given: Any = self.actions.bounded(action)
            self.done.append(given.tolist())
        else:
            given = int(action)
            self.done.append(given)
            given += self.spaces.first
        state, reward, ended, cut, info = self.world.step(given)
        said = next((bool(info[key]) for key in SAYS if key in info), None)
        said = float(reward) > 0 if self.name.startswith(REWARDED) else said
        return Moved(self.spaces.flat(state), float(reward), bool(ended), bool(cut), said)

    def picture(self, size: int) -> Bytes:
        from PIL import Image

        refuse(self.world.render_mode != "rgb_array", f"the world {self.name!r} draws no pictures")
        self._follow()
        seen = Image.fromarray(self.world.render())
        return np.asarray(seen.resize((size, size), Image.Resampling.BILINEAR), np.uint8)

    def _follow(self) -> None:
        """MuJoCo's camera looks where the body is that it should follow: its own way of following depends on the
        pictures before, and gymnasium leaves it where it was."""
        plain = self.world.unwrapped
        camera: Any = getattr(plain, "mujoco_renderer", None)
        body = (getattr(camera, "default_cam_config", None) or {}).get("trackbodyid")
        if body is not None:
            camera._get_viewer(render_mode="rgb_array").cam.lookat[:2] = plain.data.xpos[body][:2]

    def carried(self) -> dict[str, Any]:
        return {"seed": self.seed, "actions": list(self.done)}

    def restore(self, carried: dict[str, Any]) -> Floats:
        state_S = self.reset(int(carried["seed"]))
        for action in carried["actions"]:
            state_S = self.step(action).state_S
        return state_S

    def close(self) -> None:
        self.world.close()

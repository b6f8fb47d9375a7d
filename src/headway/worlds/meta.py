"""Meta-World (Yu et al. 2019): a robot arm with fifty tasks, each of which has an expert that is written down."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from headway.errors import nearest, refuse
from headway.extras import wanted
from headway.worlds.gym import GymWorld
from headway.worlds.world import Bytes, Floats

PREFIX = "Meta-World/"
CAMERA, SIDE = "corner2", 256  # pixels that it is drawn with


def task_names() -> list[str]:
    """None where it is not installed."""
    return [f"{PREFIX}{name}" for name in (_tasks() if find_spec("metaworld") else ())]


def _tasks() -> Any:
    wanted("metaworld", "robots")
    return import_module("metaworld.env_dict").ALL_V3_ENVIRONMENTS


class MetaWorld(GymWorld):
    """The goal is a part of the state, and is drawn anew for each episode."""

    def _made(self, gymnasium: Any, name: str) -> Any:
        tasks, task = _tasks(), name.removeprefix(PREFIX)
        refuse(task not in tasks, f"Meta-World has no task {task!r}{nearest(task, tasks)}")
        world = tasks[task](render_mode="rgb_array", camera_name=CAMERA, width=SIDE, height=SIDE)
        world._partially_observable, world._freeze_rand_vec, world._set_task_called = False, False, True
        world.seeded_rand_vec = True
        del world.sawyer_observation_space  # it was made while the goal was hidden
        return world

    def _first(self, seed: int) -> Any:
        self.world.seed(seed)
        return self.world.reset()[0]

    def picture(self, size: int) -> Bytes:
        return np.ascontiguousarray(super().picture(size)[::-1])  # this camera hangs upside down


def expert(name: str) -> Any:
    """The rule of a task, from its state."""
    wanted("metaworld", "robots")
    policy = import_module("metaworld.policies").ENV_POLICY_MAP[name.removeprefix(PREFIX)]()

    def rule(state_S: Floats, skill: float) -> Any:
        refuse(skill < 1, "the experts of Meta-World always do as well as they can: --noise disturbs them")
        return policy.get_action(state_S.astype(float))

    return rule

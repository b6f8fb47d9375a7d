"""Meta-World (Yu et al. 2019): a robot arm with fifty tasks, each of which has an expert that is written down."""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from headway.errors import InputError, nearest, refuse
from headway.extras import wanted
from headway.worlds.gym import CANNOT, GymWorld, without_a_screen
from headway.worlds.world import Bytes, Floats, Moved

PREFIX = "Meta-World/"
CAMERA, SHARE = "corner2", 0.55  # of what the camera sees in each direction: the hand never leaves the middle
FINER = 2  # pixels that are drawn for one, in each direction
COMMANDS = {
    "reach-v3": "reach the goal", "push-v3": "push the puck to the goal",
    "pick-place-v3": "pick up the puck and hold it at the goal", "door-open-v3": "open the door",
    "drawer-open-v3": "open the drawer", "button-press-topdown-v3": "press the button from above",
}  # fmt: skip


def task_names() -> list[str]:
    """None where it is not installed."""
    return [f"{PREFIX}{name}" for name in (_tasks() if find_spec("metaworld") else ())]


def _tasks() -> Any:
    without_a_screen()
    try:
        wanted("metaworld", "robots")
        return import_module("metaworld.env_dict").ALL_V3_ENVIRONMENTS
    except AttributeError as error:  # of a graphics library that is named and missing
        raise InputError(CANNOT) from error


class MetaWorld(GymWorld):
    """The goal is a part of the state, and is drawn anew for each episode, which ends when the task is done."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.drawings: dict[int, Any] = {}
        task = name.removeprefix(PREFIX)
        self.command = COMMANDS.get(task, task.rpartition("-")[0].replace("-", " "))

    def _made(self, gymnasium: Any, name: str) -> Any:
        tasks, task = _tasks(), name.removeprefix(PREFIX)
        refuse(task not in tasks, f"Meta-World has no task {task!r}{nearest(task, tasks)}")
        world = tasks[task](render_mode="rgb_array", camera_name=CAMERA)
        world._partially_observable, world._freeze_rand_vec, world._set_task_called = False, False, True
        world.seeded_rand_vec = True
        number, angles = world.model.camera(CAMERA).id, world.model.cam_fovy
        angles[number] = np.degrees(2 * np.arctan(SHARE * np.tan(np.radians(angles[number]) / 2)))
        del world.sawyer_observation_space  # it was made while the goal was hidden
        return world

    def _first(self, seed: int) -> Any:
        self.world.seed(seed)
        return self.world.reset()[0]

    def step(self, action: Any) -> Moved:
        moved = super().step(action)
        return moved._replace(cut=moved.cut or bool(moved.succeeded))  # it could be continued, and be rewarded

    def picture(self, size: int) -> Bytes:
        """Without shadows and reflections: without a GPU they would take nearly all of the time."""
        renderer, flags = self._renderer(FINER * size), import_module("mujoco").mjtRndFlag
        renderer.update_scene(self.world.data, CAMERA)
        for flag in (flags.mjRND_SHADOW, flags.mjRND_REFLECTION):
            renderer.scene.flags[flag] = 0
        fine_PPC = renderer.render().reshape(size, FINER, size, FINER, 3).astype(np.uint16)
        mean_PPC = (fine_PPC.sum((1, 3)) + FINER**2 // 2) // FINER**2
        return np.ascontiguousarray(mean_PPC[::-1].astype(np.uint8))  # this camera hangs upside down

    def _renderer(self, side: int) -> Any:
        if side not in self.drawings:
            mujoco, model = import_module("mujoco"), self.world.model
            model.vis.global_.offwidth = model.vis.global_.offheight = max(side, *self.drawings, 0)
            model.vis.quality.offsamples, model.vis.quality.shadowsize = 0, 1
            try:
                self.drawings[side] = mujoco.Renderer(model, side, side)
            except Exception as error:  # whatever the graphics library says
                raise InputError(CANNOT) from error
        return self.drawings[side]

    def close(self) -> None:
        while self.drawings:
            self.drawings.popitem()[1].close()
        super().close()


def expert(name: str) -> Any:
    """The rule of a task, from its state."""
    wanted("metaworld", "robots")
    policy = import_module("metaworld.policies").ENV_POLICY_MAP[name.removeprefix(PREFIX)]()

    def rule(state_S: Floats, skill: float) -> Any:
        refuse(skill < 1, "the experts of Meta-World always do as well as they can: --noise disturbs them")
        with warnings.catch_warnings():  # that its actions are larger than the bounds
            warnings.simplefilter("ignore")
            return policy.get_action(state_S.astype(float))

    return rule

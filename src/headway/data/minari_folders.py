"""Data sets of minari (Farama Foundation), from their folders.

K steps, E episodes, S width of a state, A width of an action.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headway.errors import InputError
from headway.extras import wanted
from headway.worlds.spaces import Spaces
from headway.worlds.world import Floats

DATA, ABOUT = "data", "metadata.json"


def is_minari(place: Path) -> bool:
    return any((folder / ABOUT).is_file() for folder in (place, place / DATA))


def minari_arrays(place: Path) -> dict[str, Any]:
    """What `headway.data.trajectories` reads of a file, by the same names."""
    library, gymnasium = wanted("minari", "minari"), wanted("gymnasium", "minari")
    try:
        data = library.MinariDataset(place if (place / ABOUT).is_file() else place / DATA)
        episodes = list(data.iterate_episodes())
        world = data.spec.env_spec.id if data.spec.env_spec is not None else str(data.spec.dataset_id)
        spaces = Spaces(gymnasium.spaces, data.spec.observation_space, data.spec.action_space, world)
        states = [_states(spaces, one.observations, len(one.rewards)) for one in episodes]
        lengths = [len(one.rewards) for one in episodes]
        arrays = {
            "states": np.concatenate(states),
            "actions": np.concatenate([spaces.done(one.actions) for one in episodes]),
            "rewards": np.concatenate([np.asarray(one.rewards, np.float32) for one in episodes]),
            "begins": np.cumsum([0, *lengths[:-1]]),
            "ended": np.array([bool(one.terminations[-1]) for one in episodes]),
            "succeeded": np.array([_succeeded(one.infos) for one in episodes]),
        }
    except InputError:
        raise
    except Exception as error:  # of a library that reads files which may be damaged anywhere
        raise InputError(f"{place} is no whole data set of minari: {type(error).__name__}: {error}") from error
    who = {"policy": str(data.spec.dataset_id), "episodes": len(episodes)}
    spoken = {"world": world, "states": spaces.states.plain(), "actions": spaces.actions.plain(), "policies": [who]}
    return arrays | {"about": spoken}


def _states(spaces: Spaces, observations: Any, steps: int) -> Floats:
    """(K, S): of every step but the last, behind which nothing was done."""
    if isinstance(observations, dict):
        every = ({name: part[step] for name, part in observations.items()} for step in range(steps))
        return np.stack([spaces.flat(one) for one in every])
    return np.stack([spaces.flat(one) for one in observations[:steps]])


def _succeeded(infos: Any) -> int:
    """1 or 0 where the world says it at any step, else −1."""
    said = next((infos[name] for name in ("success", "is_success") if isinstance(infos, dict) and name in infos), None)
    return -1 if said is None else int(np.any(said))

"""headway collect"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.cli.options import argument, flag, option
from headway.errors import refuse

MOST = 10_000_000  # episodes


def collect(
    world: str = argument("WORLD", "A world's name: CartPole-v1, lane-keeping, or any other id of gymnasium.", None),
    policy: str = option("random", "NAME", "Who acts: expert, random, or a model's folder."),
    episodes: int = option(100, "N", "How many episodes.", min=1),
    noise: float = option(
        0.0,
        "SHARE",
        "Of choices, the share that is random; of numbers, the deviation of what is added.",
        min=0.0,
    ),
    intended: bool = flag(
        "--intended", "With --noise: keep what the policy wanted to do, not what the noise made of it."
    ),
    skill: float = option(
        1.0, "SHARE", "Of an expert: 1 for as well as it can, less for one that errs.", min=0.0, max=1.0
    ),
    command: str = option("", "TEXT", "What is asked for, in words: kept in the file, and told to a robot policy."),
    pictures: int = option(0, "PIXELS", "Keep a picture of each step too, of so many pixels a side.", min=0),
    steps: int = option(0, "N", "Cut episodes after so many steps; 0: where the world does.", min=0),
    seed: int = option(1, "N", "Of all that is random.", min=0),
    out: str = option("", "FILE", "Where they go, an .npz (default: WORLD-POLICY.npz)."),
    overwrite: bool = flag("--overwrite", "Replace a file that is there."),
    worlds: bool = flag("--worlds", "List the worlds that are installed, and stop."),
) -> None:
    """Let a policy act in a world and keep what happens: states, actions and rewards, to learn from."""
    from rich.console import Console
    from rich.progress import track

    from headway.data.trajectories import save_trajectories
    from headway.generate.acting import episodes as acted
    from headway.generate.acting import gathered
    from headway.worlds.catalog import open_world, world_names
    from headway.worlds.policies import policy_named

    if worlds:
        print("\n".join(world_names()))
        return
    refuse(not world, "name a world, such as CartPole-v1; headway collect --worlds lists them")
    refuse(episodes > MOST, f"--episodes is {episodes:,}: {MOST:,} at most")
    refuse(not math.isfinite(noise), f"--noise is {noise}: a share from 0 on")
    refuse(pictures > 4096, f"--pictures is {pictures}: 4,096 pixels a side at most")
    opened = open_world(world)
    chosen: Any = None
    if Path(policy).is_dir():
        chosen, command = trained(policy, opened, world, command)
    else:
        chosen = policy_named(policy, opened, skill)
    target = Path(out or f"{world.replace('/', '-')}-{Path(policy).name}.npz")
    refuse(target.suffix != ".npz", f"{target}: trajectories are written as an .npz")
    refuse(target.exists() and not overwrite, f"{target} is there already: choose another --out, or pass --overwrite")
    refuse(not target.parent.is_dir(), f"there is no folder {target.parent}")
    how = {"noise": noise, "pictures": pictures, "most": steps or None, "intended": intended}
    every_world = [opened, *(open_world(world) for _ in range(min(chosen.at_once, episodes) - 1))]
    try:
        every = acted(every_world, chosen, episodes, (seed,), **how)
        found = list(track(every, "acting", episodes, console=Console(stderr=True), transient=True))
    finally:
        for one in every_world:
            one.close()
    about = {
        "policy": Path(policy).name,
        "noise": noise,
        "intended": intended,
        "skill": skill,
        "episodes": episodes,
        "seed": seed,
    }
    kept = gathered(opened, found, (about,))
    kept = replace(kept, command=command or kept.command)
    save_trajectories(target, kept)
    tell(kept)
    print(f"trajectories: {target} ({target.stat().st_size / 1e6:.1f} MB)", file=sys.stderr)


def tell(kept: Any) -> None:
    returns = kept.returns_E
    print(f"{len(kept):,} episodes, {len(kept.rewards_K):,} steps")
    print(f"return: {returns.min():.4g} to {returns.max():.4g}, mean {returns.mean():.4g}")
    if (kept.succeeded_E >= 0).all():
        print(f"succeeded: {100 * kept.succeeded_E.mean():.1f} %")


def trained(folder: str, opened: Any, world: str, command: str) -> tuple[Any, str]:
    """The policy of a model, told to reach the highest return that it has learned from, or to follow a command; and
    that command."""
    from headway.tasks.loading import load

    actor = load(folder, verb="play")
    actor.check(opened, world)
    task, *others = actor.tasks(world, command)
    refuse(others, f"it follows {1 + len(others)} commands in '{world}': say which with --command")
    return actor.policy(command=task.command), task.command

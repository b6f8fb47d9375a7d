"""headway play"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from headway.cli.options import AS_JSON, DEVICE, DTYPE, MODEL, THREADS, check_model, flag, option
from headway.errors import refuse
from headway.plain import json_line

MOST = 1_000_000  # episodes


def play(
    model: str = MODEL,
    episodes: int = option(20, "N", "How many episodes, of each return that is wanted.", min=1),
    wanted: list[float] = option(
        [], "RETURN...", "The return to reach, for a policy that is told; several for a table. Default: the highest "
        "that it has learned from.", "--return",
    ),
    world: str = option("", "WORLD", "One of its worlds, or another one with the same states and actions."),
    command: str = option("", "TEXT", "What a robot policy is told, in other words than it has learned."),
    seed: int = option(1, "N", "Of the worlds, and of --sample.", min=0),
    sample: bool = flag("--sample", "Draw choices by their probabilities, not the most probable one."),
    steps: int = option(0, "N", "Cut episodes after so many steps; 0: where the world does.", min=0),
    film: str = option("", "FILE", "Write the best, the median and the worst episode here: .gif or .webp."),
    look: bool = flag("--look", "The film shows where a policy that sees pictures looks: bright, the rest dark."),
    size: int = option(200, "PIXELS", "Of a side of the film.", min=16, max=1024),
    as_json: bool = AS_JSON,
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:  # fmt: skip
    """Let a policy act in its world: the mean return with its 95 % interval, and how often it succeeded."""
    import numpy as np

    from headway.evaluate.label_sets import correlation
    from headway.generate.film import SUFFIXES, write_film
    from headway.tasks.loading import load

    check_model(model, "headway play MODEL")
    refuse(episodes > MOST, f"--episodes is {episodes:,}: {MOST:,} at most")
    target = Path(film) if film else None
    if target is not None:
        refuse(target.suffix.lower() not in SUFFIXES, f"--film {target}: a film is written as {' or '.join(SUFFIXES)}")
        refuse(not target.parent.is_dir(), f"there is no folder {target.parent}")
    actor: Any = load(model, device, dtype, verb="play")
    refuse(look and not film, "--look is of a film: name it with --film")
    refuse(look and not actor.observations.config.pixels, "--look has no meaning here: this policy sees no pictures")
    asked = returns_of(actor, wanted)
    tasks = tasks_of(actor, world, command)
    films: list[Any] = []
    rows: list[dict[str, Any]] = []
    for task in tasks:
        policies = {one: actor.policy(one, sample, task.command) for one in asked}
        how = (task, actor, policies, episodes, seed, {"most": steps or None})
        some, frames = in_world(*how, look=look, size=size if film else 0)
        rows += some
        films += frames
    if target is not None:
        write_film(target, films)
    reached = np.array([(row["wanted"], row["return"]) for row in rows])
    linear = correlation(*reached.T) if len(asked) > 1 else None
    if as_json:
        print(json_line({"world": tasks[0].world, "episodes": episodes, "seed": seed, "rows": rows,
                         "correlation": linear}))  # fmt: skip
        return
    tell(rows, episodes, bool(wanted), linear)
    if target is not None:
        print(f"film: {target} (best, median, worst)", file=sys.stderr)


def in_world(
    task: Any, actor: Any, policies: dict[float, Any], episodes: int, seed: int, how: dict[str, Any], *, look: bool,
    size: int,
) -> tuple[list[dict[str, Any]], list[Any]]:  # fmt: skip
    """What each policy, by the return that is wanted, reaches in one world; and with a size, frames of its film."""
    from rich.console import Console
    from rich.progress import track

    from headway.evaluate.episodes import EpisodeScores
    from headway.generate.actor import AT_ONCE, played

    worlds = actor.open_worlds(min(episodes, AT_ONCE), task.world)
    found: list[tuple[Any, Any]] = []
    rows = []
    try:
        for wanted, policy in policies.items():
            every = played(worlds, policy, episodes, seed, **how)
            some = list(track(every, "acting", episodes, console=Console(stderr=True), transient=True))
            rows.append(task._asdict() | {"wanted": wanted} | EpisodeScores.of(some).figures())
            found += [(policy, episode) for episode in some]
        return rows, shown(found, worlds[0], task.command, look, pictures=size, **how) if size else []
    finally:
        for opened in worlds:
            opened.close()


def returns_of(actor: Any, wanted: list[float]) -> list[float]:
    """The returns to reach; one that the model has never seen is told."""
    refuse(wanted and not actor.told, "--return has no meaning here: this policy is not told what to reach")
    least, _, most = actor.observations.config.returns
    for one in wanted:
        refuse(not math.isfinite(one), f"--return is {one}: a finite number")
        if not least <= one <= most:
            print(f"note: a return of {one:g} is beyond what it has learned from ({least:g} to {most:g}): it has to "
                  "extrapolate", file=sys.stderr)  # fmt: skip
    return wanted or [actor.most]


def tasks_of(actor: Any, world: str, command: str) -> list[Any]:
    """The worlds to act in, each with what is asked for; a word that the model has never read is told."""
    tasks: list[Any] = actor.tasks(world, command)
    if command and (unknown := actor.unknown(command)):
        print(f"note: it has never read {', '.join(unknown)}", file=sys.stderr)
    return tasks


def shown(found: list[tuple[Any, Any]], world: Any, command: str, look: bool, **how: Any) -> list[Any]:
    """Frames of the best, the median and the worst episode: those are played again, so that no other is drawn."""
    from headway.generate.acting import acted
    from headway.generate.film import frames_of, veiled

    order = sorted(found, key=lambda pair: (-bool(pair[1].succeeded), -pair[1].total))
    chosen = {"best": order[0], "median": order[len(order) // 2], "worst": order[-1]}
    frames = []
    for name, (policy, episode) in chosen.items():
        policy.watched = look
        [again] = acted([world], policy, [episode.seed], **how)
        pictures = (
            [veiled(*pair) for pair in zip(again.pictures, policy.looks, strict=True)] if look else again.pictures
        )
        frames += frames_of(pictures, again.rewards, f"{command}, {name}: " if command else f"{name}: ")
    return frames


def tell(rows: list[dict[str, Any]], episodes: int, told: bool, linear: float | None) -> None:
    several = len({(row["world"], row["command"]) for row in rows}) > 1
    for row in rows:
        if several:
            print(f"{row['world']}: {row['command']}")
        success = f"   success {100 * row['success']:.1f} %" if "success" in row else ""
        before = f"wanted {row['wanted']:>10.4g}   " if told else ""
        interval = "" if row["interval"] != row["interval"] else f" ± {row['interval']:.4g}"
        print(f"{before}return {row['return']:.4g}{interval} ({row['least']:.4g} to {row['most']:.4g})"
              f"   {row['steps']:.4g} steps{success}")  # fmt: skip
    if linear is not None:
        print(f"correlation of wanted and reached: {linear:.3f}")
    if several and all("success" in row for row in rows):
        print(f"success {100 * sum(row['success'] for row in rows) / len(rows):.1f} %, the mean of {len(rows)} tasks")
    print(f"{episodes:,} episodes{' each' if len(rows) > 1 else ''}", file=sys.stderr)

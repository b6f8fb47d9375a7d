"""headway play"""

from __future__ import annotations

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
    world: str = option("", "WORLD", "Another world with the same states and actions."),
    seed: int = option(1, "N", "Of the worlds, and of --sample.", min=0),
    sample: bool = flag("--sample", "Draw choices by their probabilities, not the most probable one."),
    steps: int = option(0, "N", "Cut episodes after so many steps; 0: where the world does.", min=0),
    film: str = option("", "FILE", "Write the best, the median and the worst episode here: .gif or .webp."),
    size: int = option(200, "PIXELS", "Of a side of the film.", min=16, max=1024),
    as_json: bool = AS_JSON,
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:  # fmt: skip
    """Let a policy act in its world: the mean return with its 95 % interval, and how often it succeeded."""
    from rich.console import Console
    from rich.progress import track

    from headway.evaluate.episodes import EpisodeScores, correlation
    from headway.generate.actor import AT_ONCE, played
    from headway.generate.film import SUFFIXES
    from headway.tasks.loading import load

    check_model(model, "headway play MODEL")
    refuse(episodes > MOST, f"--episodes is {episodes:,}: {MOST:,} at most")
    target = Path(film) if film else None
    if target is not None:
        refuse(target.suffix.lower() not in SUFFIXES, f"--film {target}: a film is written as {' or '.join(SUFFIXES)}")
        refuse(not target.parent.is_dir(), f"there is no folder {target.parent}")
    actor: Any = load(model, device, dtype, verb="play")
    asked = wanted or [actor.most]
    for one in asked:
        refuse(one != one or abs(one) == float("inf"), f"--return is {one}: a finite number")
        least, _, most = actor.observations.config.returns
        if wanted and not least <= one <= most:
            print(f"note: a return of {one:g} is beyond what it has learned from ({least:g} to {most:g}): it has to "
                  "extrapolate", file=sys.stderr)  # fmt: skip
    worlds = actor.open_worlds(min(episodes, AT_ONCE), world)
    rows: list[dict[str, Any]] = []
    kept: list[Any] = []
    how = {"most": steps or None, "pictures": size if target else 0}
    try:
        for one in asked:
            every = played(worlds, actor.policy(one, sample), episodes, seed, **how)
            found = list(track(every, "acting", episodes, console=Console(stderr=True), transient=True))
            rows.append({"wanted": one} | EpisodeScores.of(found).figures())
            kept += shown(kept + found) if target else []
    finally:
        for opened in worlds:
            opened.close()
    linear = correlation([row["wanted"] for row in rows], [row["return"] for row in rows])
    if target is not None:
        save(target, shown(kept))
    if as_json:
        print(json_line({"world": world or actor.world, "episodes": episodes, "seed": seed, "rows": rows,
                         "correlation": None if linear != linear else linear}))  # fmt: skip
        return
    tell(rows, episodes, bool(wanted), linear)
    if target is not None:
        print(f"film: {target} (best, median, worst)", file=sys.stderr)


def shown(found: list[Any]) -> list[Any]:
    """The best, the median and the worst episode."""
    order = sorted(found, key=lambda episode: -episode.total)
    return [order[0], order[len(order) // 2], order[-1]]


def save(target: Path, found: list[Any]) -> None:
    from headway.generate.film import frames_of, write_film

    names = ("best", "median", "worst")
    parts = [frames_of(one.pictures, one.rewards, f"{name}: ") for name, one in zip(names, found, strict=True)]
    write_film(target, [frame for part in parts for frame in part])


def tell(rows: list[dict[str, Any]], episodes: int, told: bool, linear: float) -> None:
    for row in rows:
        success = f"   success {100 * row['success']:.1f} %" if "success" in row else ""
        before = f"wanted {row['wanted']:>10.4g}   " if told else ""
        interval = "" if row["interval"] != row["interval"] else f" ± {row['interval']:.4g}"
        print(f"{before}return {row['return']:.4g}{interval} ({row['least']:.4g} to {row['most']:.4g})"
              f"   {row['steps']:.4g} steps{success}")  # fmt: skip
    if linear == linear:
        print(f"correlation of wanted and reached: {linear:.3f}")
    print(f"{episodes:,} episodes{' each' if len(rows) > 1 else ''}", file=sys.stderr)

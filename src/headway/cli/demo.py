"""headway demo"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from headway.cli.options import DEVICE, THREADS, flag, option


def demo(
    out: str = option("demo", "FOLDER", "Folder for the model, the pictures and the data."),
    overwrite: bool = flag("--overwrite", "Replace the folder if it is there."),
    steps: int = option(None, "N", "Fewer or more training steps than the recipe has."),
    device: str = DEVICE,
    threads: int = THREADS,
) -> None:
    """Everything in a few minutes on a laptop, offline: train, translate, score, look inside. The same
    command resumes what was stopped."""
    from headway.cli.place import is_unfinished_demo, set_aside, worked_in
    from headway.recipes.demo import run_demo
    from headway.train.log import Log

    place = Path(out)
    resume = is_unfinished_demo(place)
    with set_aside(place, overwrite and not resume), worked_in(place, place, resume), closing(Log(place)) as log:
        report = run_demo(place, log, device, steps, resume)
    print(report)

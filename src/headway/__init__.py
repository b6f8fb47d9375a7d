"""headway: train, run and explain sequence models, from the Markov chain to the Transformer.

    import headway

    model = headway.train("gpt", data="my.txt", out="runs/mine")  # or "translate", …: see `headway recipes`
    model = headway.load("runs/mine")  # a run, a model folder, or another program's checkpoint
    print(model)  # what it is, and what it can be asked
    model.generate("Once upon a time")  # one text gives one, a list gives a list
    model.trace("Once upon a time")  # what happens inside while it reads

    load        the model of a folder: a Translator, a Generator, an Encoder, …
    train       what `headway train` does: a recipe's data or yours, to a model
    fit         the training loop for a module of your own
    trace       record what happens inside any module
    show        a trace, or several, on the page in the browser
    nn          the parts: attention, feed-forward, norms, positions, masks, cells
    InputError  what is raised where the input is wrong: one line, with what to do

`import headway` is quick: everything heavy is imported where it is first used.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import headway.hub  # noqa: F401  (every command then reads these formats too)

if TYPE_CHECKING:
    from headway import nn
    from headway.errors import InputError
    from headway.explore.pages import show
    from headway.generate.encoder import Encoder
    from headway.generate.generator import Generator
    from headway.generate.tracing import trace
    from headway.generate.translator import Translator
    from headway.tasks.loading import load
    from headway.traces import Trace
    from headway.train.own import fit
    from headway.training import train

__all__ = [
    "Encoder", "Generator", "InputError", "Trace", "Translator", "fit", "load", "nn", "show", "trace", "train",
]  # fmt: skip

# Where each name is; "": a package of its own.
PLACES = {
    "Encoder": "generate.encoder", "Generator": "generate.generator", "InputError": "errors", "Trace": "traces",
    "Translator": "generate.translator", "fit": "train.own", "load": "tasks.loading", "nn": "",
    "show": "explore.pages", "trace": "generate.tracing", "train": "",
}  # fmt: skip

# Torch's CPU threads spin for a millisecond after each operation by default. Where other work shares the cores,
# each then waits for one that only spins: a step took 13 times as long. Read when torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

try:
    __version__ = version("headway")
except PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0+checkout"


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module 'headway' has no attribute '{name}'")
    place = PLACES[name]
    return getattr(import_module(f"headway.{place}"), name) if place else import_module(f"headway.{name}")


def __dir__() -> list[str]:
    """What is for users; the modules that happen to be loaded are not."""
    return sorted([*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"])

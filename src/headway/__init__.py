"""headway: train, run and explain sequence models, from the Markov chain to the Transformer.

    import headway
    translator = headway.load("runs/my-translator")
    translator.translate(["He drives the car"])

Everything heavy is imported where it is first used.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import headway.hub  # noqa: F401  (every command then reads these formats too)

if TYPE_CHECKING:
    from headway.explore.pages import show
    from headway.generate.encoder import Encoder
    from headway.generate.generator import Generator
    from headway.generate.tracing import trace
    from headway.generate.translator import Translator
    from headway.tasks.loading import load
    from headway.train.own import fit

__all__ = ["Encoder", "Generator", "Translator", "fit", "load", "show", "trace"]

PLACES = {
    "Encoder": "generate.encoder", "Generator": "generate.generator", "Translator": "generate.translator",
    "fit": "train.own", "load": "tasks.loading", "show": "explore.pages", "trace": "generate.tracing",
}  # fmt: skip

# Torch's CPU threads spin for a millisecond after each operation by default. Where other work shares the cores,
# each then waits for one that only spins: a step took 13 times as long. Read when torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

try:
    __version__ = version("headway")
except PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0+checkout"


def __getattr__(name: str) -> Any:
    if name in PLACES:
        return getattr(import_module(f"headway.{PLACES[name]}"), name)
    raise AttributeError(f"module 'headway' has no attribute '{name}'")

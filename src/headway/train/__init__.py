"""Training: `headway.train("gpt", data="my.txt", out="runs/mine")` trains a model and returns it.

`help(headway.training.train)` has the parameters, which are the options of `headway train`. The modules of this package
are the loop, its optimisers, schedules, checkpoints and logs.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """`headway.train` is the package once a module of it is imported, and stays the function for a caller."""

    def __call__(self, *args: Any, **how: Any) -> Any:
        return import_module("headway.training").train(*args, **how)


sys.modules[__name__].__class__ = _Callable

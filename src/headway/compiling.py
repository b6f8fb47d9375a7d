"""torch.compile, and what is left out of it; the compiler takes seconds to load, so only who compiles loads it."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


class Uncompiled(Generic[P, R]):
    """A function that runs as it is written inside of compiled code too."""

    everyone: list[Uncompiled[Any, Any]] = []

    def __init__(self, function: Callable[P, R]) -> None:
        update_wrapper(self, function)
        self.function, self.told = function, False
        self.everyone.append(self)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        return self.function(*arguments, **named)

    def tell(self) -> None:
        if not self.told:
            self.function, self.told = torch.compiler.disable(self.function), True


def compiled(target: Any, **options: Any) -> Any:
    """torch.compile with these options; the one way to it."""
    for function in Uncompiled.everyone:
        function.tell()
    return torch.compile(target, **options)

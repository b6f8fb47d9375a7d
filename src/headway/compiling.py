"""torch.compile, and functions excluded from it. The compiler, which takes seconds to load, is loaded when needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


class Uncompiled(Generic[P, R]):
    """A function that is not compiled, also when compiled code calls it."""

    everyone: list[Uncompiled[Any, Any]] = []  # that compiled code would still compile

    def __init__(self, function: Callable[P, R]) -> None:
        update_wrapper(self, function)
        self.function = function
        self.everyone.append(self)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        return self.function(*arguments, **named)


def compiled(target: Any, **options: Any) -> Any:
    """torch.compile with these options; the only place that calls it.

    torch remembers by function, not by model, which sizes it has seen, and would take the sizes of a model compiled
    before for sizes that change (0.9 times the speed of `base` on an H200). So it begins anew with each model.
    """
    from torch._dynamo.pgo import reset_code_state

    reset_code_state()
    while Uncompiled.everyone:
        function = Uncompiled.everyone.pop()
        function.function = torch.compiler.disable(function.function)
    return torch.compile(target, **options)

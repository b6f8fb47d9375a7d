"""One value in, one answer out; a list in, a list out: the rule of every method that answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

Self = TypeVar("Self")
Value = TypeVar("Value", contravariant=True)
Answers = TypeVar("Answers")
How = ParamSpec("How")


class Bound(Generic[Value, How, Answers]):
    """What a type checker sees of such a method."""

    @overload
    def __call__(self, values: str, *args: How.args, **how: How.kwargs) -> Any: ...
    @overload
    def __call__(self, values: Value, *args: How.args, **how: How.kwargs) -> Answers: ...
    def __call__(self, values: Any, *args: How.args, **how: How.kwargs) -> Any: ...


class OneOrMany(Generic[Value, How, Answers]):
    def __get__(self, instance: object, owner: type) -> Bound[Value, How, Answers]:
        raise NotImplementedError


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_several(value: Any) -> bool:
    """Whether it is one value that is made of texts: a question and its text, a question and its choices."""
    return isinstance(value, Sequence) and not is_text(value) and len(value) > 0 and is_text(value[0])


def one_or_many(
    is_one: Callable[[Any], bool],
) -> Callable[[Callable[Concatenate[Self, Value, How], Answers]], OneOrMany[Value, How, Answers]]:
    """A method of a list that gives an answer for each value also takes one value, and then gives its answer alone."""

    def widened(method: Callable[..., Any]) -> Any:
        @wraps(method)
        def call(self: Any, values: Any, *args: Any, **how: Any) -> Any:
            return method(self, [values], *args, **how)[0] if is_one(values) else method(self, values, *args, **how)

        call.one_or_many = True  # type: ignore[attr-defined]
        return call

    return cast(Any, widened)

"""What encoders share, and the vectors of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from headway.errors import refuse
from headway.generate.encoder import Encoder
from headway.tasks.task import Prediction, Task, refuse_unknown


def answered(values: Sequence[Any], ask: Callable[[list[Any]], list[list[Any]]]) -> list[list[Any]]:
    """The answer to each value; a blank text has none."""
    there = [at for at, value in enumerate(values) if not isinstance(value, str | tuple) or "".join(value).strip()]
    found = dict(zip(there, ask([values[at] for at in there]), strict=True))
    return [found.get(at, []) for at in range(len(values))]


def pair_of(line: str | tuple[str, str], number: int) -> Any:
    """The two texts of a line; a blank line stays one, and what a table has as a pair is one already."""
    if not isinstance(line, str):
        return line
    first, tab, second = line.partition("\t")
    refuse(not tab and line.strip(), f"line {number} has no tab: with --pairs each line is text TAB text")
    return (first, second) if tab else line


class Encoding(Task):
    """Abstract. The task of an encoder with a head; without `data`, headway does not train it."""

    roles = ("encodes",)
    verbs: ClassVar[tuple[str, ...]] = ("embed", "fill", "predict")  # a head refuses what it has no answer for
    opens: ClassVar[Callable[..., Any]] = Encoder


class Embedding(Encoding):
    name = "embedding"
    verb = "embed"

    @classmethod
    def answer(cls, model: Encoder, values: Sequence[str], options: dict[str, Any]) -> Iterator[Prediction]:
        refuse_unknown(options, ("truncate",), "a model that gives vectors")
        for text, vector in zip(values, model.embed(values, truncate="truncate" in options), strict=True):
            numbers = [round(float(number), 6) for number in vector]
            yield Prediction(" ".join(map(str, numbers)), {"text": text, "vector": numbers})

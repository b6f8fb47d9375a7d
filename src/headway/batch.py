"""Batches: named tensors that are moved, cut, padded and joined by rows, in one place for every kind of batch.

The name of a tensor gives its axes: `ids_BT` has rows (B) and tokens (T), `fresh` has neither and belongs to the whole
batch. `column` declares the value that fills a shorter row and the value of an empty row. A field may be a batch
itself; whatever happens to a batch happens to its nested batches.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED = -1  # the label of a position that no loss counts
NO_COUNTS: dict[str, Tensor] = {}
ALL = slice(None)


def column(pad: int = 0, empty: int | None = None, **default: Any) -> Any:
    """A tensor field. `pad` fills up a shorter row, `empty` is what an empty row holds (None: `pad`)."""
    return field(metadata={"pad": pad, "empty": pad if empty is None else empty}, **default)


Item = TypeVar("Item")


def sampled(items: Iterable[Item], share: float) -> Iterator[Item]:
    """An even sample of these, in order: at least the first of them, and a `share` of 1 is all."""
    for number, item in enumerate(items):
        if number == 0 or int((number + 1) * share) > int(number * share):
            yield item


@dataclass(frozen=True)
class Batch:
    """Abstract. A subclass declares its fields and, where a loss is computed from it, `counted`.

    counts: for each loss term the number that its sum is divided by. They are tensors, so that a captured step reads
    those of the batch that it is given. tokens: predictions in the batch, on the host, for speeds and logs. examples:
    the numbers of the rows in the corpus, for messages that name them.
    """

    examples: tuple[int, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        counted = self.counted()
        object.__setattr__(self, "counts", {name: torch.tensor(float(count)) for name, count in counted.items()})
        object.__setattr__(self, "tokens", int(counted.get("tokens", counted.get("loss", 0))))

    counts = NO_COUNTS  # class attributes, not fields: `__post_init__` sets them
    tokens = 0

    def counted(self) -> dict[str, float]:
        """For each loss term the number that its sum is divided by."""
        return {}

    def __len__(self) -> int:
        """Rows."""
        for name, value in self._values():
            if isinstance(value, Batch) or (isinstance(value, Tensor) and _has_rows(name)):
                return len(value)
        return len(self.examples)

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """A copy with every tensor changed (moved, pinned, copied), the counts too."""
        counts = {name: change(count) for name, count in self.counts.items()}
        return self._changed(lambda name, value: change(value), lambda batch: batch.map(change), counts)

    def unnamed(self) -> Self:
        """Without the numbers of its examples, which compiled code takes for constants: it would be compiled again for
        every batch."""
        return self._made(dict(self._values()) | {"examples": ()}, self.counts, self.tokens)

    def rows(self, start: int, end: int) -> Self:
        """The rows from `start` to `end`, with counts of their own."""
        return self._changed(
            lambda name, value: value[start:end] if _has_rows(name) else value,
            lambda batch: batch.rows(start, end),
            examples=slice(start, end),
        )

    def split(self, parts: int) -> list[Self]:
        """The rows split into `parts` smaller batches; empty ones are left out."""
        return [self.rows(start, end) for start, end in dealt(len(self), parts)]

    def pad(self, rows: int) -> Self:
        """The batch with empty rows added, up to `rows`, so that there are few shapes. They are not counted."""
        missing = max(0, rows - len(self))

        def extend(name: str, value: Tensor) -> Tensor:
            if not missing or not _has_rows(name):
                return value
            empty = self._columns()[name].get("empty", 0)
            return torch.cat([value, value.new_full((missing, *value.shape[1:]), empty)])

        return self._changed(extend, lambda batch: batch.pad(rows), self.counts)

    @classmethod
    def join(cls, batches: Sequence[Self]) -> Self:
        """All rows, one batch after the other; shorter rows are padded. Counts are added up, not taken anew: a captured
        step joins batches too, and cannot read a number back."""
        values: dict[str, Any] = {}
        for name, first in batches[0]._values():
            given = [getattr(batch, name) for batch in batches]
            if isinstance(first, Batch):
                values[name] = type(first).join(given)
            elif isinstance(first, Tensor) and _has_rows(name):
                values[name] = _stacked(given, cls._columns()[name].get("pad", 0))
            else:
                values[name] = tuple(i for one in given for i in one) if name == "examples" else first
        counts = {name: torch.stack([batch.counts[name] for batch in batches]).sum(0) for name in batches[0].counts}
        return cls._made(values, counts, sum(batch.tokens for batch in batches))

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor by name: `ids_BT`, `inputs.lengths_B`, `counts.loss`."""
        for name, value in self._values():
            if isinstance(value, Batch):
                yield from ((f"{name}.{inner}", tensor) for inner, tensor in value.tensors())
            elif isinstance(value, Tensor):
                yield name, value
        yield from ((f"counts.{name}", count) for name, count in self.counts.items())

    def shape(self) -> Hashable:
        """The key of a captured step: names, dtypes and shapes of the tensors, and every plain value but the numbers of
        the examples."""
        plain = tuple((name, value) for name, value in self._values() if not isinstance(value, Tensor | Batch | tuple))
        return plain, tuple((name, tensor.dtype, tensor.shape) for name, tensor in self.tensors())

    def _values(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self._columns()]

    @classmethod
    @cache
    def _columns(cls) -> dict[str, Any]:
        return {f.name: f.metadata for f in fields(cls)}

    def _changed(
        self, tensor: Callable[[str, Tensor], Tensor], batch: Callable[[Any], Any],
        counts: dict[str, Tensor] | None = None, examples: slice = ALL,
    ) -> Self:  # fmt: skip
        """A copy with changed tensors and nested batches; without `counts` they are counted anew."""
        values: dict[str, Any] = {}
        for name, value in self._values():
            if isinstance(value, Tensor):
                value = tensor(name, value)
            elif isinstance(value, Batch):
                value = batch(value)
            elif name == "examples":
                value = value[examples]
            values[name] = value
        return type(self)(**values) if counts is None else self._made(values, counts, self.tokens)

    @classmethod
    def _made(cls, values: dict[str, Any], counts: dict[str, Tensor], tokens: int) -> Self:
        """A batch that is not counted: its counts are known."""
        new = object.__new__(cls)
        for name, value in (values | {"counts": counts, "tokens": tokens}).items():
            object.__setattr__(new, name, value)
        return new


@cache
def _has_rows(name: str) -> bool:
    return name.rpartition("_")[2].startswith("B") and "_" in name


def _stacked(tensors: list[Tensor], pad: int) -> Tensor:
    """Tensors behind each other along the first axis, each padded at the end of its second."""
    if tensors[0].dim() > 1:
        longest = max(tensor.shape[1] for tensor in tensors)
        inner = (0, 0) * (tensors[0].dim() - 2)
        tensors = [F.pad(tensor, (*inner, 0, longest - tensor.shape[1]), value=pad) for tensor in tensors]
    return torch.cat(tensors)


def dealt(rows: int, parts: int) -> list[tuple[int, int]]:
    """(start, end) of the rows of each part; empty ones are left out."""
    ends = np.linspace(0, rows, parts + 1).round().astype(int).tolist()
    return [(start, end) for start, end in zip(ends, ends[1:], strict=False) if end > start]


@dataclass(frozen=True)
class TextInputs(Batch):
    """Texts that a model reads whole, padded on the right. lengths_B: None where no row is padded. types_BT: which text
    of a pair each token belongs to; None where that is the first. letters_BTC: the letters of each token, for a model
    that reads them (`headway.text.framing`). positions_BT: where each token stands in its text; None where none is
    left out."""

    ids_BT: Tensor = column()
    lengths_B: Tensor | None = column(empty=1, default=None)
    types_BT: Tensor | None = column(default=None)
    letters_BTC: Tensor | None = column(default=None)
    positions_BT: Tensor | None = column(default=None)

    def pad(self, rows: int) -> TextInputs:
        """With lengths in any case: batches with and without them would be two shapes."""
        return Batch.pad(self.with_lengths(), rows)

    def with_lengths(self) -> TextInputs:
        if self.lengths_B is not None:
            return self
        whole_B = torch.full((len(self.ids_BT),), self.ids_BT.shape[1], device=self.ids_BT.device)
        return replace(self, lengths_B=whole_B)


class TextRow(NamedTuple):
    """One text, for a batch that is made of many at once: a tensor of its own for each would take longer than a step of
    a small model."""

    ids: Sequence[int]

    @property
    def size(self) -> int:
        """Tokens."""
        return len(self.ids)

    @staticmethod
    def join(rows: Sequence[TextRow]) -> TextInputs:
        lengths_B = np.array([len(row.ids) for row in rows], np.int64)
        ids_BT = np.zeros((len(rows), lengths_B.max()), np.int64)
        inside_BT = np.arange(ids_BT.shape[1]) < lengths_B[:, None]
        ids_BT[inside_BT] = list(chain.from_iterable(row.ids for row in rows))
        return TextInputs(torch.from_numpy(ids_BT), torch.from_numpy(lengths_B))


@dataclass(frozen=True)
class TokenBatch(Batch):
    """Tokens to predict, each from the ones before it and, where there are `inputs`, from those.

    labels_BT: `ids_BT` one position further on, IGNORED where nothing is predicted. segments_BT: the number of each
    token's document within its row, for attention inside documents.
    """

    ids_BT: Tensor = column()
    labels_BT: Tensor = column(pad=IGNORED)
    segments_BT: Tensor | None = column(default=None)
    inputs: Any = None

    def counted(self) -> dict[str, float]:
        predicted = int((self.labels_BT != IGNORED).sum())
        return {"loss": predicted, "nll": predicted}

"""What an analysis is: a function from the traces of a model to a small table, with a picture of it.

Analyses read traces, so none of them depends on a model family. Layers and heads count from 0, as in a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headway.errors import InputError, TooLong
from headway.traces import Trace

Cell = str | int | float | None
Takes = Literal["lines", "pairs", "conllu", "gap", "marked", "nothing"]
Long = Literal["error", "skip"]
DATA = {  # for messages about missing files
    "lines": "a file of text, a text a line (and for a translator, if you like, a second file of translations)",
    "pairs": "two files of parallel text, or one with `source ||| target` a line",
    "conllu": "a file in CoNLL-U (or two: heads are chosen on the first and measured on the second)",
    "gap": "a file of GAP, .tsv (or two: heads are chosen on the first and measured on the second)",
    "marked": "a file of text with one word marked in each line, *like* this (and `sense TAB` before it, if you like)",
    "nothing": "no file",
}


@dataclass(frozen=True)
class Table:
    """columns: their names. rows: plain values. notes: what was measured, and on what.

    more: plain JSON that a picture needs beside the rows; `--json` writes it too.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    notes: tuple[str, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)

    def column(self, name: str) -> list[Any]:
        at = self.columns.index(name)
        return [row[at] for row in self.rows]

    def distinct(self, name: str) -> list[Any]:
        """The values of a column, each once."""
        return list(dict.fromkeys(self.column(name)))


@dataclass(frozen=True)
class NoOptions:
    """Of an analysis that has nothing to choose."""


@dataclass(frozen=True)
class Text:
    """One text of the data, with its translation or second half where there is one. where: `a.txt, line 3`. item: what
    an analysis needs to know of it."""

    where: str
    first: str
    second: str | None = None
    item: Any = None


def second_text(text: Text, trace: Trace) -> str | None:
    """The second text that was given, or else the target that the model has written; None: neither."""
    return trace.tracks["target"].text or "" if text.second is None and "target" in trace.tracks else text.second


class Traced:
    """A loaded model as analyses see it: text in, trace out, with the tensors that the analysis needs.

    loaded: what `headway.load` gives, for the few that need the model itself. skipped: how many texts were longer
    than the model reads, where `long` is "skip". lines: the most texts to read.
    """

    def __init__(self, loaded: Any, tensors: Sequence[str], *, long: Long = "error", lines: int | None = None) -> None:
        self.loaded, self.tensors, self.long, self.lines = loaded, tuple(tensors), long, lines
        self.read = self.skipped = 0

    @property
    def seen(self) -> int:
        """How many texts were traced."""
        return self.read - self.skipped

    def trace(self, text: str, second: str | None = None, **more: Any) -> Trace:
        """Of one text. `second`: a translator's target (without it: what it writes), an encoder's second text."""
        if second is not None and self.loaded.takes == "one":
            raise InputError("this model reads one text and no second one: give one file of text")
        # `next` too: a trace without any tensor is an error, and a model without attention should get its own message.
        how = {"tensors": (*self.tensors, "next"), "top": 0} | more
        trace: Trace = self.loaded.trace(*([text] if second is None else [text, second]), **how)
        return trace

    def over(self, texts: Iterable[Text], copied: bool = False) -> Iterator[tuple[Text, Trace]]:
        """Text by text; an error names the place of its text. `copied`: a model that writes a target is given each
        text as its own translation."""
        for text in texts:
            if self.lines is not None and self.read >= self.lines:
                return
            self.read += 1
            try:
                trace = self.trace(text.first, text.first if copied and self.loaded.takes == "target" else text.second)
            except TooLong as error:
                if self.long == "error":
                    raise InputError(f"{text.where}: {error} (or leave such texts out: --long skip)") from error
                self.skipped += 1
                continue
            except InputError as error:
                raise InputError(f"{text.where}: {error}") from error
            yield text, trace
        if self.read and self.skipped == self.read:
            file = text.where.rpartition(", ")[0]
            raise InputError(f"{file} has no text that this model can read: every one of them is too long")


@dataclass(frozen=True)
class Analysis:
    """takes: what DATA is. tensors: what it reads of a trace.

    run: (traced, files, options) → table; its docstring is the summary. options: a frozen dataclass, all fields with
    defaults (`--set key=value`). draw: (table, path) → path.
    """

    name: str
    takes: Takes
    tensors: tuple[str, ...]
    run: Callable[[Traced, Sequence[str], Any], Table]
    draw: Callable[[Table, Path], Path] | None = None
    options: type = NoOptions

    @property
    def summary(self) -> str:
        """One line, as a list has it."""
        return str(self.run.__doc__)[:1].lower() + str(self.run.__doc__)[1:].rstrip(".")

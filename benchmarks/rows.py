"""The rows of an experiment, kept one by one, so that the same call resumes where an earlier one was stopped."""

from __future__ import annotations

from measure import RESULTS, write

# isort: split
import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Rows:
    """What an earlier call with the same settings has finished, and what this one adds."""

    def __init__(self, name: str, options: argparse.Namespace, case: Row) -> None:
        self.name, self.options, self.case = f"{name}-{options.device}", options, case
        self.folder = Path(options.out) if options.out else RESULTS
        self.file = self.folder / f"{self.name}.part"
        self.all: list[Row] = []
        if self.file.is_file():
            found = json.loads(self.file.read_text(encoding="utf-8"))
            self.all = found["rows"] if found["case"] == self._plain() else []

    def _plain(self) -> Row:
        plain: Row = json.loads(json.dumps(self.case))
        return plain

    def add(self, key: Row, work: Callable[[], Row]) -> None:
        """A row of these values, and of what the work finds; none where it is there already."""
        if not any(key.items() <= row.items() for row in self.all):
            self.all.append(key | work())
            self.folder.mkdir(parents=True, exist_ok=True)
            self.file.write_text(json.dumps({"case": self._plain(), "rows": self.all}), encoding="utf-8")
            print(json.dumps(self.all[-1], ensure_ascii=False)[:200], flush=True)

    def write(self, picture: Callable[[list[Row], Path], None] | None = None) -> None:
        """The record, and its picture beside it."""
        write(self.name, self.options.device, self.all, self.options.out, case=self.case)
        if picture is not None:
            picture(self.all, self.folder / f"{self.name}.svg")
        self.file.unlink(missing_ok=True)

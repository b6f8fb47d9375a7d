"""Rows of tables about what was tried on validation data before one of it was scored: records of `choose.py`, and the
batches that `text_cnn.py` tried."""

from __future__ import annotations

import statistics
from typing import Any

from formats import Column
from recorded import Row

SHOWN = "validation accuracy"
TRIED: list[Column] = [
    ("settings", "settings", lambda value: f"`{value}`"),
    ("validation", SHOWN, lambda value: f"{value:.4f}"),
    ("seeds", "seeds", str),
]


def tried(record: dict[str, Any]) -> list[Row]:
    """A row a candidate: the mean over its seeds."""
    found: dict[str, list[float]] = {}
    for row in record["rows"]:
        found.setdefault(row["settings"], []).append(row[SHOWN])
    return [
        {"settings": settings, "validation": statistics.mean(values), "seeds": len(values)}
        for settings, values in found.items()
    ]


def batches(record: dict[str, Any] | None) -> list[tuple[list[Column], list[Row]]]:
    """A row a data set, a column a way to make its batches; nothing without a record."""
    if record is None:
        return []
    ways = list(next(iter(record["validation"].values())))
    columns: list[Column] = [("data", "data", str), *((way, way, lambda value: f"{value:.4f}") for way in ways)]
    return [(columns, [{"data": data, **values} for data, values in record["validation"].items()])]

"""Graphs in files, to learn from and to damage."""

from __future__ import annotations

import json
from pathlib import Path


def graphs(folder: Path) -> None:
    """Rings and lines, with how many nodes they have."""
    rows = []
    for number in range(40):
        count = 3 + number % 5
        edges = [[at, (at + 1) % count, "ab"[at % 2]] for at in range(count - number % 2)]
        rows.append({"nodes": [[at % 3, "x"] for at in range(count)], "edges": edges, "label": count + 0.5})
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

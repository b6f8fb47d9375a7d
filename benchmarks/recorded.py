"""What the records say: a row for each recipe that was scored, and single figures for the text of a page.

A figure in running text stands between two comments, of which the first says where it comes from:

    <!--= growth-cuda rows[who=headway, length=256].milliseconds | .1f -->26.9<!--/-->

The record, the way to the number (a row is found by its values), and how it is written (Python's format; `.0%` for a
share). `table.py` fills it in.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

Row = dict[str, Any]

# What others have reached, and who says so.
QUOTED = {
    "multi30k-en-de": (41.02, "Wu et al. 2021"),
    "ptb-kn5": (141.2, "Mikolov and Zweig 2012"),
    "ptb-lstm-small": (114.5, "Zaremba et al. 2014"),
    "ptb-lstm-medium": (82.7, "Zaremba et al. 2014"),
    "ptb-lstm-large": (78.4, "Zaremba et al. 2014"),
    "ptb-awd-lstm": (57.3, "Merity et al. 2018"),
    "ptb-awd-lstm-averaged": (57.3, "Merity et al. 2018"),
    "shakespeare-char": (1.4697, "nanoGPT's README"),
    "cifar10-vit": (0.9138, "ViT-Lite-7/4, Hassani et al. 2021"),
    "cifar10-cct": (0.9653, "CCT-7/3×1, Hassani et al. 2021"),
}
# The same of bAbI: mean error in per cent, three hops, over 20 tasks (headway's of 10k questions are over 19).
BABI_QUOTED = {"tasks-1k": 13.9, "joint-1k": 12.4, "tasks-10k": 6.6, "joint-10k": 7.5}
# How each is written. The figure of a run is the first that both its validation and its test have; without a test, the
# loss in validation.
HEADLINES = {"BLEU": ".2f", "f1": ".3f", "accuracy": ".3f", "perplexity": ".2f", "loss": ".4f",
             "word error rate": ".2f"}  # fmt: skip
FIGURE = re.compile(r"(<!--= ([\w.-]+) ([^|]+?)(?: \| (\S+))? -->)(.*?)(<!--/-->)", re.DOTALL)
STEP = re.compile(r"([^.\[\]]+)(?:\[([^\]]+)\])?(?:\.|$)")


def read(results: Path, name: str) -> Row | None:
    path = results / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def scored(results: Path) -> list[Row]:
    """A row for each recipe, in the order of their names."""
    names = sorted(path.stem for path in results.glob("score-*.json"))
    return [_score(record) for name in names if (record := read(results, name))]


def _score(record: Row) -> Row:
    first = record["rows"][0]
    validated = [key.removeprefix("validation ") for key in first if key.startswith("validation ")]
    kind = next((name for name in validated if f"test {name}" in first), "loss")
    key = f"test {kind}" if f"test {kind}" in first else f"validation {kind}"
    each = [row[key] for row in record["rows"]]
    quoted = QUOTED.get(record["recipe"])
    seconds = first.get("training seconds", first.get("counting seconds"))
    return {
        "recipe": record["recipe"],
        "kind": kind,
        "figure": key.replace("f1", "F1"),
        "value": _written(each[0], kind),
        "mean": f"{_written(statistics.mean(each), kind)} ({len(each)})" if len(each) > 1 else None,
        "validation": _written(first[f"validation {kind}"], kind) if key.startswith("test") else None,
        "published": f"{quoted[0]:g} ({quoted[1]})" if quoted else None,
        "parameters": first["parameters"],
        "seconds": None if seconds is None else round(seconds) if seconds > 10 else round(seconds, 1),
        "beside": record["beside"],
        "machine": record["machine"],
        "date": record["date"],
    }


def _written(value: float, kind: str) -> str:
    return f"{value:{HEADLINES[kind]}}"


def reaches(results: Path) -> dict[str, str]:
    """What `headway recipes` says of each recipe that was scored."""
    return {row["recipe"]: _reached(row) for row in scored(results)}


def _reached(row: Row) -> str:
    said = f"{row['figure']} {row['value']}"
    said += f", of {row['mean'].split()[1].strip('()')} seeds {row['mean'].split()[0]}" if row["mean"] else ""
    said += f" (published: {row['published'].split()[0]})" if row["published"] else ""
    others = f" beside {row['beside']} other runs".replace(" 1 other runs", " another run") if row["beside"] else ""
    return f"{said}; {row['machine']}, {row['seconds']:g} s{others}"


def figure(results: Path, name: str, way: str, form: str) -> str:
    """One number of a record, as it is written."""
    value: Any = read(results, name)
    if value is None:
        raise SystemExit(f"there is no record {name}")
    for key, wanted in STEP.findall(way):
        try:
            value = _row(value[key], wanted) if wanted else value[int(key) if isinstance(value, list) else key]
        except (KeyError, IndexError, ValueError) as error:
            raise SystemExit(f"{name}.json has no {way} ({error})") from None
    return f"{value:{form}}".replace("%", " %") if form else f"{value:,}" if isinstance(value, int) else str(value)


def _row(rows: list[Row], wanted: str) -> Row:
    """The only row that has these values."""
    pairs = [pair.strip().split("=") for pair in wanted.split(",")]
    [found] = [row for row in rows if all(str(row.get(key)) == value for key, value in pairs)]
    return found


def filled(page: str, results: Path) -> str:
    """The page with every figure as the record has it now."""
    return FIGURE.sub(lambda at: f"{at[1]}{figure(results, at[2], at[3], at[4] or '')}{at[6]}", page)

"""What `table.py` shows of the experiments on parts: one table each, made of the rows of its record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from formats import Column, count, number, rate, share, two_digits
from recorded import Row

Shown = tuple[list[Column], list[Row]]


def word_or_loss(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.3f}"


def short(value: Any) -> str:
    return f"{value:.2g}" if value < 1e4 else f"{value:.1e}"


def loss_or_size(value: Any) -> str:
    return two_digits(value) if value < 100 else f"{value:.0e}"


def pivot(rows: list[Row], down: str, across: str, value: str, write: Callable[[Any], str], unit: str = "") -> Shown:
    """A line for each value of `down`, a column for each of `across`."""
    merged: dict[str, Row] = {}
    for row in rows:
        merged.setdefault(str(row[down]), {down: str(row[down])})[str(row[across])] = row[value]
    heads = dict.fromkeys(row[across] for row in rows)
    columns: list[Column] = [(down, "", str), *((str(head), f"{head:g}{unit}", write) for head in heads)]
    return columns, list(merged.values())


def depth(rows: list[Row]) -> Shown:
    """Loss by depth; behind it the gradient of the first layer over the last's at the greatest depth."""
    columns, lines = pivot(rows, "norm", "depth", "loss", loss_or_size, " layers")
    deepest = max(row["depth"] for row in rows)
    for line in lines:
        line["ratio"] = next(row["ratio"] for row in rows if (row["norm"], row["depth"]) == (line["norm"], deepest))
    return [*columns, ("ratio", f"first gradient over last, {deepest} layers", short)], lines


def lengths(rows: list[Row]) -> Shown:
    keys = [key for key in rows[0] if key.startswith("late at ")]
    named = [(key, f"{key.removeprefix('late at ')} ×", word_or_loss) for key in keys]
    return [("position", "position; loss of the last part of a window", str), *named], rows


def senses(rows: list[Row]) -> Shown:
    said = [row | {"at": "input" if row["layer"] == -1 else f"layer {row['layer']}"} for row in rows]
    merged: dict[str, Row] = {}
    for row in said:
        merged.setdefault(row["model"], {"model": row["model"]})[row["at"]] = row["nearest"]
    places = sorted({(row["layer"], row["at"]) for row in said})
    columns: list[Column] = [("model", "nearest is of its sense", str), *((at, at, share) for _, at in places)]
    return columns, list(merged.values())


def rates(rows: list[Row]) -> Shown:
    said = [row | {"how": f"{row['norm']}, {'warm-up' if row['warmup'] else 'no warm-up'}"} for row in rows]
    return pivot(said, "how", "rate", "loss", two_digits)


def widths(rows: list[Row]) -> Shown:
    """Loss by rate, a line for each width and way."""
    said = [row | {"how": f"{row['width']}, {row['way']}", "rate": float(f"{row['rate']:.2g}")} for row in rows]
    return pivot(said, "how", "rate", "loss", two_digits)


def matrix(rows: list[Row]) -> Shown:
    return pivot(rows, "way", "length", "milliseconds", rate_or_less, " tokens, ms")


def rate_or_less(value: Any) -> str:
    return rate(value) if value >= 1 else f"{value:.3f}"


def layer_times(rows: list[Row]) -> Shown:
    """At the width that has the most lengths."""
    widths = [row["width"] for row in rows]
    some = [row for row in rows if row["width"] == max(widths, key=widths.count)]
    longest = max(row["length"] for row in some)
    columns, lines = pivot(some, "layer", "length", "milliseconds", rate_or_less, " tokens, ms")
    for line in lines:
        [last] = [row for row in some if (row["layer"], row["length"]) == (line["layer"], longest)]
        line["products"], line["per_second"] = last["products"], last["per_second"] / 1e9
    more: list[Column] = [
        ("products", f"multiply-adds counted, {longest:,} tokens", count),
        ("per_second", "10⁹ of them a second", number),
    ]
    return [*columns, *more], lines


def clipping(rows: list[Row]) -> Shown:
    columns: list[Column] = [
        ("cell", "", str),
        ("clip", "clipped at", lambda value: f"{value:g}" if value else "–"),
        ("median_norm", "gradient's norm, median", two_digits),
        ("highest_norm", "highest", lambda value: f"{value:,.1f}"),
        ("highest_loss", "highest loss", two_digits),
        ("loss", "loss on held-out text", two_digits),
    ]
    return columns, [row for row in rows if row["what"] == "training"]


def projections(rows: list[Row]) -> Shown:
    """Of the ladder's record: with and without maps; with and without the direct path."""
    wanted = ("mlp", "mlp-direct", "ladder-attention", "ladder-unprojected")
    columns: list[Column] = [
        ("corpus", "text", str),
        ("recipe", "recipe", lambda value: f"`{value}`"),
        ("test", "test perplexity", two_digits),
        ("parameters", "parameters", count),
    ]
    return columns, [row for row in rows if row["recipe"] in wanted]


def scaling(rows: list[Row]) -> Shown:
    """The small runs, and the large one that they predicted."""
    columns: list[Column] = [
        ("weights", "weights", count),
        ("tokens", "letters read", count),
        ("operations", "operations", short),
        ("loss", "loss", lambda value: f"{value:.4f}"),
        ("predicted", "predicted", lambda value: f"{value:.4f}"),
        ("apart", "prediction off by", lambda value: f"{100 * value:+.2f} %".replace("-", "−")),
    ]
    return columns, rows


# By the name of the block in a page: the record, what it shows, and what its picture does.
STUDIES: dict[str, tuple[str, Callable[[list[Row]], Shown], str]] = {
    "depth": ("depth", depth, "Loss and gradient against depth, for each arrangement of residual and norm"),
    "lengths": ("lengths", lengths, "Loss against the length of the text, for each kind of position"),
    "rates": ("rates", rates, "Loss against the learning rate, with and without warm-up"),
    "widths": ("widths", widths, "Loss against the learning rate, by width, in the standard parametrisation and in μP"),
    "scaling": ("scaling", scaling, "Loss against operations: small runs by size, and the large one that they predict"),
    "matrix": ("matrix", matrix, "Time against length, of loops, matrices and one kernel"),
    "layer_times": ("layer-times", layer_times, "Time and counted cost of layers against length and width"),
    "clipping": ("clipping", clipping, "Norm of the gradient and loss by step, and gradient against distance"),
    "projections": ("ladder", projections, ""),
    "senses": ("senses", senses, "Senses of broke by layer, in several models"),
}

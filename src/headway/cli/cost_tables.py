"""What `headway cost` prints: tables of plain text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headway.cli.table import aligned

if TYPE_CHECKING:
    from headway.evaluate.cost import Cost
    from headway.evaluate.footprint import Footprint
    from headway.evaluate.layers import LayerCost

Row = tuple[str, ...]
ENERGY_TITLE = (
    "training", "devices", "hours", "kWh printed", "worked out", "CO₂ lbs printed", "worked out", "not right",
)  # fmt: skip


def figures(costs: list[Cost]) -> list[Row]:
    has_source = costs[0].source_length is not None
    rows: dict[str, Callable[[Cost], str]] = {
        "rows": lambda one: f"{one.batch:,}",
        "source length": lambda one: f"{one.source_length:,}",
        "target length" if has_source else "length": lambda one: f"{one.length:,}",
        "operations of a forward pass": lambda one: many(one.flops),
        "  for each token": lambda one: many(one.flops / (one.batch * one.length)),
        "  between positions": lambda one: f"{one.pairs / one.products:.1%}" if one.products else "–",
        "operations of a training step": lambda one: many(one.training_flops),
        "numbers through norms and the like": lambda one: many(one.elements),
        "products that wait for one another": lambda one: f"{one.steps:,}",
        "longest path between positions": lambda one: "none" if one.path is None else f"{one.path:,}",
        "activations in training": lambda one: in_bytes(one.activations),
        "state after so many tokens": lambda one: in_bytes(one.state),
        "  for each token more": lambda one: in_bytes(one.state_per_token),
    }
    left_out = {"rows": costs[0].batch == 1, "source length": not has_source}
    return [(name, *map(shown, costs)) for name, shown in rows.items() if not left_out.get(name)]


def parts(one: Cost) -> list[Row]:
    total = one.products or 1
    rows = [
        (part.name or "the model", *counts(part.calls, part.products), f"{part.products / total:.1%}",
         *counts(part.elements))
        for part in one.parts
    ]  # fmt: skip
    return [(f"part, at length {one.length:,}", "calls", "multiply-adds", "share", "other numbers"), *rows]


def layer_rows(table: list[LayerCost]) -> list[Row]:
    title = ("layer", "order", "that is", "multiply-adds", "times", "parameters", "steps", "path", "over layers")
    rows: list[Row] = [
        (one.name, one.order, *counts(one.formula, one.products), f"{one.products / one.formula:.4g}",
         *counts(one.parameters, one.steps, one.path, one.layers))
        for one in table
    ]  # fmt: skip
    return [title, *rows]


def energy() -> list[str]:
    """The lecture's tables beside what its formula gives, and what cannot be right in them."""
    from headway.evaluate import footprint as tables

    rows: list[Row] = [ENERGY_TITLE]
    for row in tables.PUBLISHED:
        made = row.footprint()
        pounds = None if made.kg is None else made.kg / tables.POUND
        rows.append(
            (row.model, f"{row.chip} × {row.devices}", f"{row.hours:,}", whole(row.kwh), whole(made.kwh),
             whole(row.pounds), whole(pounds), ", ".join(tables.disagreements(row)) or "–")
        )  # fmt: skip
    prices = ", ".join(f"{chip} {low:.2f} to {high:.2f}" for chip, (low, high) in tables.PRICES.items())
    notes = [
        f"{found.model}, {found.column}: {'rounded' if found.rounded else 'misprinted'} {found.printed:,}, "
        f"must be {found.right:,}: {found.why}"
        for found in tables.ERRATA
    ]
    others = [(name, f"{count:,}") for name, count in (tables.COMPARISONS | tables.TRAININGS).items()]
    return [
        *aligned(rows),
        f"worked out with a PUE of {tables.PUE} and {tables.POUNDS_PER_KWH} lbs of CO₂ for each kWh; dollars an "
        f"hour: {prices}",
        "",
        *notes,
        "",
        *aligned([("CO₂", "lbs"), *others]),
    ]


def footprint(used: Footprint) -> list[str]:
    many = f" on {used.devices:,} devices" if used.devices > 1 else ""
    lines = [f"training took {used.seconds:,.0f} s{many}: {used.device_hours:,.3g} device hours"]
    if used.kwh is not None:
        lines.append(f"energy {used.kwh:,.4g} kWh at {used.watts:,g} W a device and a PUE of {used.pue:g}")
    if used.kg is not None:
        shares = (f"{share:.2g} × {name}" for name, share in used.shares().items())
        lines.append(f"CO₂ {used.kg:,.4g} kg at {used.carbon:g} kg/kWh: " + ", ".join(shares))
    if used.cost is not None:
        lines.append(f"price {used.cost:,.2f} at {used.price:g} a device hour")
    if used.kwh is None and used.cost is None:
        lines.append("--watts gives its energy, --carbon its CO₂ too, --price its price")
    elif used.kwh is None or used.kg is None:
        lines += [] if used.carbon is None else ["--carbon needs --watts: CO₂ follows from energy"]
    return lines


def counts(*values: int) -> Row:
    return tuple(f"{value:,}" for value in values)


def many(count: float) -> str:
    return _scaled(count, 1000, ("k", "M", "G", "T", "P", "E")) or f"{count:,.0f}"


def in_bytes(count: int) -> str:
    return _scaled(count, 1024, ("KiB", "MiB", "GiB", "TiB")) or f"{count:,} B"


def _scaled(count: float, base: int, units: Row) -> str:
    """In the largest unit that fits; empty for less than the first one."""
    fitting = [(base**power, unit) for power, unit in enumerate(units, 1) if count >= base**power]
    return f"{count / fitting[-1][0]:,.4g} {fitting[-1][1]}" if fitting else ""


def whole(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"

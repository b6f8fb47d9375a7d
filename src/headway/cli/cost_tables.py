"""What `headway cost` prints: tables of plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.evaluate.cost import Cost
    from headway.evaluate.footprint import Footprint
    from headway.evaluate.layers import LayerCost

Row = tuple[str, ...]
ENERGY_TITLE = (
    "training", "devices", "hours", "kWh printed", "worked out", "CO₂ lbs printed", "worked out", "not right",
)  # fmt: skip


def figures(costs: list[Cost]) -> list[Row]:
    rows: list[tuple[str, list[str]]] = [
        ("length" if costs[0].source_length is None else "target length", [f"{one.length:,}" for one in costs]),
        ("operations of a forward pass", [many(one.flops) for one in costs]),
        ("  for each token", [many(one.flops / (one.batch * one.length)) for one in costs]),
        ("  between positions", [f"{one.pairs / one.products:.1%}" if one.products else "–" for one in costs]),
        ("operations of a training step", [many(one.training_flops) for one in costs]),
        ("numbers through norms and the like", [many(one.elements) for one in costs]),
        ("products that wait for one another", [f"{one.steps:,}" for one in costs]),
        ("longest path between positions", [_path(one.path) for one in costs]),
        ("activations in training", [in_bytes(one.activations) for one in costs]),
        ("state after so many tokens", [in_bytes(one.state) for one in costs]),
        ("  for each token more", [in_bytes(one.state_per_token) for one in costs]),
    ]
    if costs[0].source_length is not None:
        rows.insert(0, ("source length", [f"{one.source_length:,}" for one in costs]))
    if costs[0].batch > 1:
        rows.insert(0, ("rows", [f"{one.batch:,}" for one in costs]))
    return [(name, *values) for name, values in rows]


def parts(one: Cost) -> list[Row]:
    total = one.products or 1
    rows = [
        (part.name or "the model", f"{part.calls:,}", f"{part.products:,}", f"{part.products / total:.1%}",
         f"{part.elements:,}")
        for part in one.parts
    ]  # fmt: skip
    return [(f"part, at length {one.length:,}", "calls", "multiply-adds", "share", "other numbers"), *rows]


def layer_rows(table: list[LayerCost]) -> list[Row]:
    title = ("layer", "order", "that is", "multiply-adds", "times", "parameters", "steps", "path", "over layers")
    rows: list[Row] = [
        (one.name, one.order, f"{one.formula:,}", f"{one.products:,}", f"{one.products / one.formula:.4g}",
         f"{one.parameters:,}", f"{one.steps:,}", f"{one.path:,}", f"{one.layers:,}")
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
        lines.append(f"CO₂ {used.kg:,.4g} kg at {used.carbon:g} kg/kWh: " + ", ".join(_shares(used)))
    if used.cost is not None:
        lines.append(f"price {used.cost:,.2f} at {used.price:g} a device hour")
    if used.kwh is None and used.cost is None:
        lines.append("--watts gives its energy, --carbon its CO₂ too, --price its price")
    elif used.kwh is None or used.kg is None:
        lines += [] if used.carbon is None else ["--carbon needs --watts: CO₂ follows from energy"]
    return lines


def _shares(used: Footprint) -> list[str]:
    return [f"{share:.2g} × {name}" for name, share in used.shares().items()]


def aligned(rows: list[Row]) -> list[str]:
    """Columns, the first on the left, numbers on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    ]  # fmt: skip


def many(count: float) -> str:
    for size, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:,.4g} {unit}"
    return f"{count:,.0f}"


def in_bytes(count: int) -> str:
    for size, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= size:
            return f"{count / size:,.4g} {unit}"
    return f"{count:,} B"


def _path(hops: int | None) -> str:
    return "none" if hops is None else f"{hops:,}"


def whole(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"

"""headway cost"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.options import AS_JSON, argument, option
from headway.cli.table import aligned
from headway.durations import spoken
from headway.errors import InputError, nearest, refuse

if TYPE_CHECKING:
    from headway.evaluate.cost import Cost, Sketch
    from headway.evaluate.footprint import Footprint
    from headway.train.run import Run

EXAMPLES, WIDTH, WINDOW = [100, 1000], 1000, 3  # of the lecture's two examples
SENTENCE = 32  # tokens, where a model has no length of its own
BERT_VOCABULARY = 30_522
DTYPES = ("float32", "bfloat16", "float16", "float64")
# Names that are not a recipe, run or model, with the options that they take.
OTHERS = {
    "layers": ("--length", "--width", "--window"),
    "energy": (),
    "bert-base": ("--length", "--batch-size"),
    "bert-large": ("--length", "--batch-size"),
}
Report = tuple[Any, str]  # as plain values, and as text
Row = tuple[str, ...]


def cost(
    what: str = argument("WHAT", "A recipe, a run, a model, a run.json; bert-base, bert-large; layers; energy."),
    length: list[int] = option(
        [], "N...", "Tokens in a row, one column each (default: what the model is trained on).", min=1
    ),
    source_length: int = option(None, "N", "Of the source, for translators (default: same).", min=1),
    batch: int = option(1, "N", "Rows.", "--batch-size", min=1),
    dtype: str = option("float32", "NAME", "Of weights and activations: bfloat16 needs half."),
    settings: list[str] = option([], "KEY=VALUE...", "Of a recipe: model.layers=96.", "--set"),
    width: int = option(None, "D", "layers: how wide they are (default: 1000)."),
    window: int = option(None, "K", "layers: of convolutions and windowed attention (default: 3)."),
    seconds: float = option(None, "S", "Training time, where there is no log to read it from."),
    devices: int = option(1, "N", "Devices that were used for this time."),
    watts: float = option(None, "W", "Power of one device: gives the energy."),
    pue: float = option(1.0, "X", "Power usage effectiveness: energy of the data centre for each kWh of its machines."),
    carbon: float = option(None, "KG", "kg of CO₂ for each kWh: gives the CO₂."),
    price: float = option(None, "P", "Of one device for an hour: gives the price."),
    as_json: bool = AS_JSON,
) -> None:
    """What a model costs: operations, memory, steps, paths; energy, CO₂ and price of a run."""
    from headway.evaluate.footprint import Footprint

    given = {
        "--length": length or None, "--source-length": source_length, "--batch-size": batch if batch > 1 else None,
        "--set": settings or None, "--width": width, "--window": window, "--seconds": seconds, "--watts": watts,
        "--carbon": carbon, "--price": price,
    }  # fmt: skip
    for name in (name for name, value in given.items() if value is not None):
        if what in OTHERS and name not in OTHERS[what]:
            raise InputError(f"`headway cost {what}` takes no {name}: that is for recipes, runs and models")
        if what not in OTHERS and name in ("--width", "--window"):
            raise InputError(f"{name} is for `headway cost layers`: a model has its own")
    if what == "layers":
        sizes = WIDTH if width is None else width, WINDOW if window is None else window
        plain, text = _layers(length or EXAMPLES, *sizes)
    elif what == "energy":
        plain, text = _energy()
    elif what in OTHERS:
        plain, text = _encoder(what, length or [128], batch)
    else:
        sketch, measured = _find(what, settings, dtype)
        seconds = measured if seconds is None else seconds
        if seconds is None and any(stated is not None for stated in (watts, carbon, price)):
            raise InputError(f"{what} has no log with its training time: pass --seconds")
        used = None if seconds is None else Footprint(seconds, devices, watts, pue, carbon, price)
        costs = [sketch.cost(one, source_length, batch) for one in length or [_usual_length(sketch)]]
        plain, text = _model(what, sketch, costs, used)
    print(json.dumps(plain, indent=1, ensure_ascii=False) if as_json else text)


def _model(what: str, sketch: Sketch, costs: list[Cost], used: Footprint | None) -> Report:
    size, dtype = sketch.size(), str(sketch.dtype).removeprefix("torch.")
    for line in costs[0].unknown:
        print(f"headway: not counted: {line}", file=sys.stderr)
    lines = [
        f"{what}: {sketch.family}, {size.parameters:,} parameters with {_vocabulary(what, sketch)}",
        f"weights {in_bytes(size.weights)} as {dtype}; training holds {in_bytes(size.training)} beside activations",
        "",
        *aligned(figures(costs)),
        "",
        *aligned(parts(costs[-1])),
        *(["", *footprint(used)] if used is not None else []),
    ]
    plain = {
        "what": what, "family": sketch.family, "vocabularies": sketch.vocabularies, "dtype": dtype,
        "parameters": size.parameters, "weights": size.weights, "training": size.training,
        "costs": [one.to_dict() for one in costs], "footprint": None if used is None else used.to_dict(),
    }  # fmt: skip
    return plain, "\n".join(lines)


def _vocabulary(what: str, sketch: Sketch) -> str:
    """A recipe's is known once there is text; so are the tables of a model that counts instead of learning."""
    from headway.models import FAMILIES

    family = FAMILIES[sketch.family]
    phrase, setting = family.sized
    sizes = phrase.format(" and ".join(f"{count:,}" for count in sketch.vocabularies))
    if Path(what).is_dir():
        return sizes
    tables = "" if family.learns != "counting" else "; tables of counts are as large as the text makes them"
    return f"{sizes} ({setting}){tables}"


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


def footprint(used: Footprint) -> list[str]:
    devices = f" on {used.devices:,} devices" if used.devices > 1 else ""
    lines = [f"training took {spoken(used.seconds)}{devices}: {used.device_hours:,.3g} device hours"]
    if used.kwh is not None:
        lines.append(f"energy {used.kwh:,.4g} kWh at {used.watts:,g} W a device and a PUE of {used.pue:g}")
    if used.kg is not None:
        shares = (f"{share:.2g} × {name}" for name, share in used.shares().items())
        lines.append(f"CO₂ {used.kg:,.4g} kg at {used.carbon:g} kg/kWh: " + ", ".join(shares))
    if used.cost is not None:
        lines.append(f"price {used.cost:,.2f} at {used.price:g} a device hour")
    if used.kwh is None and used.cost is None:
        lines.append("--watts gives its energy, --carbon its CO₂ too, --price its price")
    elif used.kwh is None and used.carbon is not None:
        lines.append("--carbon needs --watts: CO₂ follows from energy")
    return lines


def _find(what: str, settings: list[str], dtype: str) -> tuple[Sketch, float | None]:
    """The model, and how many seconds its training took, where that is known."""
    import torch

    from headway.evaluate.cost import Sketch
    from headway.folder import find_model, read_card
    from headway.plain import change
    from headway.recipes import RECIPES
    from headway.train.run import read_run

    refuse(dtype not in DTYPES, f"there is no --dtype '{dtype}'{nearest(dtype, DTYPES)}")
    kind: torch.dtype = getattr(torch, dtype)
    place = Path(what)
    if what not in RECIPES and not place.exists():
        raise InputError(f"there is no '{what}' to count{nearest(what, [*RECIPES, *OTHERS])}")
    trained = what not in RECIPES and place.is_dir()
    refuse(trained and settings, f"{what} is trained already: --set changes a recipe or a run.json")
    if trained and ((place / "model" / "headway.json").is_file() or not (place / "run.json").is_file()):
        card = read_card(find_model(place))
        taken = card.score.get("training seconds")
        sketch = Sketch(card.family, card.config, card.sizes, kind, card.head)
        return sketch, float(taken) if isinstance(taken, int | float) else _logged_seconds(place)
    run: Run = RECIPES[what].make() if what in RECIPES else read_run(place / "run.json" if trained else place)
    run = change(run, settings)
    sketch = Sketch(run.model.name, run.model, run.task.sizes(run), kind, run.head)
    return sketch, _logged_seconds(place) if trained else None


def _logged_seconds(place: Path) -> float | None:
    from headway.train.history import read_history

    log = place / "log.jsonl"
    history = read_history(log) if log.is_file() else None
    known = [history.last(kind, "seconds") for kind in ("train", "validation")] if history else []
    return max((value for value in known if value is not None), default=None)


def _usual_length(sketch: Sketch) -> int:
    """A sentence where there is a source to translate, else the windows that the model is trained on."""
    from headway.models import FAMILIES
    from headway.models.configs import window

    return SENTENCE if FAMILIES[sketch.family].has_source else window(sketch.config, SENTENCE)


def _layers(lengths: list[int], width: int, window: int) -> Report:
    from headway.evaluate.layers import LOOSE, compare

    title = ("layer", "order", "that is", "multiply-adds", "times", "parameters", "steps", "path", "over layers")
    tables = [compare(length, width, window) for length in lengths]
    blocks = []
    for length, table in zip(lengths, tables, strict=True):
        rows = [
            (one.name, one.order, *counts(one.formula, one.products), f"{one.products / one.formula:.4g}",
             *counts(one.parameters, one.steps, one.path, one.layers))
            for one in table
        ]  # fmt: skip
        blocks.append("\n".join([f"L = {length:,}, d = {width:,}, k = {window}", *aligned([title, *rows])]))
    return [asdict(one) for table in tables for one in table], "\n\n".join([*blocks, "\n".join(LOOSE)])


def _encoder(name: str, lengths: list[int], batch: int) -> Report:
    """BERT as it was published: the encoder, and a pooler on its first token (Devlin et al. 2019)."""
    from headway.evaluate.cost import Sketch
    from headway.models.bert import SIZES
    from headway.models.heads import Vectors

    config = SIZES[name.removeprefix("bert-")]
    sketch = Sketch("bert", config, (BERT_VOCABULARY,), head=Vectors(first=True))
    # A lookup multiplies nothing: operations are also counted at lengths beyond the table of positions.
    longer = replace(sketch, config=replace(config, max_length=max(lengths)))
    costs, model = [longer.cost(length, batch=batch) for length in lengths], sketch.build()
    owners = {"embedding": "encoder.embed", "layers": "encoder.encoder", "pooler": "head"}
    parameters = {
        part: sum(weight.numel() for weight in model.get_submodule(owner).parameters())
        for part, owner in owners.items()
    }
    total = sum(parameters.values())
    shown = ("length", "operations of a forward pass", "  between positions")
    lines = [
        f"{name}: {total:,} parameters, from its shapes alone",
        *aligned([(f"  {part}", f"{count:,}") for part, count in parameters.items()]),
        "",
        *aligned([row for row in figures(costs) if row[0] in shown]),
    ]
    plain = [{key: getattr(one, key) for key in ("length", "batch", "products", "pairs")} for one in costs]
    return {"what": name, "parameters": total, "parts": parameters, "costs": plain}, "\n".join(lines)


def _energy() -> Report:
    """The lecture's tables beside what its formula gives, and what cannot be right in them."""
    from headway.evaluate import footprint as tables

    title = ("training", "devices", "hours", "kWh printed", "worked out", "CO₂ lbs printed", "worked out", "not right")
    rows, plain = [title], []
    for row in tables.PUBLISHED:
        made, wrong = row.footprint(), tables.disagreements(row)
        plain.append(asdict(row) | {"not_right": wrong, "corrected": asdict(tables.corrected(row))})
        rows.append(
            (row.model, f"{row.chip} × {row.devices}", f"{row.hours:,}", whole(row.kwh), whole(made.kwh),
             whole(row.pounds), whole(made.pounds), ", ".join(wrong) or "–")
        )  # fmt: skip
    prices = ", ".join(f"{chip} {low:.2f} to {high:.2f}" for chip, (low, high) in tables.PRICES.items())
    notes = [
        f"{found.model}, {found.column}: {'rounded' if found.rounded else 'misprinted'} {found.printed:,}, "
        f"must be {found.right:,}: {found.why}"
        for found in tables.ERRATA
    ]
    others = tables.COMPARISONS | tables.TRAININGS
    lines = [
        *aligned(rows),
        f"worked out with a PUE of {tables.PUE} and {tables.POUNDS_PER_KWH} lbs of CO₂ for each kWh; dollars an "
        f"hour: {prices}",
        "",
        *notes,
        "",
        *aligned([("CO₂", "lbs"), *((name, f"{count:,}") for name, count in others.items())]),
    ]
    errata = [asdict(found) for found in tables.ERRATA]
    return {"published": plain, "errata": errata, "comparisons_lbs": others}, "\n".join(lines)


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

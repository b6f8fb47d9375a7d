"""headway cost"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.cost_tables import energy, figures, footprint, in_bytes, layer_rows, many, parts
from headway.cli.options import AS_JSON, argument, option
from headway.cli.table import aligned
from headway.errors import InputError, nearest, refuse

if TYPE_CHECKING:
    from headway.evaluate.cost import Cost, Sketch
    from headway.evaluate.footprint import Footprint
    from headway.train.run import Run

EXAMPLES, WIDTH, WINDOW = [100, 1000], 1000, 3  # of the lecture's two examples
SENTENCE = 32  # tokens, where a model has no length of its own
DTYPES = ("float32", "bfloat16", "float16", "float64")
# Names that are not a recipe, run or model, with the options that they take.
OTHERS = {
    "layers": ("--length", "--width", "--window"),
    "energy": (),
    "bert-base": ("--length", "--batch-size"),
    "bert-large": ("--length", "--batch-size"),
}
Report = tuple[Any, str]  # as plain values, and as text


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

    stated: dict[str, Any] = {"devices": devices, "watts": watts, "pue": pue, "carbon": carbon, "price": price}
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
        if seconds is None and any(stated[name] is not None for name in ("watts", "carbon", "price")):
            raise InputError(f"{what} has no log with its training time: pass --seconds")
        used = Footprint(seconds, **stated) if seconds is not None else None
        costs = [sketch.cost(one, source_length, batch) for one in length or [_usual_length(sketch)]]
        plain, text = _model(what, sketch, costs, used)
    print(json.dumps(plain, indent=1, ensure_ascii=False) if as_json else text)


def _model(what: str, sketch: Sketch, costs: list[Cost], used: Footprint | None) -> Report:
    size, dtype = sketch.size(), str(sketch.dtype).removeprefix("torch.")
    for line in costs[0].unknown:
        print(f"headway: not counted: {line}", file=sys.stderr)
    lines = [
        f"{what}: {sketch.family}, {size.parameters:,} parameters with {_vocabulary(what, sketch, size.learns)}",
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


def _vocabulary(what: str, sketch: Sketch, learns: bool) -> str:
    """A recipe's is known once there is text; so are the tables of a model that counts instead of learning."""
    from headway.models import FAMILIES

    phrase, setting = FAMILIES[sketch.family].sized
    sizes = phrase.format(" and ".join(f"{count:,}" for count in sketch.vocabularies))
    if Path(what).is_dir():
        return sizes
    tables = "" if learns else "; tables of counts are as large as the text makes them"
    return f"{sizes} ({setting}){tables}"


def _find(what: str, settings: list[str], dtype: str) -> tuple[Sketch, float | None]:
    """The model, and how many seconds its training took, where that is known."""
    import torch

    from headway.evaluate.cost import Sketch
    from headway.folder import find_model, read_card
    from headway.plain import change
    from headway.recipes import RECIPES
    from headway.train.run import read_run

    if dtype not in DTYPES:
        raise InputError(f"there is no --dtype '{dtype}'{nearest(dtype, DTYPES)}")
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

    tables = [compare(length, width, window) for length in lengths]
    blocks = [
        "\n".join([f"L = {length:,}, d = {width:,}, k = {window}", *aligned(layer_rows(table))])
        for length, table in zip(lengths, tables, strict=True)
    ]
    return [one.to_dict() for table in tables for one in table], "\n\n".join([*blocks, "\n".join(LOOSE)])


def _encoder(name: str, lengths: list[int], batch: int) -> Report:
    from headway.evaluate.shapes import ENCODERS

    shape = ENCODERS[name]
    parameters = shape.parameters()
    total, costs = sum(parameters.values()), []
    rows = [["length"], ["operations of a forward pass"], ["  between positions"]]
    for length in lengths:
        by_kind = shape.products(length, batch)
        products, pairs = sum(by_kind.values()), by_kind["pairs"]
        costs.append({"length": length, "batch": batch, "products": products, "pairs": pairs})
        for row, cell in zip(rows, (f"{length:,}", many(2 * products), f"{pairs / products:.1%}"), strict=True):
            row.append(cell)
    lines = [
        f"{name}: {total:,} parameters, from its shapes alone",
        *aligned([(f"  {part}", f"{count:,}") for part, count in parameters.items()]),
        "",
        *aligned(rows),
    ]
    return {"what": name, "parameters": total, "parts": parameters, "costs": costs}, "\n".join(lines)


def _energy() -> Report:
    """The lecture's tables, computed again."""
    from dataclasses import asdict

    from headway.evaluate.footprint import COMPARISONS, ERRATA, PUBLISHED, TRAININGS, corrected, disagreements

    rows = [asdict(row) | {"not_right": disagreements(row), "corrected": asdict(corrected(row))} for row in PUBLISHED]
    errata = [asdict(found) for found in ERRATA]
    return {"published": rows, "errata": errata, "comparisons_lbs": COMPARISONS | TRAININGS}, "\n".join(energy())

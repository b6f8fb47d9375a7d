"""headway cost"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headway.cli.cost_tables import aligned, energy, figures, footprint, in_bytes, layer_rows, many, parts
from headway.errors import InputError, nearest

if TYPE_CHECKING:
    from headway.evaluate.cost import Sketch
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
    what: str = typer.Argument(
        metavar="WHAT", help="A recipe, a run, a model, a run.json; bert-base, bert-large; layers; energy."
    ),
    length: list[int] = typer.Option(
        [], min=1, metavar="N...", help="Tokens in a row, one column each (default: what the model is trained on)."
    ),
    source_length: int = typer.Option(None, min=1, metavar="N", help="Of the source, for translators (default: same)."),
    batch: int = typer.Option(1, "--batch-size", min=1, metavar="N", help="Rows."),
    dtype: str = typer.Option("float32", metavar="NAME", help="Of weights and activations: bfloat16 needs half."),
    settings: list[str] = typer.Option([], "--set", metavar="KEY=VALUE...", help="Of a recipe: model.layers=96."),
    width: int = typer.Option(None, metavar="D", help="layers: how wide they are (default: 1000)."),
    window: int = typer.Option(None, metavar="K", help="layers: of convolutions and windowed attention (default: 3)."),
    seconds: float = typer.Option(None, metavar="S", help="Training time, where there is no log to read it from."),
    devices: int = typer.Option(1, metavar="N", help="Devices that were used for this time."),
    watts: float = typer.Option(None, metavar="W", help="Power of one device: gives the energy."),
    pue: float = typer.Option(
        1.0, metavar="X", help="Power usage effectiveness: energy of the data centre for each kWh of its machines."
    ),
    carbon: float = typer.Option(None, metavar="KG", help="kg of CO₂ for each kWh: gives the CO₂."),
    price: float = typer.Option(None, metavar="P", help="Of one device for an hour: gives the price."),
    as_json: bool = typer.Option(False, "--json", help="As JSON."),
) -> None:
    """What a model costs: operations, memory, steps, paths; energy, CO₂ and price of a run."""
    stated = {"devices": devices, "watts": watts, "pue": pue, "carbon": carbon, "price": price}
    given = {
        "--length": length or None, "--source-length": source_length, "--batch-size": batch if batch > 1 else None,
        "--set": settings or None, "--width": width, "--window": window, "--seconds": seconds, "--watts": watts,
        "--carbon": carbon, "--price": price,
    }  # fmt: skip
    _refuse(what, [option for option, value in given.items() if value is not None])
    if what == "layers":
        plain, text = _layers(
            length or EXAMPLES, WIDTH if width is None else width, WINDOW if window is None else window
        )
    elif what == "energy":
        plain, text = _energy()
    elif what in OTHERS:
        plain, text = _encoder(what, length or [128], batch)
    else:
        plain, text = _model(what, settings, dtype, length, source_length, batch, seconds, stated)
    print(json.dumps(plain, indent=1, ensure_ascii=False) if as_json else text)


def _refuse(what: str, options: list[str]) -> None:
    for option in options:
        if what in OTHERS and option not in OTHERS[what]:
            raise InputError(f"`headway cost {what}` takes no {option}: that is for recipes, runs and models")
        if what not in OTHERS and option in ("--width", "--window"):
            raise InputError(f"{option} is for `headway cost layers`: a model has its own")


def _model(
    what: str, settings: list[str], dtype: str, lengths: list[int], source_length: int | None, batch: int,
    seconds: float | None, stated: dict[str, Any],
) -> Report:  # fmt: skip
    from headway.evaluate.footprint import Footprint

    sketch, measured = _find(what, settings, dtype)
    seconds = measured if seconds is None else seconds
    if seconds is None and any(stated[name] is not None for name in ("watts", "carbon", "price")):
        raise InputError(f"{what} has no log with its training time: pass --seconds")
    used = Footprint(seconds, **stated) if seconds is not None else None
    lengths = lengths or [_usual_length(sketch)]
    costs = [sketch.cost(length, source_length, batch) for length in lengths]
    size = sketch.size()
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
    from headway.recipes import RECIPES
    from headway.train.run import read_run

    if dtype not in DTYPES:
        raise InputError(f"there is no --dtype '{dtype}'{nearest(dtype, DTYPES)}")
    kind: torch.dtype = getattr(torch, dtype)
    place = Path(what)
    if what not in RECIPES and not place.exists():
        raise InputError(f"there is no '{what}' to count{nearest(what, [*RECIPES, *OTHERS])}")
    if what in RECIPES or place.is_file():
        return _of_run(RECIPES[what].make() if what in RECIPES else read_run(place), settings, kind), None
    if settings:
        raise InputError(f"{what} is trained already: --set changes a recipe or a run.json")
    if (place / "run.json").is_file() and not (place / "model" / "headway.json").is_file():
        return _of_run(read_run(place / "run.json"), [], kind), _logged_seconds(place)
    card = read_card(find_model(place))
    taken = card.score.get("training seconds")
    sketch = Sketch(card.family, card.config, card.sizes, kind, card.head)
    return sketch, float(taken) if isinstance(taken, int | float) else _logged_seconds(place)


def _of_run(run: Run, settings: list[str], dtype: Any) -> Sketch:
    from headway.evaluate.cost import Sketch
    from headway.plain import change

    run = change(run, settings)
    return Sketch(run.model.name, run.model, run.task.sizes(run), dtype, run.head)


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
    parameters, products = shape.parameters(), [shape.products(length, batch) for length in lengths]
    lines = [
        f"{name}: {sum(parameters.values()):,} parameters, from its shapes alone",
        *aligned([(f"  {part}", f"{count:,}") for part, count in parameters.items()]),
        "",
        *aligned(
            [
                ("length", *(f"{length:,}" for length in lengths)),
                ("operations of a forward pass", *(many(2 * sum(one.values())) for one in products)),
                ("  between positions", *(f"{one['pairs'] / sum(one.values()):.1%}" for one in products)),
            ]
        ),
    ]
    costs = [
        {"length": length, "batch": batch, "products": sum(one.values()), "pairs": one["pairs"]}
        for length, one in zip(lengths, products, strict=True)
    ]
    return {"what": name, "parameters": sum(parameters.values()), "parts": parameters, "costs": costs}, "\n".join(lines)


def _energy() -> Report:
    """The lecture's tables, computed again."""
    from dataclasses import asdict

    from headway.evaluate.footprint import COMPARISONS, ERRATA, PUBLISHED, TRAININGS, corrected, disagreements

    rows = [asdict(row) | {"not_right": disagreements(row), "corrected": asdict(corrected(row))} for row in PUBLISHED]
    errata = [asdict(found) for found in ERRATA]
    return {"published": rows, "errata": errata, "comparisons_lbs": COMPARISONS | TRAININGS}, "\n".join(energy())

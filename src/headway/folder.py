"""The model folder: everything a command needs, as tensors and JSON, replaced by rename.

headway.json        format, family, config, head, task, processors, search settings, score
model.safetensors   weights and persistent buffers, float32
tokenizer.json      or source.tokenizer.json and target.tokenizer.json; that of a model from elsewhere is kept as it
                    came, with tokenizer.settings.json beside it
README.md           its card: what it is, how it was trained, what it reaches
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from headway import checksums
from headway.atomic import replaced_folder
from headway.card import Card, Loaded
from headway.errors import InputError, nearest, refuse
from headway.formats import FORMATS, Format
from headway.models import FAMILIES, format_1
from headway.models.blank import blank
from headway.models.heads import HeadConfig
from headway.nn.weights import kept_tensors
from headway.outside import read_object
from headway.plain import finite, from_plain, to_plain
from headway.processors import ProcessorConfig
from headway.processors.text import TextConfig, TextProcessor
from headway.text.codec import Codec
from headway.text.tokenizer import Symbols, TextOptions

FORMAT = 2
WEIGHTS = "model.safetensors"
PAIR = ("source", "target")
FAST_WEIGHTS = "model.bin"  # of a folder that `headway export` wrote for CTranslate2


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Each parameter once (a tied one under its first name) and the persistent buffers, on the CPU: float32, or
    integers as they are."""
    kept = {name: tensor.detach() for name, tensor in kept_tensors(model).items()}
    return {name: (t.float() if t.is_floating_point() else t).cpu().contiguous() for name, t in kept.items()}


def text_card(
    family: str, config: Any, sizes: Sequence[int], text: TextOptions, languages: Sequence[str] = PAIR, *,
    symbols: Symbols | None = None, foreign: bool = False, **more: Any,
) -> Card:  # fmt: skip
    """The card of a model of text: one vocabulary, or those of a source and a target."""
    names = FAMILIES[family].takes
    shared = len(names) == 1 or text.joint
    processors = {
        name: TextConfig(
            size, text, language if len(names) > 1 else "", symbols or Symbols(), foreign,
            "tokenizer.json" if shared else f"{name}.tokenizer.json",
        )
        for name, size, language in zip(names, sizes, languages, strict=False)
    }  # fmt: skip
    head = more.get("head")
    return Card(family, config, head.task if head else FAMILIES[family].task, processors, **more)


def with_tokenizers(card: Card, *tokenizers: Codec) -> dict[str, TextProcessor]:
    """The processors of a card whose texts have these tokenizers, in its order; the last serves all that follow."""
    given = [*tokenizers, *[tokenizers[-1]] * len(card.processors)]
    pairs = zip(card.processors.items(), given, strict=False)
    return {name: TextProcessor(config, codec) for (name, config), codec in pairs}


def write_model(folder: Path, weights: dict[str, Tensor], card: Card, processors: Mapping[str, Any]) -> None:
    """Write a model folder; an existing one is replaced when the new one is complete."""
    with replaced_folder(folder) as place:
        save_file(weights, place / WEIGHTS)
        write_card(place, card, processors)
        checksums.write(place, sorted(path.name for path in place.iterdir()))
        (place / "README.md").write_text(_readme(card, weights), encoding="utf-8")


def write_card(place: Path, card: Card, processors: Mapping[str, Any]) -> None:
    """headway.json and the files of the processors: all but the weights."""
    for processor in processors.values():
        processor.save(place)
    card_json = json.dumps(finite({"format": FORMAT} | to_plain(card)), indent=1, ensure_ascii=False) + "\n"
    (place / "headway.json").write_text(card_json, encoding="utf-8")


def find_model(folder: str | Path) -> Path:
    """The model folder for a path: the folder itself, the `model/` of a run, or a model in another format."""
    place = Path(folder)
    for candidate in (place, place / "model"):
        if (candidate / "headway.json").is_file():
            return candidate
    for other in FORMATS:
        if (found := other.find(str(folder))) is not None:
            return found
    if (place / "run.json").is_file():
        raise InputError(f"{folder} is a run without a model: `headway train {folder} --resume` resumes it")
    for other in FORMATS:
        if reason := other.explain(str(folder)):
            raise InputError(reason)
    refuse(not place.exists(), f"there is no folder {folder}")
    raise InputError(f"{folder} is no model (headway.json is missing): `headway train` makes one")


def _other_format(place: Path) -> Format | None:
    """The format of a folder that `find_model` has found; None for headway's own."""
    if (place / "headway.json").is_file():
        return None
    return next((other for other in FORMATS if other.find(str(place)) is not None), None)


def read_card(folder: Path) -> Card:
    other = _other_format(folder)
    return _read_card(folder)[0] if other is None else other.card(folder)


def _read_card(folder: Path) -> tuple[Card, int]:
    """The card of a folder in headway's own format, and its format version."""
    path = folder / "headway.json"
    facts = read_object(path)
    version = facts.pop("format", None)
    if not isinstance(version, int) or version > FORMAT:
        raise InputError(f"{path} has format {version}, this headway reads up to {FORMAT}: upgrade headway")
    if (unknown := str(facts.get("family"))) not in FAMILIES:
        raise InputError(f"{path}: there is no family '{unknown}'{nearest(unknown, FAMILIES)}")
    family = FAMILIES[facts["family"]]
    if version == 1:
        facts = format_1.card_of(facts, family.takes, family.task)
    try:
        config = from_plain(family.config, facts.get("config"), "config")
        head = from_plain(HeadConfig | None, facts.get("head"), "head")
        processors = from_plain(dict[str, ProcessorConfig], facts.get("processors"), "processors")
        if tuple(processors) != family.takes:
            raise InputError(f"processors must be {', '.join(family.takes)}, not {', '.join(processors) or 'none'}")
        task = from_plain(str, facts.get("task", family.task), "task")
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    known = {key: facts[key] for key in ("search", "run", "score") if key in facts}
    return Card(facts["family"], config, task, processors, head, **known), version


def load_weights(model: nn.Module, path: Path, rename: Callable[[str], str] = str) -> None:
    """Fill every parameter and persistent buffer from the file, whose names are `rename`d; a missing, left-over or
    misshapen one is named, and nothing is used."""
    wanted = kept_tensors(model)
    try:
        with safe_open(path, "pt") as file:
            there = {rename(name): name for name in file.keys()}  # noqa: SIM118
            names = there.keys()
            if missing := sorted(wanted.keys() - names):
                raise InputError(f"{path} lacks the weight '{missing[0]}'")
            if unknown := sorted(names - wanted.keys()):
                raise InputError(f"{path} has a weight '{unknown[0]}' that this model does not have")
            for name in sorted(names):
                shape, expected = list(file.get_slice(there[name]).get_shape()), list(wanted[name].shape)
                refuse(shape != expected, f"{path}: weight '{name}' has shape {shape}, expected {expected}")
                kind = file.get_slice(there[name]).get_dtype()
                if wanted[name].is_floating_point() and not kind.startswith(("F", "BF")):
                    raise InputError(f"{path}: weight '{name}' holds {kind}, expected floating-point numbers")
            with torch.no_grad():
                for name, weight in wanted.items():
                    weight.copy_(file.get_tensor(there[name]))
    except FileNotFoundError:
        raise InputError(f"{path} is missing: the folder is incomplete") from None
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is broken ({error}): it was cut short or changed; copy it again") from error


CPU = torch.device("cpu")


def open_processors(place: Path, card: Card) -> dict[str, Any]:
    """By name; those that share a file share what was read from it."""
    found: dict[str, Any] = {}
    for name, config in card.processors.items():
        found[name] = config.open(place, tuple(found.values()))
    return found


def read_model(folder: str | Path, device: torch.device = CPU, dtype: torch.dtype = torch.float32) -> Loaded:
    """The model in a folder, on a device in a precision; memory holds its weights once."""
    place = find_model(folder)
    if (other := _other_format(place)) is not None:
        return other.read(place, device, dtype)
    with checksums.verifying(place):
        card, version = _read_card(place)
        processors = open_processors(place, card)
        if (place / FAST_WEIGHTS).is_file() and not (place / WEIGHTS).exists():
            raise InputError(f"{place} was exported for CTranslate2: only --engine ctranslate2 runs it")
        try:
            model = blank(card.family, card.config, card.sizes, device, dtype, card.head)
        except (ValueError, RuntimeError, ZeroDivisionError) as error:
            raise InputError(f"{place / 'headway.json'} describes a model that cannot be built: {error}") from error
        load_weights(model, place / WEIGHTS, format_1.weight_name if version == 1 and card.head is not None else str)
    return Loaded(model, card, processors)


def _readme(card: Card, weights: dict[str, Tensor]) -> str:
    count = sum(tensor.numel() for tensor in weights.values())
    titles = [config.title for config in card.processors.values() if config.title]
    title = f"{' → '.join(titles)}, a headway {card.family}" if titles else f"A headway {card.family}"
    reads = " and ".join(config.summary for config in card.processors.values())
    lines = [
        f"# {title}", "", f"{count:,} parameters; {reads}; task: {card.task}.", "",
        "    headway predict FOLDER", "",
    ]  # fmt: skip
    if card.score:
        lines += ["Score:", "", *(f"- {key}: {value}" for key, value in card.score.items()), ""]
    if card.run:
        run = json.dumps(card.run, indent=1, ensure_ascii=False)
        lines += ["Trained with this run:", "", "```json", run, "```", ""]
    return "\n".join(lines)

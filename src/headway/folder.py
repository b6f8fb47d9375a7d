"""The model folder: everything a verb needs, as tensors and JSON, replaced by rename.

headway.json        format, family, config, text options, languages, search settings, score
model.safetensors   weights, float32
tokenizer.json      or source.tokenizer.json and target.tokenizer.json; that of a model from elsewhere is kept as it
                    came, with tokenizer.settings.json beside it
README.md           its card: what it is, how it was trained, what it reaches
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from headway.errors import InputError, is_full, nearest
from headway.formats import FORMATS, Format
from headway.models import FAMILIES
from headway.models.blank import blank
from headway.plain import finite, from_plain, to_plain
from headway.text.codec import Codec
from headway.text.foreign import ForeignTokenizer
from headway.text.symbols import Symbols
from headway.text.tokenizer import TextOptions, Tokenizer

FORMAT = 1
WEIGHTS = "model.safetensors"
FAST_WEIGHTS = "model.bin"  # of a folder that `headway export` wrote for CTranslate2


@dataclass
class Card:
    """What a folder says of its model beside the weights."""

    family: str
    config: Any
    vocabularies: tuple[int, ...]  # of source and target, or the one that a language model has
    text: TextOptions
    source: str = "source"
    target: str = "target"
    search: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    score: dict[str, Any] = field(default_factory=dict)
    symbols: Symbols = field(default_factory=Symbols)
    foreign_text: bool = False  # the tokenizer is from elsewhere, and `text` says nothing of it


@dataclass
class Loaded:
    model: nn.Module
    card: Card
    source_tokenizer: Any  # a Codec: headway's own, or one from elsewhere
    target_tokenizer: Any


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Each weight once (a tied one under its first name), on the CPU: float32, or integers as they are."""
    kept = {name: p.detach().float() if p.is_floating_point() else p.detach() for name, p in model.named_parameters()}
    return {name: tensor.cpu().contiguous() for name, tensor in kept.items()}


def write_model(folder: Path, weights: dict[str, Tensor], card: Card, tokenizers: tuple[Codec, Codec]) -> None:
    """Write a model folder; one that is there is replaced at the end, when the new one is whole."""

    def fill(place: Path) -> None:
        save_file(weights, place / WEIGHTS)
        write_card(place, card, tokenizers)
        (place / "README.md").write_text(_readme(card, weights), encoding="utf-8")

    replace_folder(folder, fill)


def write_card(place: Path, card: Card, tokenizers: tuple[Codec, Codec]) -> None:
    """headway.json and the tokenizers: all but the weights."""
    if card.text.joint:
        tokenizers[0].save(place / "tokenizer.json")
    else:
        tokenizers[0].save(place / "source.tokenizer.json")
        tokenizers[1].save(place / "target.tokenizer.json")
    facts = {"format": FORMAT} | to_plain(card)
    card_json = json.dumps(finite(facts), indent=1, ensure_ascii=False) + "\n"
    (place / "headway.json").write_text(card_json, encoding="utf-8")


def replace_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Fill a new folder beside `folder`, then let it take its place; on any failure the old one stays."""
    new = folder.with_name(f".{folder.name}.new-{uuid.uuid4().hex[:8]}")
    old = folder.with_name(f".{folder.name}.old-{uuid.uuid4().hex[:8]}")
    try:
        new.mkdir(parents=True)
        fill(new)
        for path in new.iterdir():
            path.chmod(0o644)  # safetensors writes for the owner alone
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    except (OSError, SafetensorError) as error:
        raise _disk_error(folder, error) from error
    finally:
        # For an interrupt too, and before anything is deleted: between the renames the old one is the only one.
        if old.exists() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _disk_error(folder: Path, error: Exception) -> InputError:
    if is_full(error):
        return InputError(f"no room left on the disk for {folder}: make room there")
    return InputError(f"cannot write {folder}: {getattr(error, 'strerror', None) or error}")


def find_model(folder: str | Path) -> Path:
    """The model folder that is meant by a model folder, by a run that has one, or by a model in another format."""
    place = Path(folder)
    for candidate in (place, place / "model"):
        if (candidate / "headway.json").is_file():
            return candidate
    for other in FORMATS:
        if (found := other.find(str(folder))) is not None:
            return found
    if not place.exists():
        raise InputError(f"there is no folder {folder}")
    if (place / "run.json").is_file():
        raise InputError(f"{folder} is a run without a model: `headway train {folder} --resume` goes on with it")
    raise InputError(f"{folder} is no model (headway.json is missing): `headway train` makes one")


def _other_format(place: Path) -> Format | None:
    """The format of a folder that `find_model` has found; None for headway's own."""
    if (place / "headway.json").is_file():
        return None
    return next((other for other in FORMATS if other.find(str(place)) is not None), None)


def read_card(folder: Path) -> Card:
    if (other := _other_format(folder)) is not None:
        return other.card(folder)
    path = folder / "headway.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(facts, dict):
            raise ValueError("not an object")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    version = facts.pop("format", None)
    if not isinstance(version, int) or version > FORMAT:
        raise InputError(f"{path} has format {version}, this headway reads up to {FORMAT}: upgrade headway")
    if facts.get("family") not in FAMILIES:
        family = str(facts.get("family"))
        raise InputError(f"{path}: there is no family '{family}'{nearest(family, FAMILIES)}")
    try:
        config = from_plain(FAMILIES[facts["family"]].config, facts.get("config"), "config")
        text = from_plain(TextOptions, facts.get("text"), "text")
        sizes = from_plain(tuple[int, ...], facts.get("vocabularies"), "vocabularies")
        if len(sizes) != (vocabularies := FAMILIES[facts["family"]].vocabularies):
            wanted = "two sizes, source and target" if vocabularies == 2 else "one size"
            raise InputError(f"vocabularies must be {wanted}, not {list(sizes)}")
        named: dict[str, Any] = {
            key: from_plain(kind, facts[key], key)
            for key, kind in (("source", str), ("target", str), ("symbols", Symbols), ("foreign_text", bool))
            if key in facts
        }
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    known = {key: facts[key] for key in ("search", "run", "score") if key in facts}
    return Card(facts["family"], config, sizes, text, **named, **known)


def load_weights(model: nn.Module, path: Path) -> None:
    """Fill every parameter from the file; a missing, left-over or misshapen one is named, and nothing is used."""
    wanted = dict(model.named_parameters())
    try:
        with safe_open(path, "pt") as file:
            names = set(file.keys())
            if missing := sorted(wanted.keys() - names):
                raise InputError(f"{path} lacks the weight '{missing[0]}'")
            if unknown := sorted(names - wanted.keys()):
                raise InputError(f"{path} has a weight '{unknown[0]}' that this model does not know")
            for name in sorted(names):
                shape = list(file.get_slice(name).get_shape())
                if shape != list(wanted[name].shape):
                    expected = list(wanted[name].shape)
                    raise InputError(f"{path}: weight '{name}' has shape {shape}, expected {expected}")
            with torch.no_grad():
                for name, weight in wanted.items():
                    weight.copy_(file.get_tensor(name))
    except FileNotFoundError:
        raise InputError(f"{path} is missing: the folder is not whole") from None
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is broken ({error}): it was cut short or changed; copy it again") from error


CPU = torch.device("cpu")


def read_tokenizers(place: Path, card: Card) -> tuple[Codec, Codec]:
    """Of source and target; the same where there is one for both, or one side only."""
    names = ("tokenizer.json",) * 2 if card.text.joint else ("source.tokenizer.json", "target.tokenizer.json")
    load: Any = ForeignTokenizer.load if card.foreign_text else Tokenizer.load
    source = load(place / names[0])
    target = source if card.text.joint else load(place / names[1])
    for tokenizer, size, name in zip((source, target), card.vocabularies, names, strict=False):
        if len(tokenizer) > size:
            raise InputError(f"{place / name} has {len(tokenizer)} entries, the model {size}")
    return source, target


def read_model(folder: str | Path, device: torch.device = CPU, dtype: torch.dtype = torch.float32) -> Loaded:
    """The model in a folder, on a device in a precision; its weights are in memory once."""
    place = find_model(folder)
    if (other := _other_format(place)) is not None:
        return other.read(place, device, dtype)
    card = read_card(place)
    source, target = read_tokenizers(place, card)
    if (place / FAST_WEIGHTS).is_file() and not (place / WEIGHTS).exists():
        raise InputError(f"{place} was exported for CTranslate2: only --engine ctranslate2 runs it")
    try:
        model = blank(card.family, card.config, card.vocabularies, device, dtype)
    except (ValueError, RuntimeError, ZeroDivisionError) as error:
        raise InputError(f"{place / 'headway.json'} describes no model that can be built: {error}") from error
    load_weights(model, place / WEIGHTS)
    return Loaded(model, card, source, target)


def _readme(card: Card, weights: dict[str, Tensor]) -> str:
    count = sum(tensor.numel() for tensor in weights.values())
    sizes = " and ".join(f"{size:,}" for size in card.vocabularies)
    pair = len(card.vocabularies) == 2
    kind = f"{'joint' if card.text.joint else 'separate'} {card.text.kind}" if pair else card.text.kind
    kind = "its own tokenizer" if card.foreign_text else kind
    lines = [
        f"# {card.source} → {card.target}, a headway {card.family}" if pair else f"# A headway {card.family}",
        "",
        f"{count:,} parameters; vocabulary {sizes} ({kind}).",
        "",
        f"    {FAMILIES[card.family].use}",
        "",
    ]
    if card.score:
        lines += ["Score:", "", *(f"- {key}: {value}" for key, value in card.score.items()), ""]
    if card.run:
        lines += [
            "Trained with this run:",
            "",
            "```json",
            json.dumps(card.run, indent=1, ensure_ascii=False),
            "```",
            "",
        ]
    return "\n".join(lines)

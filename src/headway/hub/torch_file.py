"""A model of `torch.nn.Transformer` as `torch.save(model.state_dict(), …)` leaves it: weights, and no config.

No weight says how the program calls the model (`Call`): the heads must be given, the rest is as torch and its
tutorials have it by default.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from headway.errors import InputError, Notice, refuse
from headway.hub import ids
from headway.hub.character_vocabulary import FILE, read_characters
from headway.hub.checkpoint import Checkpoint
from headway.hub.torch_weights import TorchWeights, names_in, stacks, tensors_in
from headway.hub.vocabularies import read_tokenizer
from headway.text.foreign import ForeignTokenizer

SUFFIXES = (".pt", ".pth", ".safetensors")
LONGEST = 512  # where there is no table of positions


@dataclass(frozen=True)
class Call:
    """Arguments of `torch.nn.Transformer` by its own names, and what the program does around it.

    scale_embedding: embeddings are multiplied by √width. max_length: where no table of positions says it (0: it does).
    pad_source_to: texts are padded to so many tokens, and attention sees the padding (0: they are not). bos_token_id,
    eos_token_id: around a target, where no vocabulary says it.
    """

    nhead: int = 0
    norm_first: bool = False
    activation: Literal["relu", "gelu"] = "relu"
    scale_embedding: bool = True
    pad_source_to: int = 0
    layer_norm_eps: float = 1e-5
    max_length: int = 0
    bos_token_id: int | None = None
    eos_token_id: int | None = None

    def __post_init__(self) -> None:
        for name in ("nhead", "pad_source_to", "max_length"):
            refuse(getattr(self, name) < 0, f"{name} must not be negative: {getattr(self, name)}")


ASSUMED = ("norm_first", "activation", "scale_embedding", "pad_source_to")  # a wrong one gives wrong answers


def is_torch_file(place: Path) -> bool:
    """Whether this is such a file, or a folder with one."""
    return _file(place) is not None


def _file(place: Path) -> Path | None:
    inside = sorted(place.iterdir()) if place.is_dir() else [place]
    files = [path for path in inside if path.suffix in SUFFIXES and path.is_file()]
    found = [path for path in files if _fits(path, alone=len(files) == 1)]
    if len(found) > 1:
        raise InputError(f"{place} holds {len(found)} files of weights: name one, for example {found[0]}")
    return found[0] if found else None


def _fits(path: Path, alone: bool) -> bool:
    """Of several files those that cannot be read may be anything."""
    try:
        return bool(stacks(names_in(path)))
    except InputError:
        if alone:
            raise
        return False


def torch_file(place: Path, call: Call = Call()) -> Checkpoint:  # noqa: B008
    path = _file(place)
    assert path is not None
    if not call.nhead:
        raise InputError(
            f"{path} does not say how many heads it has: headway import {place} MODEL --heads N (the program that "
            "trained it calls it nhead)"
        )
    weights = TorchWeights(path, tensors_in(path))
    read = cache(lambda: _tokenizer(path.parent, call.pad_source_to))
    start, end = _symbols(path.parent, call, read)
    facts = weights.facts | _called(weights, call) | {"decoder_start_token_id": start, "eos_token_id": end}
    filled, longest = call.pad_source_to, facts["max_length"]
    refuse(filled > longest, f"pad_source_to is {filled}: {path} has {longest} positions")
    refuse(filled and ids.only, "pad_source_to is for texts: with --ids, write the padding's ids too")
    _say_assumed(path, call, [] if weights.facts["max_length"] else [f"sinusoids of {longest} positions"])
    return Checkpoint(str(path), facts, lambda: weights, lambda: (read(), read()))


def _say_assumed(path: Path, call: Call, more: list[str]) -> None:
    """What was not said, and would give wrong answers if it were wrong."""
    names = [name for name in ASSUMED if getattr(call, name) == getattr(Call, name)]
    told = ", ".join([*(f"{name}={str(getattr(call, name)).lower()}" for name in names), *more])
    if told:
        assumed = f"{path} does not say how its program calls it: {told} is assumed (--set KEY=VALUE changes it)"
        warnings.warn(assumed, Notice, stacklevel=2)


def _called(weights: TorchWeights, call: Call) -> dict[str, Any]:
    same = {name: getattr(call, name) for name in ("nhead", "activation", "scale_embedding", "layer_norm_eps")}
    norm = "pre" if call.norm_first else "post-final" if weights.final else "post"
    return same | {"norm": norm, "max_length": call.max_length or weights.facts["max_length"] or LONGEST}


def _tokenizer(folder: Path, filled: int) -> ForeignTokenizer:
    if (folder / FILE).is_file() and not (folder / "tokenizer.json").is_file():
        found = read_characters(folder)
    else:
        found = read_tokenizer(folder, {})
    refuse(
        filled and found.pad is None,
        f"pad_source_to needs a symbol for padding, which the vocabulary of {folder} lacks",
    )
    return ForeignTokenizer.from_json(found.to_json(), replace(found.settings, filled=filled)) if filled else found


def _symbols(folder: Path, call: Call, read: Any) -> tuple[int, int]:
    """The ids around a target."""
    start, end = call.bos_token_id, call.eos_token_id
    if not ids.only:
        start, end = (read().start if start is None else start), (read().end if end is None else end)
    if start is None or end is None:
        raise InputError(
            f"{folder} does not say what a text starts and ends with: pass --set bos_token_id=N eos_token_id=N"
        )
    return start, end

"""A model of another program, however it lies on the disk: its config, weights and tokenizer in Hugging Face's words.

Each kind is one file with a function that opens it. A folder with config.json, an adapter beside its base model, a GGUF
file, Meta's params.json and weights of torch.nn.Transformer all become a `Checkpoint`; what follows
(`headway.hub.reading`) does not ask which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from headway.errors import InputError, refuse
from headway.hub.decoding import decoding_facts
from headway.hub.hf_folder import CONFIG, Weights, has_weights, is_hf_folder, open_weights
from headway.hub.model_type import with_model_type
from headway.hub.vocabularies import read_tokenizers
from headway.outside import read_object
from headway.text.foreign import ForeignTokenizer


@dataclass
class Checkpoint:
    """facts: what config.json says. open: its weights. tokenizers: of source and target, or one and the same. folder:
    where further files may lie, None where there are none."""

    where: str
    facts: dict[str, Any]
    open: Callable[[], Weights]
    tokenizers: Callable[[], tuple[ForeignTokenizer, ForeignTokenizer]]
    folder: Path | None = None

    @cached_property
    def weights(self) -> Weights:
        return self.open()

    @property
    def decoding(self) -> dict[str, Any]:
        """How a target is decoded."""
        return self.facts if self.folder is None else decoding_facts(self.folder)


def hf_folder(folder: Path) -> Checkpoint:
    path = folder / CONFIG
    facts = with_model_type(read_object(path), lambda: open_weights(folder), str(path))
    return Checkpoint(str(path), facts, lambda: open_weights(folder), lambda: read_tokenizers(folder, facts), folder)


ADAPTER, META, GGUF = "adapter_config.json", "params.json", ".gguf"


def _one_gguf(place: Path) -> Path | None:
    """A GGUF file, or the only one of a folder."""
    files = [place] if place.suffix.lower() == GGUF else sorted(place.glob(f"*{GGUF}")) if place.is_dir() else []
    if len(files) > 1 and not is_hf_folder(place):
        raise InputError(f"{place} holds {len(files)} GGUF files: name one, for example {files[0]}")
    return files[0] if files and files[0].is_file() else None


Opener = Callable[..., Checkpoint]


def _opener(module: str, name: str) -> Opener:
    return lambda *given: import_module(f"headway.hub.{module}").__dict__[name](*given)


TORCH = _opener("torch_file", "torch_file")


def opener_of(place: Path) -> Opener | None:
    """What opens this folder or file; None for one that is of no kind."""
    if (place / ADAPTER).is_file():
        return _opener("adapter", "adapted")
    if is_hf_folder(place):
        graphs = not has_weights(place) and (any(place.glob("*.onnx")) or any(place.glob("onnx/*.onnx")))
        return _opener("onnx_folder", "onnx_folder") if graphs else hf_folder
    if (place / META).is_file():
        return _opener("meta_folder", "meta_folder")
    if (file := _one_gguf(place)) is not None:
        return lambda _: import_module("headway.hub.gguf_file").gguf_file(file)
    return TORCH if import_module("headway.hub.torch_file").is_torch_file(place) else None


def opened(place: Path, call: Any = None) -> Checkpoint:
    """`call`: how a model was called, where its file does not say it."""
    open_it = opener_of(place)
    if open_it is None:
        raise InputError(f"{place} is no model of another program ({CONFIG} is missing)")
    if call is None:
        return open_it(place)
    refuse(open_it is not TORCH, f"--heads and --set are for weights without a config: {place} says all of it")
    return open_it(place, call)

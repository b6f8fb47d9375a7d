"""The files of a Hugging Face folder: config.json, and weights as safetensors or, in old ones, as a pickle of tensors.

Weights are memory-mapped, one at a time: each is released after it was copied.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headway.errors import InputError, refuse
from headway.outside import parsed, read_object

CONFIG = "config.json"
SAFE, OLD = "model.safetensors", "pytorch_model.bin"
INDEX = ".index.json"


def optional_json(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}


def write_json(path: Path, facts: dict[str, Any]) -> None:
    path.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def is_hf_folder(folder: Path) -> bool:
    """Whether its config.json has a model_type, which other programs' config.json lack, or lies beside weights."""
    facts = optional_json(folder / CONFIG)
    return "model_type" in facts or "architectures" in facts or (bool(facts) and has_weights(folder))


class SafeWeights:
    """Tensors by their name in one safetensors file, or in several that an index names."""

    def __init__(self, where: Path) -> None:
        self.where = where
        if where.name.endswith(INDEX):
            self.file_of = _indexed(where)
            return
        with _opened(where) as file:
            self.file_of = dict.fromkeys(file.keys(), where)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for path in dict.fromkeys(self.file_of.values()):
            with _opened(path) as file:
                names = [name for name in file.keys() if self.file_of.get(name) == path]  # noqa: SIM118
                found |= {name: tuple(file.get_slice(name).get_shape()) for name in names}
        if lost := sorted(self.file_of.keys() - found.keys()):
            raise InputError(f"{self.where} lists '{lost[0]}' in {self.file_of[lost[0]].name}, which lacks it")
        return found

    def get(self, name: str) -> Tensor:
        """A view of the file, opened for each weight: the mapping and its memory are released with the last view."""
        with _opened(self.file_of[name]) as file:
            return cast(Tensor, file.get_tensor(name))

    def joined(self, names: list[str]) -> Tensor | None:
        """Several weights, concatenated by rows, as one view of the file; None where they are not adjacent in it."""
        path = self.file_of[names[0]]
        if any(self.file_of[name] != path for name in names):
            return None
        first, facts = _header(path, path.stat().st_mtime_ns)
        spans = [facts[name]["data_offsets"] for name in names]
        kinds = {(facts[name]["dtype"], *facts[name]["shape"][1:]) for name in names}
        in_order = all(before[1] == after[0] for before, after in zip(spans, spans[1:], strict=False))
        dtype = MAPPED.get(facts[names[0]]["dtype"])
        if not in_order or len(kinds) > 1 or dtype is None or (first + spans[0][0]) % dtype.itemsize:
            return None
        # Private: it is never written back.
        whole: Any = torch.UntypedStorage.from_file(str(path), False, path.stat().st_size)
        rows = sum(facts[name]["shape"][0] for name in names)
        shape = (rows, *facts[names[0]]["shape"][1:])
        strides = torch.empty(shape, dtype=dtype, device="meta").stride()
        return torch.empty(0, dtype=dtype).set_(whole, (first + spans[0][0]) // dtype.itemsize, shape, strides)


MAPPED = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@lru_cache(maxsize=64)
def _header(path: Path, changed: int) -> tuple[int, dict[str, Any]]:
    """Where the tensors of a safetensors file begin, and what it says of each."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return 8 + size, parsed(file.read(size), f"the header of {path}")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, "pt") as file:
            yield file
    except FileNotFoundError:
        raise InputError(f"{path} is missing: the folder is incomplete") from None
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is broken ({error}): it was cut short or changed; copy it again") from error


class NotMapped:
    """Abstract. Weights of which no two are one view of a file."""

    def joined(self, names: list[str]) -> Tensor | None:
        return None


class InMemory(NotMapped):
    """Abstract. Weights that were read at once."""

    tensors: dict[str, Tensor]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    def get(self, name: str) -> Tensor:
        return self.tensors[name]


class OldWeights(InMemory):
    """One or several pickles, read by torch's reader that makes tensors and runs nothing."""

    def __init__(self, where: Path) -> None:
        self.where = where
        files = dict.fromkeys(_indexed(where).values()) if where.name.endswith(INDEX) else [where]
        self.tensors = {name: tensor for file in files for name, tensor in _unpickled(file).items()}


def _unpickled(path: Path) -> dict[str, Tensor]:
    found = unpickled(path)
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise InputError(f"{path} must hold tensors by name")
    return found


def unpickled(path: Path) -> Any:
    """What a pickle of tensors holds; a file that would run code is refused."""
    try:
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # a file from before torch 1.6 cannot be mapped
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"{path} is missing: the folder is incomplete") from None
    except pickle.UnpicklingError as error:
        first = " ".join(str(error).split("WeightsUnpickler error:")[-1].split())[:120]
        raise InputError(f"{path} would run code when it is opened ({first}): refused; nothing of it was run") from None
    except Exception as error:  # torch raises many kinds for a broken file
        raise InputError(f"{path} is broken ({' '.join(str(error).split())[:120]}): copy it again") from error


class Weights(Protocol):
    """Tensors by Hugging Face's names, read one at a time."""

    where: Path

    def shapes(self) -> dict[str, tuple[int, ...]]: ...

    def get(self, name: str) -> Tensor: ...

    def joined(self, names: list[str]) -> Tensor | None:
        """Several as one view of the file, concatenated by rows; None where there is no such view."""


KINDS: dict[str, type[SafeWeights | OldWeights]] = {".safetensors": SafeWeights, ".bin": OldWeights}


def open_weights(folder: Path) -> Weights:
    """The weights of a folder: safetensors where there are any, in one file or in those that an index names."""
    path = _weights_file(folder)
    if path is None:
        raise InputError(f"{folder} has no weights: expected {SAFE}, {SAFE}{INDEX} or {OLD}")
    return KINDS[Path(path.name.removesuffix(INDEX)).suffix](path)


def weights_named(folder: Path, stem: str) -> Weights:
    """The weights of one file with this name."""
    for suffix, kind in KINDS.items():
        if (path := folder / f"{stem}{suffix}").is_file():
            return kind(path)
    raise InputError(f"{folder} has no weights: expected {stem}.safetensors or {stem}.bin")


def has_weights(folder: Path) -> bool:
    return _weights_file(folder) is not None


def _weights_file(folder: Path) -> Path | None:
    """Under its usual name; else the only one of its kind, such as model.fp16.safetensors."""
    for name in (SAFE, OLD):
        found = [path for path in (folder / name, folder / (name + INDEX)) if path.is_file()]
        kind = Path(name).suffix
        others = sorted(path for end in (kind, kind + INDEX) for path in folder.glob(f"{Path(name).stem}*{end}"))
        indexes = [path for path in others if path.name.endswith(INDEX)]
        others = indexes or others or sorted(folder.glob(f"*{kind}"))
        if found or len(others) == 1:
            return (found or others)[0]
    return None


def _indexed(path: Path) -> dict[str, Path]:
    places = read_object(path).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(place, str) for place in places.values()):
        raise InputError(f"{path}: weight_map must name a file for each weight")
    for place in set(places.values()):
        refuse(Path(place).name != place, f"{path} names the file '{place}': it must lie in the same folder")
    return {name: path.parent / place for name, place in places.items()}

"""Sizes that no machine could build are refused before anything is built: a folder's config is somebody else's."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import torch

from headway.errors import InputError, refuse

LAYERS = 10_000
NUMBERS = 1 << 28  # of anything else that a config counts: widths, heads, lengths, entries of a vocabulary


def refuse_giants(config: Any, sizes: tuple[int, ...]) -> None:
    """An error that names the first size beyond all bounds, or says that the model does not fit into memory."""
    counted = [*_counts(config), *(("the vocabulary", size) for size in sizes)]
    for name, size in counted:
        most = LAYERS if name.endswith("layers") else NUMBERS
        refuse(size > most, f"model.{name} is {size:,}: at most {most:,} can be built")
    weights, memory = _rough(config, sizes), _memory()
    if memory and 4 * weights > memory and torch.empty(0).device.type != "meta":  # which takes none
        need, have = (f"{number / 2**30:,.0f} GiB" for number in (4 * weights, memory))
        raise InputError(f"a model of these sizes takes some {need} of memory, this machine has {have}")


def _counts(config: Any, key: str = "") -> Iterator[tuple[str, int]]:
    for field in dataclasses.fields(config) if dataclasses.is_dataclass(config) else ():
        value = getattr(config, field.name)
        if isinstance(value, int) and not isinstance(value, bool):
            yield key + field.name, value
        yield from _counts(value, f"{key}{field.name}.")


def _rough(config: Any, sizes: tuple[int, ...]) -> int:
    """Numbers that the largest matrices hold, at least: less than what any family takes."""
    width, inner = (getattr(config, name, 0) for name in ("width", "inner"))
    layers = sum(getattr(config, name, 0) for name in ("layers", "encoder_layers", "decoder_layers"))
    return int(layers * width * (width + inner) + max(sizes, default=0) * width)


def _memory() -> int:
    """Bytes of this machine; 0 where it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0

"""Modalities: one file each. `PROCESSORS` is the one place where the name of a modality becomes its classes."""

from __future__ import annotations

from typing import Any, Union

from headway.processors.image import ImageConfig
from headway.processors.sound import SoundConfig
from headway.processors.text import TextConfig

PROCESSORS: dict[str, Any] = {config.name: config for config in (TextConfig, ImageConfig, SoundConfig)}

ProcessorConfig: Any = Union[tuple(PROCESSORS.values())]  # noqa: UP007

"""Modalities: one file each. `PROCESSORS` is the one place where the name of a modality becomes its classes."""

from __future__ import annotations

from typing import Any, Union

from headway.processors.image import ImageConfig
from headway.processors.kinds import KindsConfig
from headway.processors.sound import SoundConfig
from headway.processors.steps import ActionConfig, ObservationConfig
from headway.processors.text import TextConfig

EVERY = (TextConfig, ImageConfig, SoundConfig, ObservationConfig, ActionConfig, KindsConfig)
PROCESSORS: dict[str, Any] = {config.name: config for config in EVERY}

ProcessorConfig: Any = Union[tuple(PROCESSORS.values())]  # noqa: UP007

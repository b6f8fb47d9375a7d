"""Libraries that only some parts need: imported where they are used; a missing one is reported with its command."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from headway.errors import InputError


def wanted(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        raise InputError(f"this needs {package}, which is not installed: pip install 'headway[{extra}]'") from error

"""How a Hugging Face folder says that pictures are read (preprocessor_config.json) ↔ headway's `ImageConfig`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headway.card import Loaded
from headway.data.image_files import Resample
from headway.errors import InputError
from headway.hub.hf_folder import write_json
from headway.outside import read_object
from headway.processors.image import ImageConfig

FILE = "preprocessor_config.json"
USUAL = (0.5, 0.5, 0.5)
RESAMPLE: dict[Any, Resample] = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers
KIND = {1: "ViTImageProcessor", 2: "DeiTImageProcessor"}


def image_processors(folder: Path | None, config: Any, channels: int) -> dict[str, Any]:
    """The processor of a model of pictures; of a folder that does not say it, the usual one of ViT."""
    path = None if folder is None else folder / FILE
    facts = read_object(path) if path is not None and path.is_file() else {}
    where, side = str(path), config.image
    size, crop = (_sides(facts.get(key, {}), side, where) for key in ("size", "crop_size"))
    cropped = bool(facts.get("do_center_crop", False))
    if (crop if cropped else size) != (side, side):
        raise InputError(f"{where} gives pictures of {crop if cropped else size}, the model takes {side} × {side}")
    if not facts.get("do_resize", True):
        raise InputError(f"{where}: do_resize is false, headway scales every picture to the model's size")
    if cropped and size[0] != size[1]:
        raise InputError(f"{where} scales to {size} before it crops: headway takes the middle of a square")
    factor = float(facts.get("rescale_factor", 1 / 255)) * 255 if facts.get("do_rescale", True) else 255.0
    normal = facts.get("do_normalize", True)
    mean = _numbers(facts.get("image_mean", USUAL) if normal else (0.0,), channels, where)
    std = _numbers(facts.get("image_std", USUAL) if normal else (1.0,), channels, where)
    resample = facts.get("resample", 2)
    if resample not in RESAMPLE:
        raise InputError(f"{where}: resample is {resample!r}, headway has {', '.join(map(str, RESAMPLE))}")
    # (x·factor − mean) / std with x from 0 to 1
    mean, std = (tuple(round(number / factor, 9) for number in numbers) for numbers in (mean, std))
    return {"image": ImageConfig(channels, side, side, mean, std, RESAMPLE[resample], size[0] if cropped else 0)}


def image_facts(config: ImageConfig, before: int) -> dict[str, Any]:
    """preprocessor_config.json."""
    number = next(number for number, name in RESAMPLE.items() if name == config.resample)
    mean, std = (list(numbers) * (config.size // len(numbers)) for numbers in (config.mean, config.std))
    size = {"height": config.edge or config.height, "width": config.edge or config.width}
    crop = (
        {"do_center_crop": True, "crop_size": {"height": config.height, "width": config.width}} if config.edge else {}
    )
    return {
        "image_processor_type": KIND.get(before, KIND[1]), "do_resize": True, "size": size, "resample": number,
        "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": mean, "image_std": std,
    } | crop  # fmt: skip


def image_beside(folder: Path, loaded: Loaded, layout: Any) -> None:
    """How pictures are read."""
    write_json(folder / FILE, image_facts(loaded.card.reads, loaded.card.config.before))


def _sides(said: Any, usual: int, where: str) -> tuple[int, int]:
    """(height, width), of a number or an object."""
    if isinstance(said, int):
        return said, said
    if not isinstance(said, dict) or not {*said} <= {"height", "width"}:
        raise InputError(f"{where}: a size is {said!r}, headway reads a number, or a height and a width")
    return int(said.get("height", usual)), int(said.get("width", usual))


def _numbers(said: Any, channels: int, where: str) -> tuple[float, ...]:
    numbers = tuple(said) if isinstance(said, list | tuple) else (said,)
    if len(numbers) not in (1, channels) or not all(isinstance(number, int | float) for number in numbers):
        raise InputError(f"{where}: {said!r} must have a number for each of {channels} channels")
    return tuple(map(float, numbers))

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
    return {"image": image_config(processor_facts(folder), str(folder and folder / FILE), config, channels)}


def processor_facts(folder: Path | None) -> dict[str, Any]:
    """What preprocessor_config.json says, where there is one."""
    path = None if folder is None else folder / FILE
    return read_object(path) if path is not None and path.is_file() else {}


def image_config(facts: dict[str, Any], where: str, config: Any, channels: int) -> ImageConfig:
    high, wide = config.size
    size, crop = (_sides(facts.get(key, {}), config.size, where) for key in ("size", "crop_size"))
    cropped = bool(facts.get("do_center_crop", False))
    if (crop if cropped else size) != (high, wide):
        raise InputError(f"{where} gives pictures of {crop if cropped else size}, the model takes {high} × {wide}")
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
    return ImageConfig(channels, high, wide, mean, std, RESAMPLE[resample], size[0] if cropped else 0)


def image_facts(config: ImageConfig, kind: str) -> dict[str, Any]:
    """preprocessor_config.json."""
    number = next(number for number, name in RESAMPLE.items() if name == config.resample)
    mean, std = (list(numbers) * (config.size // len(numbers)) for numbers in (config.mean, config.std))
    size = {"height": config.edge or config.height, "width": config.edge or config.width}
    crop = (
        {"do_center_crop": True, "crop_size": {"height": config.height, "width": config.width}} if config.edge else {}
    )
    return {
        "image_processor_type": kind, "do_resize": True, "size": size, "resample": number,
        "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": mean, "image_std": std,
    } | crop  # fmt: skip


def image_beside(folder: Path, loaded: Loaded, layout: Any, kind: str = "") -> None:
    """How pictures are read. kind: the class of their processor, by default that of ViT or DeiT."""
    before = loaded.card.config.before
    write_json(folder / FILE, image_facts(loaded.card.reads, kind or KIND.get(before, KIND[1])))


def _sides(said: Any, usual: tuple[int, int], where: str) -> tuple[int, int]:
    """(height, width), of a number or an object."""
    if isinstance(said, int):
        return said, said
    if not isinstance(said, dict) or not {*said} <= {"height", "width"}:
        raise InputError(f"{where}: a size is {said!r}, headway reads a number, or a height and a width")
    return int(said.get("height", usual[0])), int(said.get("width", usual[1]))


def _numbers(said: Any, channels: int, where: str) -> tuple[float, ...]:
    numbers = tuple(said) if isinstance(said, list | tuple) else (said,)
    if len(numbers) not in (1, channels) or not all(isinstance(number, int | float) for number in numbers):
        raise InputError(f"{where}: {said!r} must have a number for each of {channels} channels")
    return tuple(map(float, numbers))

"""Classification of pictures: a label of each, by an encoder with a head for labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from headway.card import Card, Loaded
from headway.data.catalog import find_all
from headway.data.images import ImageBatch, ImageBatches, ImageInputs, Pictures, hold_out_pictures, read_pictures
from headway.errors import InputError, nearest
from headway.evaluate.labels import LabelScores
from headway.generate.pictures import PictureModel
from headway.models.heads import Classes
from headway.plain import to_plain
from headway.processors.image import ImageConfig, ImageProcessor
from headway.tasks.files import is_own
from headway.tasks.objective import Labels
from headway.tasks.start import earlier_model, first_model
from headway.tasks.task import Figure, Prediction, Report, RunContext, Task, entropy, refuse


@dataclass(frozen=True)
class LabelledImages:
    """Pictures with a label each: IDX files (`…images-idx3-ubyte.gz`, the labels beside them) or folders that have a
    folder for each label.

    Without `valid`, the share `hold_out` of the training pictures is. names: what the labels of the data, in their
    order, are called (none: as they are written there). channels: 1 for grey, 3 for colour. shift, flip: training
    pictures are moved by at most so many pixels, and mirrored half of the times. A batch of a run counts pictures.
    """

    name: ClassVar[str] = "labelled-images"
    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    hold_out: float = 0.1
    names: tuple[str, ...] = ()
    channels: int = 3
    shift: int = 0
    flip: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.hold_out < 1:
            raise InputError(f"data.hold_out must lie between 0 and 1, not {self.hold_out}")
        if self.channels not in (1, 3):
            raise InputError(f"data.channels must be 1 (grey) or 3 (colour), not {self.channels}")
        if self.shift < 0:
            raise InputError(f"data.shift must be 0 or more, not {self.shift}")


class ImageClassification(Task):
    """Judged by the labels that it gives to held-out pictures."""

    name = "image-classification"
    data = LabelledImages
    objectives = (Labels,)
    roles = ("encodes",)
    takes = ("image",)
    heads = (Classes,)
    headline = ("accuracy", True)
    verb = "predict"

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        earlier = earlier_model(run)
        size = run.model.image
        self.parts = self._read((size, size))
        self.labels = _labels_in(self.parts["train"])
        if len(self.labels) < 2:
            raise InputError(f"every training picture has the label '{self.labels[0]}': at least two are needed")
        if run.data.names and len(run.data.names) != len(self.labels):
            raise InputError(f"data.names has {len(run.data.names)} names for {len(self.labels)} labels")
        config = earlier.card.reads if earlier else _measured(self.parts["train"], size)
        self.processor = ImageProcessor(config)
        head = replace(run.head, labels=run.data.names or self.labels)
        self.model = first_model(run, context, (config.size,), (), head, earlier)
        self.card = Card(run.model.name, run.model, self.name, {"image": config}, head, run=to_plain(run))
        self.processors = {"image": self.processor}
        self.batches = self._batches("train", run.engine.seed, full=context.device.type == "cuda")
        self.valid = self._batches("valid")

    def _read(self, size: tuple[int, int]) -> dict[str, Pictures]:
        data = self.run.data
        if not data.train:
            raise InputError("no training data: pass --data FOLDER (a folder for each label) or an IDX file")
        named = {"train": data.train, "valid": data.valid, "test": data.test}
        parts = {
            part: read_pictures([place for name in names for place in self._found(name)], data.channels, size)
            for part, names in named.items()
            if names
        }
        if "valid" not in parts:
            parts["train"], parts["valid"] = hold_out_pictures(parts["train"], data.hold_out)
        for part, pictures in parts.items():
            self.log.say(f"{part}: {len(pictures):,} pictures")
            self.log.event("data", part=part, pictures=len(pictures))
        return parts

    def _found(self, name: str) -> list[Any]:
        return [name] if is_own(name) else list(find_all(name, download=self.context.download))

    def _batches(self, part: str, seed: int | None = None, full: bool = False) -> ImageBatches:
        """With a seed for training; without one every picture once, as it is."""
        pictures, data = self.parts[part], self.run.data
        labels_N = _numbers(pictures, {label: number for number, label in enumerate(self.labels)})
        how: dict[str, Any] = {"shuffle": False} if seed is None else {"shift": data.shift, "flip": data.flip}
        rows = self.run.engine.batch
        return ImageBatches(pictures.pixels_NCHW, labels_N, self.processor.normalise, rows, seed or 0, full=full, **how)

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        name = self.run.objective.judge
        return name, Figure(self._scores("valid").by(name), True, 4)

    def final_figures(self) -> dict[str, Any]:
        if "test" not in self.parts:
            return {}
        return {f"test {name}": round(value, 4) for name, value in _figures(self._scores("test")).items()}

    @torch.no_grad()
    def _scores(self, part: str) -> LabelScores:
        self.model.eval()
        true: list[int] = []
        given: list[int] = []
        for batch in self._batches(part).epoch():
            inputs = batch.inputs.map(lambda tensor: tensor.to(self.context.device, self.context.dtype))
            true += batch.labels_B.tolist()
            given += self.model(inputs).argmax(-1).tolist()
        return LabelScores.of(true, given, len(self.labels))

    def shown(self, example: int) -> str:
        return self.parts["train"].names[example]

    def data_names(self) -> dict[str, str]:
        return {part: pictures.fingerprint for part, pictures in self.parts.items()}

    def guess(self) -> float:
        return entropy(np.bincount(self.batches.labels_N))

    @classmethod
    def sizes(cls, run: Any, likely: bool = False) -> tuple[int, ...]:
        return (run.data.channels,)

    @classmethod
    def level(cls, data: Any, like: Any) -> Any:
        return data if like is None else replace(data, channels=like.channels, names=like.names)

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> ImageBatch:
        pixels_BCHW = torch.randn(run.engine.batch, size, run.model.image, run.model.image, device=device)
        return ImageBatch(ImageInputs(pixels_BCHW), torch.ones(run.engine.batch, dtype=torch.long, device=device))

    @classmethod
    def open(cls, loaded: Loaded, device: torch.device, dtype: torch.dtype) -> PictureModel:
        return PictureModel(loaded, device, dtype)

    @classmethod
    def read(cls, inputs: list[str], texts: list[str], lines: Callable[..., list[str]]) -> list[Any]:
        if texts or not inputs:
            raise InputError("this model reads pictures: headway predict MODEL PICTURE.png …")
        return inputs

    @classmethod
    def answer(cls, model: PictureModel, values: Sequence[Any], options: dict[str, Any]) -> Iterator[Prediction]:
        refuse(options, ("all",), "a model that labels pictures")
        for value, guesses in zip(values, model.classify(values), strict=True):
            shown = guesses if "all" in options else guesses[:1]
            line = "\t".join(f"{guess.text}\t{guess.probability:.4f}" for guess in shown)
            labels = [[guess.text, round(guess.probability, 6)] for guess in guesses]
            yield Prediction(line, {"picture": str(value), "labels": labels})

    @classmethod
    def evaluate(cls, model: PictureModel, files: Sequence[str], options: dict[str, Any]) -> Report:
        """Accuracy, F1 and correlation of the labels that a model gives these pictures. A label is written as the model
        calls it, or as its number from 0 on."""
        refuse(options, (), "a model that labels pictures")
        config = model.processor.config
        pictures = read_pictures(files, config.size, (config.height, config.width))
        number_of = {str(number): number for number in range(len(model.labels))}
        number_of |= {name: number for number, name in enumerate(model.labels)}
        true = _numbers(pictures, number_of)
        by_height = list(pictures.pixels_NCHW.transpose(0, 2, 3, 1))
        given = [number_of[guesses[0].text] for guesses in model.classify(by_height)]
        found = _figures(LabelScores.of(true.tolist(), given, len(model.labels)))
        names = {"accuracy": "accuracy", "f1": "macro-F1", "matthews": "Matthews' correlation"}
        rows = [f"{shown:<22}  {found[name]:.4f}" for name, shown in names.items()]
        return Report({"pictures": len(pictures)} | found, [*rows, f"{len(pictures):,} pictures"])


def _figures(scores: LabelScores) -> dict[str, float]:
    return {"accuracy": scores.accuracy, "f1": scores.f1, "matthews": scores.matthews}


def _labels_in(pictures: Pictures) -> tuple[str, ...]:
    """Every label, in order; numbers by their size."""
    found = set(pictures.labels)
    number = all(label.isdecimal() for label in found)
    return tuple(sorted(found, key=lambda label: (int(label) if number else 0, label)))


def _numbers(pictures: Pictures, number_of: dict[str, int]) -> Any:
    """The label of each picture as its number."""
    for name, label in zip(pictures.names, pictures.labels, strict=True):
        if label not in number_of:
            raise InputError(
                f"{name} has the label '{label}', which the model does not have{nearest(label, number_of)}"
            )
    return np.array([number_of[label] for label in pictures.labels], np.int64)


def _measured(pictures: Pictures, size: int) -> ImageConfig:
    """With mean and standard deviation of each channel over the training pictures."""
    pixels = pictures.pixels_NCHW / 255
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3)).clip(min=1e-3)
    return ImageConfig(len(mean), size, size, tuple(mean.round(6).tolist()), tuple(std.round(6).tolist()))

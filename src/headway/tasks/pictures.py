"""Classification of pictures: a label of each, by an encoder with a head for labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from headway.card import Card
from headway.data.augment import Augment, ImageInputs
from headway.data.images import PLAIN, ImageBatches, Pictures, hold_out_pictures, read_pictures
from headway.data.labelled import LabelBatch, Labelled, labels_in
from headway.errors import refuse
from headway.generate.pictures import PictureModel
from headway.models.heads import Classes, DistilledClasses, LinearClasses
from headway.plain import to_plain
from headway.processors.image import ImageConfig, ImageProcessor
from headway.tasks.files import DividedFiles
from headway.tasks.labelling import Labelling, numbers
from headway.tasks.start import RunContext, earlier_model, first_model
from headway.tasks.task import entropy


@dataclass(frozen=True)
class LabelledImages(DividedFiles):
    """Pictures with a label each: IDX files (`…images-idx3-ubyte.gz`, the labels beside them) or folders that have a
    folder for each label.

    Without `valid`, the share `hold_out` of the training pictures is. names: what the labels of the data, in their
    order, are called (none: as they are written there). channels: 1 for grey, 3 for colour. augment: what training
    pictures go through. broken: a picture that cannot be read ends the run ("refuse"), or is left out ("skip"). A batch
    of a run counts pictures.
    """

    name: ClassVar[str] = "labelled-images"
    wanted: ClassVar[str] = "FOLDER (a folder for each label) or an IDX file"
    names: tuple[str, ...] = ()
    channels: int = 3
    augment: Augment = PLAIN
    broken: Literal["refuse", "skip"] = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(self.channels not in (1, 3), f"data.channels must be 1 (grey) or 3 (colour), not {self.channels}")


class ImageClassification(Labelling):
    """Judged by the labels that it gives to held-out pictures."""

    name = "image-classification"
    data = LabelledImages
    takes = ("image",)
    heads = (Classes, LinearClasses, DistilledClasses)
    verbs = ()
    opens = PictureModel
    what = unit = "pictures"
    options = ("all",)

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        earlier, size = earlier_model(run), run.model.image
        with context.ranks.in_turn():
            how = {"channels": run.data.channels, "broken": run.data.broken, "say": self.log.say}
            read = partial(read_pictures, size=(size, size), **how)
            self.parts = self.divided(read, hold_out_pictures, folders=True)
        for part, pictures in self.parts.items():
            self.log.say(f"{part}: {len(pictures):,} pictures")
            self.log.event("data", part=part, pictures=len(pictures))
        self.data_names = {part: pictures.fingerprint for part, pictures in self.parts.items()}
        train = self.parts["train"]
        self.written = labels_in(list(map(Labelled, train.names, train.labels)))
        self.labels = self.called(self.written)
        config = earlier.card.reads if earlier else _measured(train, size)
        self.processors = {"image": ImageProcessor(config)}
        head = replace(run.head, labels=self.labels)
        self.model = first_model(run, context, (config.size,), (), head, earlier)
        self.card = Card(run.model.name, run.model, self.name, {"image": config}, head, run=to_plain(run))
        full = context.device.type == "cuda"
        self.batches = self._batches("train", run.engine.seed, full=full, augment=run.data.augment)
        self.held = {part: self._batches(part, 0, shuffle=False) for part in self.parts if part != "train"}
        self.valid = self.held["valid"]

    def _batches(self, part: str, seed: int, **how: Any) -> ImageBatches:
        pictures, processor = self.parts[part], self.processors["image"]
        labels_N = np.array(numbers(pictures.names, pictures.labels, self.written), np.int64)
        scale = processor.mean_C11, processor.std_C11
        return ImageBatches(pictures.pixels_NCHW, labels_N, *scale, self.run.engine.batch, seed, **how)

    def shown(self, example: int) -> str:
        return str(self.parts["train"].names[example])

    def guess(self) -> float:
        return entropy(np.bincount(self.batches.labels_N))

    @classmethod
    def sizes(cls, run: Any, likely: bool = False) -> tuple[int, ...]:
        return (run.data.channels,)

    @classmethod
    def level(cls, data: Any, like: Any) -> Any:
        return data if like is None else replace(data, channels=like.channels, names=like.names)

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> LabelBatch:
        pixels_BCHW = torch.randn(run.engine.batch, size, run.model.image, run.model.image, device=device)
        return LabelBatch(ImageInputs(pixels_BCHW), torch.ones(run.engine.batch, dtype=torch.long, device=device))

    @classmethod
    def read(
        cls, inputs: list[str], texts: list[str], lines: Callable[..., list[str]], columns: Sequence[str] = ()
    ) -> list[Any]:
        refuse(columns, f"--text-column has no meaning for the task '{cls.name}'")
        refuse(texts or not inputs, "this model reads pictures: headway predict MODEL PICTURE.png …")
        return inputs

    @classmethod
    def guesses(cls, model: PictureModel, values: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        return model.classify(values)

    @classmethod
    def labelled(
        cls, model: PictureModel, files: Sequence[str], options: dict[str, Any]
    ) -> tuple[Sequence[str], Sequence[str], list[Any]]:
        config = model.processor.config
        pictures = read_pictures(files, config.size, (config.height, config.width))
        return pictures.names, pictures.labels, model.classify(list(pictures.pixels_NCHW.transpose(0, 2, 3, 1)))


def _measured(pictures: Pictures, size: int) -> ImageConfig:
    """With mean and standard deviation of each channel over the training pictures."""
    pixels = pictures.pixels_NCHW / 255
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3)).clip(min=1e-3)
    return ImageConfig(len(mean), size, size, tuple(mean.round(6).tolist()), tuple(std.round(6).tolist()))

"""Classification of pictures, and of other grids of numbers: a label of each, by an encoder with a head for labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from headway.card import Card
from headway.data.augment import Augment, Draws, ImageInputs
from headway.data.images import PLAIN, ImageBatches, Pictures, hold_out_pictures, read_pictures
from headway.data.labelled import LabelBatch, Labelled, labels_in
from headway.errors import refuse
from headway.generate.pictures import PictureModel
from headway.models.heads import Classes, DistilledClasses, LinearClasses, TwoTokens
from headway.plain import to_plain
from headway.processors.image import ImageConfig
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


class GridClassification(Labelling):
    """Abstract. A label for each of many grids of numbers: pictures, or spectrograms. A subclass says how they are
    read, normalised and augmented."""

    takes: ClassVar[tuple[str, ...]]
    heads = (Classes, LinearClasses, DistilledClasses, TwoTokens)
    verbs = ()
    options = ("all",)

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        earlier = earlier_model(run)
        with context.ranks.in_turn():
            self.parts = self.divided(self.reader(earlier), hold_out_pictures, folders=True)
        for part, pictures in self.parts.items():
            self.log.say(f"{part}: {len(pictures):,} {self.what}")
            self.log.event("data", part=part, **{self.what: len(pictures)})
        self.data_names = {part: pictures.fingerprint for part, pictures in self.parts.items()}
        train = self.parts["train"]
        self.written = labels_in(list(map(Labelled, train.names, train.labels)))
        self.labels = self.called(self.written)
        config = self.as_before(earlier) if earlier else self.measured(train)
        [name] = self.takes
        self.processor = config.open(context.out)
        self.processors = {name: self.processor}
        head = replace(run.head, labels=self.labels)
        self.model = first_model(run, context, (config.size,), (), head, earlier)
        self.card = Card(run.model.name, run.model, self.name, {name: config}, head, run=to_plain(run))
        full = context.device.type == "cuda"
        self.batches = self._batches("train", run.engine.seed, full=full, draws=self.draws())
        self.held = {part: self._batches(part, 0, shuffle=False) for part in self.parts if part != "train"}
        self.valid = self.held["valid"]

    def reader(self, earlier: Any) -> Callable[[list[Any]], Pictures]:
        """What reads the examples of files. `earlier`: the model that the run starts from."""
        raise NotImplementedError

    def measured(self, train: Pictures) -> Any:
        """The processor's config, by the training examples."""
        raise NotImplementedError

    def as_before(self, earlier: Any) -> Any:
        """The config of an earlier model's processor, for the size of this model."""
        raise NotImplementedError

    def draws(self) -> Any:
        """The random changes of training examples; None: there are none."""
        raise NotImplementedError

    def _batches(self, part: str, seed: int, **how: Any) -> ImageBatches:
        pictures = self.parts[part]
        labels_N = np.array(numbers(pictures.names, pictures.labels, self.written), np.int64)
        mean_C11, std_C11 = self.processor.scale
        return ImageBatches(pictures.pixels_NCHW, labels_N, mean_C11, std_C11, self.run.engine.batch, seed, **how)

    def shown(self, example: int) -> str:
        return str(self.parts["train"].names[example])

    def guess(self) -> float:
        return entropy(np.bincount(self.batches.labels_N))

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> LabelBatch:
        pixels_BCHW = torch.randn(run.engine.batch, size, *run.model.size, device=device)
        return LabelBatch(ImageInputs(pixels_BCHW), torch.ones(run.engine.batch, dtype=torch.long, device=device))

    @classmethod
    def read(
        cls, inputs: list[str], texts: list[str], lines: Callable[..., list[str]], columns: Sequence[str] = ()
    ) -> list[Any]:
        one = cls.what.removesuffix("s")
        refuse(columns, f"--text-column has no meaning for the task '{cls.name}'")
        refuse(texts or not inputs, f"this model reads {cls.what}: headway predict MODEL {one.upper()} …")
        return inputs

    @classmethod
    def guesses(cls, model: Any, values: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        found: list[Any] = model.classify(values)
        return found


class ImageClassification(GridClassification):
    """Judged by the labels that it gives to held-out pictures."""

    name = "image-classification"
    data = LabelledImages
    takes = ("image",)
    opens = PictureModel
    what = unit = "pictures"

    def reader(self, earlier: Any) -> Callable[[list[Any]], Pictures]:
        data = self.run.data
        how: dict[str, Any] = {"channels": data.channels, "broken": data.broken, "say": self.log.say}
        if earlier is not None:
            how["read"] = self.as_before(earlier).open(self.context.out).read
        return partial(read_pictures, size=self.run.model.size, **how)

    def measured(self, train: Pictures) -> ImageConfig:
        """With mean and standard deviation of each channel over the training pictures."""
        pixels = train.pixels_NCHW / 255
        mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3)).clip(min=1e-3)
        height, width = self.run.model.size
        return ImageConfig(len(mean), height, width, tuple(mean.round(6).tolist()), tuple(std.round(6).tolist()))

    def as_before(self, earlier: Any) -> ImageConfig:
        before, (height, width) = earlier.card.reads, self.run.model.size
        return replace(before, height=height, width=width, edge=round(before.edge * height / before.height))

    def draws(self) -> Draws | None:
        augment = self.run.data.augment
        return None if augment == PLAIN else Draws(augment, *self.run.model.size)

    @classmethod
    def sizes(cls, run: Any, likely: bool = False) -> tuple[int, ...]:
        return (run.data.channels,)

    @classmethod
    def level(cls, data: Any, like: Any) -> Any:
        return data if like is None else replace(data, channels=like.channels, names=like.names)

    @classmethod
    def labelled(
        cls, model: PictureModel, files: Sequence[str], options: dict[str, Any]
    ) -> tuple[Sequence[str], Sequence[str], list[Any]]:
        config = model.processor.config
        pictures = read_pictures(files, config.size, (config.height, config.width), read=model.processor.read)
        return pictures.names, pictures.labels, model.classify_read(pictures.pixels_NCHW)

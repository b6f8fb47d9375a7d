"""What the tasks share that say what is in pictures: files or drawn scenes, how they are normalised, batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from headway.card import Card
from headway.data.annotated import Annotated, AnnotatedBatches, DrawnBatches, Make, hold_out_annotated
from headway.data.annotated_files import read_annotated
from headway.data.scenes import Scenes, drawn
from headway.errors import InputError, refuse
from headway.plain import to_plain
from headway.processors.image import ImageConfig
from headway.tasks.files import DividedFiles, found
from headway.tasks.objective import HeadLoss
from headway.tasks.start import RunContext, earlier_model, first_model
from headway.tasks.task import Task

# Seeds of the scenes that are held out: no run has them.
HELD = {"valid": 2**63, "test": 2**63 + 1}
MEASURED = 512  # scenes that mean and standard deviation are taken of
DRAWN = "scenes"  # in place of a file: the scenes of the test


@dataclass(frozen=True)
class SeenPictures(DividedFiles):
    """Abstract. Pictures with what is in them, by files (`headway.data.annotated_files`); without any, drawn scenes.

    Without `valid`, the share `hold_out` of the training pictures is. channels: 1 for grey, 3 for colour. flip:
    training pictures are mirrored half of the times. zoom: a part of at least this share of each side is cut out of
    them and scaled up (1: none). scenes: how they are drawn, where there are no files. A batch
    counts pictures.
    """

    wanted: ClassVar[str] = "FILE.npz (or a .json of COCO's form)"
    channels: int = 3
    flip: bool = False
    zoom: float = 1.0
    scenes: Scenes = field(default_factory=Scenes)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(self.channels not in (1, 3), f"data.channels must be 1 (grey) or 3 (colour), not {self.channels}")
        refuse(not 0 < self.zoom <= 1, f"data.zoom must be above 0 and at most 1, not {self.zoom}")
        refuse(not self.train and (self.valid or self.test), "data.valid and data.test need data.train: give --data")

    @property
    def without_files(self) -> str:
        return "scenes that are drawn"

    def parts(self) -> dict[str, tuple[str, ...]]:
        return super().parts() if self.train else {}


class Seeing(Task):
    """Abstract. needs: the array of a file that it learns from."""

    takes: ClassVar[tuple[str, ...]] = ("image",)
    unit = "pictures"
    verb = "predict"
    needs: ClassVar[str]

    parts: dict[str, Annotated]
    held: dict[str, AnnotatedBatches]

    def open_parts(self, earlier: Any) -> ImageConfig:
        """Read or draw the pictures of every part; returns how pictures are read."""
        run, size = self.run, self.run.model.size
        config = self.as_before(earlier) if earlier else None
        if run.data.train:
            with self.context.ranks.in_turn():
                self.parts = self._read(config)
        else:
            refuse(size[0] != size[1] or run.data.channels != 3, "scenes are drawn in colour, as high as wide")
            pick = self.pick()
            self.parts = {"train": pick(np.arange(MEASURED))}
            held = np.arange(run.data.scenes.held)
            self.parts |= {part: drawn(run.data.scenes, seed, held, size[0]) for part, seed in HELD.items()}
        for part, pictures in self.parts.items():
            count = run.data.scenes.count if part == "train" and not run.data.train else len(pictures)
            self.log.say(f"{part}: {count:,} pictures" + ("" if run.data.train else ", drawn"))
            self.log.event("data", part=part, pictures=count)
        self.data_names = {part: pictures.fingerprint for part, pictures in self.parts.items()}
        return config or measured(self.parts["train"])

    def pick(self) -> Callable[[Any], Annotated]:
        """What gives the training scenes of some numbers."""
        return partial(drawn, self.run.data.scenes, self.run.engine.seed, size=self.run.model.size[0])

    def _read(self, config: ImageConfig | None) -> dict[str, Annotated]:
        data = self.run.data
        read = config.open(self.context.out).read if config else None
        parts = {
            part: read_annotated(found(names, self.context), data.channels, self.run.model.size, self.needs, read)
            for part, names in data.parts().items()
        }
        if "valid" not in parts:
            parts["train"], parts["valid"] = hold_out_annotated(parts["train"], data.hold_out)
        for part in parts.values():
            refuse(part.kinds != parts["train"].kinds, f"{part.names[0]} has other kinds than the training pictures")
        return parts

    def as_before(self, earlier: Any) -> ImageConfig:
        before, (height, width) = earlier.card.reads, self.run.model.size
        return replace(before, height=height, width=width, edge=0)

    def open_batches(self, scale: Any, make: Make) -> None:
        """Of every part."""
        run = self.run
        full = self.context.device.type == "cuda"
        rows, seed = run.engine.batch, run.engine.seed
        if run.data.train:
            train = self.parts["train"]
            self.batches: Any = AnnotatedBatches(
                train.those, len(train), make, scale, rows, seed, full=full, flip=run.data.flip, zoom=run.data.zoom
            )
        else:
            self.batches = DrawnBatches(self.pick(), run.data.scenes.count, make, scale, rows, seed)
        self.held = {
            part: AnnotatedBatches(pictures.those, len(pictures), make, scale, rows, shuffle=False)
            for part, pictures in self.parts.items()
            if part != "train"
        }
        self.valid = self.held["valid"]

    def shown(self, example: int) -> str:
        names = self.parts["train"].names
        return names[example] if self.run.data.train else f"scene {example} of seed {self.run.engine.seed}"

    @classmethod
    def sizes(cls, run: Any, likely: bool = False) -> tuple[int, ...]:
        return (run.data.channels,)

    @classmethod
    def level(cls, data: Any, like: Any) -> Any:
        return data if like is None else replace(data, channels=like.channels, scenes=like.scenes)

    @classmethod
    def read(
        cls, inputs: list[str], texts: list[str], lines: Callable[..., list[str]], columns: Sequence[str] = ()
    ) -> list[Any]:
        refuse(columns, f"--text-column has no meaning for the task '{cls.name}'")
        refuse(texts or not inputs, "this model reads pictures: headway predict MODEL PICTURE …")
        return inputs

    @classmethod
    def truth(cls, model: Any, files: Sequence[str]) -> Annotated:
        """What is in the pictures of some files, or in drawn scenes, read as this model reads them."""
        config = model.image.config
        if list(files) == [DRAWN]:
            scenes = scenes_of(model.card.run)
            return drawn(scenes, HELD["test"], np.arange(scenes.held), config.height)
        size = (config.height, config.width)
        return read_annotated(files, config.size, size, cls.needs, model.image.read)

    def scores(self, part: str) -> Any:
        """Of the present weights on a part that is not trained on: has `figures()`."""
        raise NotImplementedError

    def final_figures(self) -> dict[str, Any]:
        figures = self.scores("test").figures() if "test" in self.held else {}
        return {f"test {name}": round(value, 4) for name, value in figures.items()}


class SeeingParts(Seeing):
    """Abstract. By an encoder with a head. make: a batch of pictures."""

    make: Make
    roles = ("encodes",)
    objectives = (HeadLoss,)

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        earlier = earlier_model(run)
        config = self.open_parts(earlier)
        self.processor = config.open(context.out)
        self.processors = {"image": self.processor}
        head = replace(run.head, labels=self.labels_of(self.parts["train"].kinds))
        self.model = first_model(run, context, (config.size,), (), head, earlier)
        self.card = Card(run.model.name, run.model, self.name, {"image": config}, head, run=to_plain(run))
        self.open_batches(self.processor.scale, type(self).make)

    @staticmethod
    def labels_of(kinds: tuple[str, ...]) -> tuple[str, ...]:
        """The head's labels."""
        return kinds

    def answers(self, part: str) -> Any:
        """Every batch of a part, and what the present weights make of it, where the model is."""
        self.model.eval()
        device, dtype = self.context.device, self.context.dtype
        for batch in self.held[part].epoch():
            inputs = batch.map(lambda tensor: tensor.to(device)).inputs
            yield batch, self.model.encode(inputs.map(lambda tensor: tensor.to(dtype)))


def scenes_of(run: Any) -> Scenes:
    """How the scenes of the run were drawn that trained a model."""
    try:
        known = run["data"]["scenes"]
        return Scenes(**{name: known[name] for name in ("count", "held", "most", "noise")})
    except (KeyError, TypeError):
        raise InputError(f"this model was not trained on drawn scenes: give a file in place of '{DRAWN}'") from None


def measured(train: Annotated) -> ImageConfig:
    """With mean and standard deviation of each channel over the training pictures."""
    pixels = train.pixels_NCHW
    mean = pixels.mean((0, 2, 3)) / 255
    std = (pixels.std((0, 2, 3)) / 255).clip(min=1e-3)
    height, width = pixels.shape[2:]
    return ImageConfig(len(mean), height, width, tuple(mean.round(6).tolist()), tuple(std.round(6).tolist()))


def sample_pictures(run: Any, channels: int, device: torch.device) -> Any:
    """The pictures of a batch as large as the run's."""
    plain_C11 = torch.ones(channels, 1, 1, device=device)
    there_B = torch.ones(run.engine.batch, dtype=torch.uint8, device=device)
    pixels_BCHW = torch.zeros(len(there_B), channels, *run.model.size, dtype=torch.uint8, device=device)
    return {"mean_C11": plain_C11, "std_C11": plain_C11, "pixels_BCHW": pixels_BCHW, "there_B": there_B}

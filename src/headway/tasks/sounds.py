"""Classification of recordings: a label of each, by an encoder that reads its spectrogram."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

from headway.data.images import Pictures
from headway.data.sounds import QUIET, SoundAugment, SoundDraws, read_sounds
from headway.errors import refuse
from headway.generate.sounds import SoundModel
from headway.processors.sound import SoundConfig
from headway.tasks.files import DividedFiles
from headway.tasks.pictures import GridClassification


@dataclass(frozen=True)
class LabelledSounds(DividedFiles):
    """Recordings with a label each: folders that have a folder for each label, tables with paths, or .npz.

    Without `valid`, the share `hold_out` of the training recordings is. names: what the labels of the data, in their
    order, are called (none: as they are written there). rate: samples a second, to which all are resampled. window,
    hop: samples of a frame, and from one frame to the next. augment: what training spectrograms go through. broken: a
    recording that cannot be read ends the run ("refuse"), or is left out ("skip"). A batch of a run counts recordings.
    """

    name: ClassVar[str] = "labelled-sounds"
    wanted: ClassVar[str] = "FOLDER (a folder for each label)"
    names: tuple[str, ...] = ()
    rate: int = 16000
    window: int = 400
    hop: int = 160
    augment: SoundAugment = QUIET
    broken: Literal["refuse", "skip"] = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rate", "window", "hop"):
            refuse(getattr(self, name) < 1, f"data.{name} must be at least 1, not {getattr(self, name)}")


class SoundClassification(GridClassification):
    """Judged by the labels that it gives to held-out recordings."""

    name = "sound-classification"
    data = LabelledSounds
    takes = ("sound",)
    opens = SoundModel
    what = unit = "recordings"

    def reader(self, earlier: Any) -> Callable[[list[Any]], Pictures]:
        config = self.as_before(earlier) if earlier is not None else self._config()
        read = config.open(self.context.out).read
        return partial(read_sounds, read=read, broken=self.run.data.broken, say=self.log.say)

    def _config(self) -> SoundConfig:
        data, (bands, frames) = self.run.data, self.run.model.size
        return SoundConfig(1, data.rate, bands, frames, data.window, data.hop)

    def measured(self, train: Pictures) -> SoundConfig:
        values = train.pixels_NCHW
        return replace(self._config(), mean=round(float(values.mean()), 6), std=round(float(values.std()) or 1.0, 6))

    def as_before(self, earlier: Any) -> SoundConfig:
        bands, frames = self.run.model.size
        return replace(earlier.card.reads, bands=bands, frames=frames)

    def draws(self) -> SoundDraws | None:
        augment = self.run.data.augment
        return None if augment == QUIET else SoundDraws(augment, *self.run.model.size)

    @classmethod
    def sizes(cls, run: Any, likely: bool = False) -> tuple[int, ...]:
        return (1,)

    @classmethod
    def level(cls, data: Any, like: Any) -> Any:
        how = ("rate", "window", "hop", "names")
        return data if like is None else replace(data, **{name: getattr(like, name) for name in how})

    @classmethod
    def labelled(
        cls, model: SoundModel, files: Sequence[str], options: dict[str, Any]
    ) -> tuple[Sequence[str], Sequence[str], list[Any]]:
        found = read_sounds(files, model.processor.read)
        return found.names, found.labels, model.classify_read(found.pixels_NCHW)

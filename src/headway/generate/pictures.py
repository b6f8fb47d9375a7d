"""Models of pictures and of other grids: a grid in; its labels, or a trace over its patches out.

B batch, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Never

import numpy as np
import torch

from headway.card import Loaded
from headway.data.augment import ImageInputs
from headway.device import sent
from headway.errors import InputError
from headway.generate.encoder import Guess, HeadedModel
from headway.generate.one_or_many import one_or_many
from headway.generate.tracing import Answering, check_one, checked, trace_of
from headway.nn import tap
from headway.nn.tap import chosen
from headway.traces import Trace, Track

ROWS = {"cpu": 32, "cuda": 512}


def is_picture(value: Any) -> bool:
    """Whether it is one picture: a file's path, or an array (height, width) or (height, width, 3)."""
    shape = np.shape(value) if isinstance(value, np.ndarray) else ()
    return isinstance(value, str | Path) or len(shape) == 2 or (len(shape) == 3 and shape[-1] == 3)


class GridModel(HeadedModel, Answering):
    """Abstract. A model of grids of numbers: a picture, or a spectrogram. what: one of them in messages. rises: the
    first row of the grid is its lowest."""

    vocabulary = 0  # it writes no tokens
    what: ClassVar[str]
    rises: ClassVar[bool] = False

    def __init__(self, loaded: Loaded, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        """`limit`: the patches, and the learned tokens before them."""
        super().__init__(loaded, device, dtype)
        [self.processor] = loaded.processors.values()
        self.limit = int(self.model.context)

    @property
    def tokenizers(self) -> Never:  # type: ignore[override]
        raise InputError(f"this model reads {self.what}s: it has no tokens")

    def places(self, text: str) -> int:
        return self.limit

    def classified(self, values: Sequence[Any]) -> list[list[Guess]]:
        """The labels of each, the most probable first."""
        found: list[list[Guess]] = []
        rows = ROWS[self.device.type]
        for start in range(0, len(values), rows):
            found += self.guesses(self._inputs(values[start : start + rows]))
        return found

    @torch.inference_mode()
    def classify_read(self, values_BCHW: Any) -> list[list[Guess]]:
        """`classify` of what `processor.read` gave: it is scaled and cropped already."""
        found: list[list[Guess]] = []
        (mean_C11, std_C11), rows = self.processor.scale, ROWS[self.device.type]
        for start in range(0, len(values_BCHW), rows):
            pixels_BCHW = torch.from_numpy((values_BCHW[start : start + rows] - mean_C11) / std_C11)
            found += self.guesses(ImageInputs(sent(pixels_BCHW, self.device).to(self.dtype)))
        return found

    def shown(self, value: Any) -> Any:
        """What the page draws below the attention: (height, width, channels) of bytes."""
        raise NotImplementedError

    @torch.inference_mode()
    def trace(
        self, value: Any, *, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None,
        tensors: Sequence[str] | str | None = None, top: int = 5,
    ) -> Trace:  # fmt: skip
        """What the model computes while this is read, along its patches; of labels the `top` in `about["labels"]`.
        `layers`, `heads`, `tensors` keep it small (see `headway.trace`)."""
        check_one(value)
        choice = checked(self.model, chosen(layers, heads, tensors))
        inputs = self._inputs([value])
        with tap.record(self.model, choice) as recorder:
            answer = self.model(inputs)
        config = self.model.config
        places = self.processor.track(config.sides, config.before)
        track = Track(
            "patches", "patches", places, specials=tuple(range(config.before)),
            text=value if isinstance(value, str) else None,
        )  # fmt: skip
        about = self.told(answer, top) | {"grid": [*config.sides, config.before]}
        about |= {"rises": True} if self.rises else {}
        trace = trace_of(self.model, recorder, [track, *self.more_tracks()], name=self.name, about=about)
        return replace(
            trace, tensors=trace.tensors | {"pixels": self.shown(value)},
            axes=trace.axes | {"pixels": ("height", "width", "channel")},
        )  # fmt: skip

    def told(self, answer: Any, top: int) -> dict[str, Any]:
        """What a trace says of the answer to one value, beside its tensors."""
        shares_L = answer[0].float().softmax(-1)
        best_K, at_K = shares_L.topk(min(top, len(shares_L)))
        return {
            "labels": [[self.labels[at], round(p, 5)] for at, p in zip(at_K.tolist(), best_K.tolist(), strict=True)]
        }

    def more_tracks(self) -> list[Track]:
        """What else a trace lies along."""
        return []

    def _inputs(self, values: Sequence[Any]) -> ImageInputs:
        pixels_BCHW = torch.from_numpy(np.stack(self.processor.encode(values)))
        return ImageInputs(sent(pixels_BCHW, self.device).to(self.dtype))


class PictureModel(GridModel):
    """`headway.load(folder)` gives one: `model.classify("boot.png")`, or a list of pictures. A picture is a file's path
    or an array of bytes (height, width) or (height, width, 3)."""

    what = "picture"

    @one_or_many(is_picture)
    @torch.inference_mode()
    def classify(self, pictures: Sequence[Any]) -> list[list[Guess]]:
        """The labels of each picture, the most probable first."""
        return self.classified(pictures)

    def shown(self, value: Any) -> Any:
        return self.processor.read(value).transpose(1, 2, 0).copy()

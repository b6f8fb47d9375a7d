"""A captioner: pictures in, what is in them as text out.

B pictures, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headway.card import Loaded
from headway.data.augment import ImageInputs
from headway.device import sent
from headway.generate.offline import generate_all
from headway.generate.one_or_many import one_or_many
from headway.generate.pictures import is_picture
from headway.generate.request import Found, Request
from headway.generate.search import Search
from headway.generate.stepper import stepper_for
from headway.generate.tracing import Answering, check_one, checked, nexts, token_track, trace_of
from headway.nn import tap
from headway.nn.tap import chosen
from headway.plain import from_plain, to_plain
from headway.traces import Trace, Track


class PictureRow(NamedTuple):
    """One picture, for a batch that is made of many."""

    pixels_CHW: NDArray[np.float32]
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """All pictures take the same time to read."""
        return 0

    @staticmethod
    def join(rows: Sequence[PictureRow]) -> ImageInputs:
        return ImageInputs(torch.from_numpy(np.stack([row.pixels_CHW for row in rows])).to(rows[0].dtype))


@dataclass(frozen=True)
class Caption:
    text: str
    score: float
    tokens: list[str]


class CaptionModel(Answering):
    """`headway.load(folder)` gives one: `model.caption("street.png")`, or a list of pictures."""

    def __init__(self, loaded: Loaded, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self.card, self.device, self.dtype = loaded.card, device, dtype
        model: Any = loaded.model.to(device, dtype).eval()
        self.model: Any = model
        self.image, self.tokenizer = loaded.processors["image"], loaded.target_tokenizer
        self.tokenizers = self.tokenizer, self.tokenizer
        self.symbols, self.limit = self.card.symbols, self.card.config.max_length - 1
        self.search = from_plain(Search, self.card.search, "search") if self.card.search else Search()
        self.stepper = stepper_for(model, device)  # kept: what it captures serves later calls

    def places(self, text: str) -> int:
        return int(self.model.places)

    @one_or_many(is_picture)
    def caption(self, pictures: Sequence[Any], **search: Any) -> list[str]:
        """A caption of each picture. Keywords change the search: `beam=1` is greedy, … (see `Search`)."""
        return [found[0].text if found else "" for found in self.caption_n(pictures, **search)]

    @one_or_many(is_picture)
    def caption_n(self, pictures: Sequence[Any], **search: Any) -> list[list[Caption]]:
        """The `best` captions of each picture with their scores."""
        return self.captions_of(self.image.encode(pictures), **search)

    def caption_read(self, pixels_BCHW: NDArray[np.uint8], **search: Any) -> list[str]:
        """The best captions of pictures that `image.read` gave."""
        found = self.captions_of([self.image.normalise(pixels) for pixels in pixels_BCHW], **search)
        return [some[0].text if some else "" for some in found]

    def captions_of(
        self, values: Sequence[NDArray[np.float32]], *, batch: int | None = None,
        progress: Callable[[int], None] | None = None, **search: Any,
    ) -> list[list[Caption]]:  # fmt: skip
        """Of normalised pictures. `batch` bounds the pictures that are searched at a time."""
        settings = from_plain(Search, to_plain(self.search) | search, "search")
        longest, stops = settings.longest(self.limit, self.limit), frozenset({self.symbols.end})
        requests = [
            Request(
                [self.symbols.start], settings, longest, stops, inputs=PictureRow(pixels, self.dtype),
                never=self.symbols.never,
            )
            for pixels in values
        ]  # fmt: skip
        found: list[Found] = generate_all(
            self.model, requests, context=self.limit + 1, device=self.device, batch=batch, progress=progress,
            stepper=self.stepper,
        )  # fmt: skip
        return [[self._caption(one) for one in some.hypotheses] for some in found]

    def _caption(self, found: Any) -> Caption:
        return Caption(self.tokenizer.decode(found.ids), found.score, self.tokenizer.tokens(found.ids))

    @torch.inference_mode()
    def trace(
        self, value: Any, target: str | None = None, *, layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None, tensors: Sequence[str] | str | None = None, top: int = 5, **search: Any,
    ) -> Trace:  # fmt: skip
        """What the model computes while it describes this picture, along its places and its caption, or a `target` of
        your own. `layers`, `heads`, `tensors` keep it small (see `headway.trace`)."""
        check_one(value)
        choice = checked(self.model, chosen(layers, heads, tensors))
        text = self.caption(value, **search) if target is None else target
        ids, symbols, config = self.tokenizer.encode(text), self.symbols, self.model.config
        pixels_BCHW = sent(torch.from_numpy(np.stack(self.image.encode([value]))), self.device).to(self.dtype)
        read = [symbols.start, *ids]
        with tap.record(self.model, choice) as recorder:
            state = self.model.start(ImageInputs(pixels_BCHW), 1, self.device)
            logits_RTV = self.model.logits(torch.tensor([read], device=self.device), state)[0]
        tracks = [
            Track("source", "patches", self.image.track(config.sides, config.before)),
            token_track("target", self.tokenizer, read, [True] + [False] * len(ids), text),
        ]
        about, more = nexts(logits_RTV[0], self.tokenizer, [*ids, symbols.end], top)
        about |= {"grid": [*config.sides, config.before], "caption": text}
        trace = trace_of(self.model, recorder, tracks, name=self.name, about=about, more=more)
        return replace(
            trace, tensors=trace.tensors | {"pixels": self.image.read(value).transpose(1, 2, 0).copy()},
            axes=trace.axes | {"pixels": ("height", "width", "channel")},
        )  # fmt: skip

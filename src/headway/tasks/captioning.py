"""Captioning: what is in a picture, as text, by an encoder of pictures and a decoder of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import torch

from headway.batch import sampled
from headway.card import Card, Loaded
from headway.data.captioned import CaptionBatch, caption_batch
from headway.evaluate.captions import CaptionScores
from headway.generate.captioner import CaptionModel
from headway.generate.drawing import canvas, with_caption
from headway.plain import to_plain
from headway.processors.text import TextConfig, TextProcessor
from headway.tasks.files import vocabularies
from headway.tasks.labelling import reported
from headway.tasks.objective import CrossEntropy
from headway.tasks.seeing import Seeing, SeenPictures, sample_pictures
from headway.tasks.start import RunContext, earlier_model, first_model
from headway.tasks.task import Figure, Prediction, Report, random_ids, refuse_unknown, with_perplexity
from headway.tasks.translation import SEARCH, search_options
from headway.text.tokenizer import TextOptions, Tokenizer


@dataclass(frozen=True)
class CaptionedPictures(SeenPictures):
    """Pictures with captions: .npz files with `pictures` (N, H, W, 3) of bytes and `captions` (N) or (N, K), texts;
    without files, drawn scenes. text: for a vocabulary of its own, where the run starts from nothing. judge: the figure
    by which the best weights are chosen."""

    name: ClassVar[str] = "captioned-pictures"
    text: TextOptions = field(default_factory=lambda: TextOptions("word", lowercase=True, min_count=1, joint=True))
    judge: Literal["cider", "bleu", "exact"] = "cider"


class Captioning(Seeing):
    """Judged by the captions that the run's own search finds."""

    name = "captioning"
    data = CaptionedPictures
    objectives = (CrossEntropy,)
    roles = ("steps",)
    takes = ("image", "text")
    headline = ("cider", True)
    opens = CaptionModel
    needs = "captions"
    shown_losses = with_perplexity

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        earlier = earlier_model(run)
        image = self.open_parts(earlier)
        with context.ranks.in_turn():
            self.tokenizer = earlier.target_tokenizer if earlier else vocabularies(context, self.learned)[0]
        before = earlier.card.writes if earlier else None
        text = before or TextConfig(len(self.tokenizer), run.data.text)
        configs: dict[str, Any] = {"image": image, "text": text}
        self.processors = {"image": image.open(context.out), "text": TextProcessor(text, self.tokenizer)}
        self.model = first_model(run, context, (image.size, text.size), (), None, earlier)
        search = to_plain(run.search)
        self.card = Card(run.model.name, run.model, self.name, configs, search=search, run=to_plain(run))
        self.captioner = CaptionModel(
            Loaded(self.model, self.card, self.processors), context.device, context.dtype
        )  # fmt: skip
        symbols = text.symbols
        self.open_batches(
            self.processors["image"].scale,
            partial(caption_batch, self.tokenizer, symbols.start, symbols.end, run.model.max_length, run.engine.seed),
        )
        self.data_names["vocabulary"] = self.tokenizer.fingerprint

    def learned(self) -> list[Tokenizer]:
        texts = (text for some in self.parts["train"].captions for text in some)
        return [Tokenizer.train(texts, self.run.data.text)]

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        name, count = self.run.data.judge, self.run.validation.sentences
        return name, Figure(self.scores("valid", count).figures()[name], True, 4)

    def scores(self, part: str, count: int = 0) -> CaptionScores:
        """Of the present weights on a part that is not trained on, or on the first pictures of it."""
        pictures, self.captioner.model = self.parts[part], self.model.eval()
        at = list(sampled(range(min(count or len(pictures), len(pictures))), self.share))
        found = self.captioner.caption_read(pictures.pixels_NCHW[at])
        return CaptionScores.of(found, [pictures.captions[i] for i in at])

    def example(self) -> str:
        picture = self.parts["valid"].those([0])
        self.captioner.model = self.model.eval()
        return f"{picture.captions[0][0]} → {self.captioner.caption_read(picture.pixels_NCHW)[0]}"

    @classmethod
    def headline_of(cls, run: Any) -> tuple[str, bool]:
        return run.data.judge, True

    @classmethod
    def sizes(cls, run: Any, likely: bool = False) -> tuple[int, ...]:
        return run.data.channels, run.data.text.size

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> CaptionBatch:
        ids_BT = random_ids(run, run.data.text.size, device, 1)[:, :1].expand(-1, 16).contiguous()
        return CaptionBatch(**sample_pictures(run, run.data.channels, device), ids_BT=ids_BT, labels_BT=ids_BT)

    @classmethod
    def answer(cls, model: CaptionModel, values: Sequence[Any], options: dict[str, Any]) -> Iterator[Prediction]:
        refuse_unknown(options, ("beam_size", "draw"), "a model that describes pictures")
        search = search_options(options)
        for value in values:
            text = model.caption(value, **search)
            drawn = with_caption(canvas(value), text) if "draw" in options else None
            yield Prediction(text, {"picture": value, "caption": text}, drawn)

    @classmethod
    def evaluate(cls, model: CaptionModel, files: Sequence[str], options: dict[str, Any]) -> Report:
        refuse_unknown(options, (*SEARCH, "keep"), "a model that describes pictures")
        truth = cls.truth(model, files)
        found = model.caption_read(truth.pixels_NCHW, **search_options(options))
        if "keep" in options:
            options["keep"](found)
        return reported(CaptionScores.of(found, truth.captions), len(truth), "pictures")

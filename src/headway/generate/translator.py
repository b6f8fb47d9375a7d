"""A translator: text in, text out, with scores and with the attention behind each word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import torch

from headway.device import choose
from headway.errors import InputError
from headway.folder import Card, Loaded, read_model
from headway.generate.attention import Attention
from headway.generate.offline import search_all
from headway.generate.search import Hypothesis, Search
from headway.generate.stepper import stepper_for
from headway.models import FAMILIES
from headway.models.protocols import Seq2Seq
from headway.nn import tap
from headway.plain import from_plain, to_plain
from headway.text.codec import Codec


@dataclass(frozen=True)
class Translation:
    text: str
    score: float
    pieces: list[str]
    piece_scores: list[float]
    attention: Attention | None = None


class TextTranslator:
    """Abstract. Text in, text out; what searches between them is another's."""

    def __init__(self, card: Card, source_tokenizer: Codec, target_tokenizer: Codec) -> None:
        self.card, self.symbols = card, card.symbols
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        self.search = from_plain(Search, card.search, "search") if card.search else Search()

    def searched(
        self, sources: list[list[int]], settings: Search, batch: int | None, progress: Callable[[int], None] | None
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each source, with all that stands around it."""
        raise NotImplementedError

    def attention(self, source: list[int], target: list[int]) -> Attention:
        """What a hypothesis looked at."""
        raise NotImplementedError

    @property
    def limit(self) -> int:
        """The most pieces of a sentence, its end not counted."""
        return int(self.card.config.max_length) - 1

    def translate(self, texts: Sequence[str], **search: Any) -> list[str]:
        """The best translation of each text, in order; an empty text gives an empty one.

        Keywords change the search: `beam=1` is greedy, `length_penalty=0.6`, … (see `Search`).
        """
        return [found[0].text if found else "" for found in self.translate_n(texts, **search)]

    def translate_n(
        self,
        texts: Sequence[str],
        *,
        attention: bool = False,
        batch: int | None = None,
        progress: Callable[[int], None] | None = None,
        **search: Any,
    ) -> list[list[Translation]]:
        """The `best` translations of each text with their scores and, if asked for, their attention.

        `batch` bounds the texts in flight; `progress` is called with the number of texts done so far.
        """
        if isinstance(texts, str):
            raise InputError("translate takes a list of texts, not one text: write [text]")
        settings = from_plain(Search, to_plain(self.search) | search, "search")
        ids = self.encode(texts)
        self._check_lengths(ids)
        busy = [i for i, piece_ids in enumerate(ids) if piece_ids]
        found = self.searched([self.framed(ids[i]) for i in busy], settings, batch, progress)
        answers: list[list[Translation]] = [[] for _ in texts]
        for i, hypotheses in zip(busy, found, strict=True):
            answers[i] = [self._translation(ids[i], h, attention) for h in hypotheses]
        return answers

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The source pieces of each text, its end not among them; a run of white space counts as one space, where a
        tokenizer from elsewhere has no view of its own on that."""
        if not self.card.foreign_text:
            texts = [" ".join(text.split()) for text in texts]
        return self.source_tokenizer.encode_batch(texts)

    def framed(self, source: list[int]) -> list[int]:
        return [*self.source_tokenizer.opening, *source, *self.source_tokenizer.closing]

    def _check_lengths(self, ids: list[list[int]]) -> None:
        for number, piece_ids in enumerate(ids, 1):
            if len(piece_ids) > self.limit:
                raise InputError(
                    f"sentence {number} has {len(piece_ids)} pieces, this model takes at most {self.limit}: split it"
                )

    def _translation(self, source: list[int], found: Hypothesis, attention: bool) -> Translation:
        return Translation(
            self.target_tokenizer.decode(found.ids),
            found.score,
            self.target_tokenizer.pieces([*found.ids, self.symbols.end]),
            found.token_scores,
            self.attention(source, found.ids) if attention else None,
        )


@final
class Translator(TextTranslator):
    """`headway.load(folder)` gives one: `translator.translate(["He drives the car"])`."""

    def __init__(self, loaded: Loaded, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(loaded.card, loaded.source_tokenizer, loaded.target_tokenizer)
        self.model: Any = loaded.model.to(device, dtype).eval()
        self.device = device
        self.stepper = stepper_for(cast(Seq2Seq, self.model), device)  # kept: what it captures serves later calls

    @torch.inference_mode()
    def searched(
        self, sources: list[list[int]], settings: Search, batch: int | None, progress: Callable[[int], None] | None
    ) -> list[list[Hypothesis]]:
        return search_all(
            self.model, sources, settings, limit=self.limit, device=self.device, symbols=self.symbols,
            stepper=self.stepper, batch=batch, progress=progress,
        )  # fmt: skip

    @torch.inference_mode()
    def attention(self, source: list[int], target: list[int]) -> Attention:
        """One teacher-forced pass over a hypothesis with the taps open."""
        with tap.record(self.model) as recorder:
            state = self.model.encode(torch.tensor([self.framed(source)], device=self.device))
            self.model.hidden(torch.tensor([[self.symbols.start, *target]], device=self.device), state)
        layers = [
            tensor[0].float().cpu().numpy()
            for name, tensor in recorder.tensors.items()
            if name.startswith("decoder.") and name.endswith(".cross.weights")
        ]
        source_words, source_owner = self.source_tokenizer.words(source)
        target_words, target_owner = self.target_tokenizer.words(target)
        before, behind = ([-1] * len(ids) for ids in (self.source_tokenizer.opening, self.source_tokenizer.closing))
        owners = [*before, *source_owner, *behind], [*target_owner, -1]
        return Attention(np.stack(layers), source_words, target_words, *owners)


def load(folder: str | Path, device: str = "auto", dtype: str = "auto") -> Translator:
    """The model in a folder (or in a run's folder), ready for use."""
    place, precision = choose(device, dtype)
    found = read_model(folder, place, precision)
    if len(found.card.vocabularies) != 2:
        raise InputError(f"{folder} is no translator ({found.card.family}): {FAMILIES[found.card.family].use}")
    return Translator(found, place, precision)

"""How well a language model predicts a text: perplexity by token and by word, bits by character and by byte.

    perplexity = exp(−1/N Σ_t log p(x_t | x_<t)),    bits by character = −Σ_t log₂ p(x_t | x_<t) / characters

By token, models that share a vocabulary can be compared; by word, character or byte, all models can: the sum is that of
the text, whatever its tokens are. A token is predicted from those before it in its window; with a stride smaller than
the window all but the first few have at least (window − stride) of them. A model that reads any number of tokens needs
no windows: it reads the text from front to back, and each token is predicted from all before it.

B rows, T length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.batch import IGNORED, TokenBatch, sampled
from headway.data.token_store import TokenStore
from headway.data.windows import evaluation_windows
from headway.errors import refuse
from headway.models.protocols import Scores
from headway.text.tokenizer import PAD

TOKENS_AT_ONCE = 1 << 14
LARGEST = 700.0  # exp of more is no float


@dataclass(frozen=True)
class Perplexity:
    """−log p of a text, in nats, and what it is divided by.

    tokens: ids that were predicted, with each document's END where the text is a store.
    unknown: how many of them are UNKNOWN: where there are any, the text itself was not predicted.
    window, stride: the most tokens that the model saw, and the step from one window to the next; 0: all of them.
    """

    nll: float
    tokens: int
    words: int
    characters: int
    bytes: int
    unknown: int
    window: int
    stride: int

    @property
    def per_token(self) -> float:
        """Nats."""
        return self.nll / self.tokens

    @property
    def perplexity(self) -> float:
        return _exp(self.nll / self.tokens)

    @property
    def word_perplexity(self) -> float:
        """By word of the original text, split at white space."""
        return _exp(self.nll / self.words) if self.words else math.nan

    @property
    def bits_per_character(self) -> float:
        return self.nll / math.log(2) / self.characters

    @property
    def bits_per_byte(self) -> float:
        """Of the text in UTF-8."""
        return self.nll / math.log(2) / self.bytes

    def values(self) -> dict[str, float | int]:
        """By name, for a log or a table."""
        return {
            "nll per token": self.per_token, "perplexity": self.perplexity, "word perplexity": self.word_perplexity,
            "bits per character": self.bits_per_character, "bits per byte": self.bits_per_byte,
            "tokens": self.tokens, "words": self.words, "characters": self.characters, "bytes": self.bytes,
            "unknown": self.unknown, "window": self.window, "stride": self.stride,
        }  # fmt: skip


def token_logp(model: Scores, ids_BT: Tensor, segments_BT: Tensor | None = None) -> Tensor:
    """`model.score` without dropout and gradients, on the model's device; its mode stays as it was."""
    device = _device(model)
    with judging(model):
        return model.score(ids_BT.to(device), None if segments_BT is None else segments_BT.to(device))


@contextmanager
def judging(model: Any) -> Iterator[None]:
    """Without dropout and gradients; the model's mode stays as it was."""
    training = getattr(model, "training", False)
    try:
        if training:
            model.eval()
        with torch.no_grad():
            yield
    finally:
        if training:
            model.train()


def score_store(
    model: Any, store: TokenStore, window: int | None, stride: int | None = None, segments: bool = False,
    streams: int = 1, share: float = 1.0,
) -> Perplexity:  # fmt: skip
    """Every token of a store of documents, END too: the end of a text has to be predicted as well.

    Without a window the text is read from front to back, or cut into as many `streams` that are read side by side
    (quicker, and each begins without a past). Of a `share` of the tokens only, the sum for all is estimated.
    """
    amount = store.amount
    if window is None:
        refuse(stride is not None, "a stride is for models that see a window of the text: this one reads all of it")
        tokens = math.ceil(share * store.tokens)
        nll = _read_through(model, store, streams, tokens)
    else:
        nll, tokens = 0.0, 0
        at_once = min(TOKENS_AT_ONCE, math.ceil(share * store.tokens))
        batches = evaluation_windows(store, window, stride, max(1, at_once // window), segments)
        for batch in sampled(batches, share):
            nll += float(_nll(model, batch))
            tokens += batch.tokens
    if share < 1:
        nll, tokens = nll * store.tokens / tokens, store.tokens
    return Perplexity(
        nll, tokens, amount.words, amount.characters, amount.bytes, amount.unknown, window or 0, stride or window or 0
    )


def _read_through(model: Any, corpus: TokenStore, streams: int, total: int) -> float:
    """−log p of each of the first `total` tokens from all before it in its stream, the first from an END."""
    device = _device(model)
    length = -(-total // streams)
    starts = range(0, total, length)
    width = max(1, TOKENS_AT_ONCE // len(starts))
    state, nll = model.start(None, len(starts), device), 0.0
    last_B1 = np.full((len(starts), 1), corpus.end)
    with judging(model):
        for at in range(0, length, width):
            known_BT = np.add.outer(starts, np.arange(at, min(at + width, length))) < total
            ids_BT = np.full(known_BT.shape, PAD)
            for row, count in enumerate(known_BT.sum(1)):
                ids_BT[row, :count] = corpus.windows([starts[row] + at], count)[0]
            read_BT = torch.from_numpy(np.concatenate([last_B1, ids_BT], 1)).to(device)
            logp_BT, state = model.scored(read_BT, state)
            unknown_BT = torch.from_numpy(~known_BT).to(device)
            nll -= float(logp_BT[:, 1:].double().masked_fill(unknown_BT, 0.0).sum())
            last_B1 = ids_BT[:, -1:]
    return nll


def _nll(model: Scores, batch: TokenBatch) -> Tensor:
    """−log p of the labels of a batch, summed in float64."""
    # The row that is scored is the window: its last token is predicted, but not read.
    ids_BT, labels_BT, segments_BT = batch.ids_BT, batch.labels_BT, batch.segments_BT
    window_BT = torch.cat([ids_BT, labels_BT[:, -1:].clamp(min=0)], 1)
    if segments_BT is not None:
        segments_BT = torch.cat([segments_BT, segments_BT[:, -1:]], 1)
    logp_BT = token_logp(model, window_BT, segments_BT)[:, 1:]
    return -logp_BT.double().masked_fill((labels_BT == IGNORED).to(logp_BT.device), 0.0).sum()


def _device(model: Any) -> torch.device:
    tensors: Iterable[Tensor] = model.parameters() if isinstance(model, torch.nn.Module) else ()
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def _exp(value: float) -> float:
    return math.exp(value) if value <= LARGEST else math.inf

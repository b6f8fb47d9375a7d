"""How well a language model foretells a text: perplexity by token and by word, bits by character and by byte.

    perplexity = exp(−1/N Σ_t log p(x_t | x_<t)),    bits by character = −Σ_t log₂ p(x_t | x_<t) / characters

By token, models can be compared that share a vocabulary; by word, character or byte, all of them can: the sum is the
text's, whatever its pieces are. A token is foretold from those before it in its window; with a stride smaller than the
window all but the first few have at least (window − stride) of them.

B rows, T length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.data.documents import cut_up
from headway.data.token_store import Amount, TokenStore
from headway.data.windows import TokenArray, Tokens, WindowBatch, evaluation_windows
from headway.errors import InputError
from headway.models.protocols import Scores
from headway.text.tokenizer import PAD, UNKNOWN, Tokenizer

TOKENS_AT_ONCE = 1 << 14
LARGEST = 700.0  # exp of more is no float


@dataclass(frozen=True)
class Perplexity:
    """−log p of a text, in nats, and what it is divided by.

    tokens: ids that were foretold, each document's END among them where the text is a store.
    unknown: those that are UNKNOWN: where there are any, the text itself has not been foretold.
    window, stride: tokens that the model saw at most, and by how many a window was moved on.
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
        """By word of the original text, as white space parts them."""
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
    training = getattr(model, "training", False)
    try:
        if training:
            model.eval()  # type: ignore[attr-defined]
        with torch.no_grad():
            return model.score(ids_BT.to(device), None if segments_BT is None else segments_BT.to(device))
    finally:
        if training:
            model.train()  # type: ignore[attr-defined]


def score_store(
    model: Scores, store: TokenStore, window: int, stride: int | None = None, segments: bool = False
) -> Perplexity:
    """Every token of a store of documents, END too: where a text ends has to be foretold as well."""
    return _perplexity(model, store, store.amount, window, stride, segments)


def score_text(
    model: Scores, tokenizer: Tokenizer, text: str | Sequence[int], window: int, stride: int | None = None
) -> Perplexity:
    """One text, or its ids: every token of it, the first from an END alone, as at the start of a document."""
    if isinstance(text, str):
        ids = encode_document(tokenizer, text)
    else:
        ids, text = list(text), tokenizer.decode(text)
    if not ids:
        raise InputError("there is no text to score: it is empty")
    amount = Amount(unknown=ids.count(UNKNOWN))
    inside = False
    for piece in cut_up(iter([text])):
        inside = amount.add(piece, inside)
    return _perplexity(model, TokenArray(np.asarray(ids)), amount, window, stride, False)


def encode_document(tokenizer: Tokenizer, text: str) -> list[int]:
    """Its ids as a store has them, without END."""
    return [i for ids in tokenizer.encode_batch([piece.text for piece in cut_up(iter([text]))]) for i in ids]


def _perplexity(
    model: Scores, corpus: Tokens, amount: Amount, window: int, stride: int | None, segments: bool
) -> Perplexity:
    rows = max(1, TOKENS_AT_ONCE // window)
    nll, tokens = 0.0, 0
    for batch in evaluation_windows(corpus, window, stride, rows, segments):
        nll += float(_nll(model, batch))
        tokens += batch.tokens
    return Perplexity(
        nll, tokens, amount.words, amount.characters, amount.bytes, amount.unknown, window, stride or window
    )


def _nll(model: Scores, batch: WindowBatch) -> Tensor:
    """−log p of the labels of a batch, summed in float64."""
    # The row that is scored is the window: its last token is foretold, but not read.
    ids_BT, labels_BT, segments_BT = batch.ids_BT, batch.labels_BT, batch.segments_BT
    window_BT = torch.cat([ids_BT, labels_BT[:, -1:]], 1)
    if segments_BT is not None:
        segments_BT = torch.cat([segments_BT, segments_BT[:, -1:]], 1)
    logp_BT = token_logp(model, window_BT, segments_BT)[:, 1:]
    return -logp_BT.double().masked_fill((labels_BT == PAD).to(logp_BT.device), 0.0).sum()


def _device(model: Any) -> torch.device:
    tensors: Iterable[Tensor] = model.parameters() if isinstance(model, torch.nn.Module) else ()
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def _exp(value: float) -> float:
    return math.exp(min(value, LARGEST))

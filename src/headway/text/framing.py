"""Texts and pairs of texts as an encoder reads them: with what stands before, between and behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headway.errors import TooLong
from headway.text.tokenizer import END, START, Tokenizer, refuse_what_is_no_text

Text = str | tuple[str, str]


@dataclass(frozen=True)
class Framed:
    """`types`: 0 for the first text of a pair, 1 for the second; None where all are 0. `spans`: where each token stands
    in the text, if that was asked for, (0, 0) for what the frame has put in; `words`: the number of its word, or None.
    """

    ids: list[int]
    types: list[int] | None = None
    spans: tuple[tuple[int, int], ...] = ()
    words: tuple[int | None, ...] = ()


def frame(
    tokenizer: Any, texts: Sequence[Text], longest: int, *, truncate: bool = False, spans: bool = False
) -> list[Framed]:
    """Each text in the tokenizer's own template; in headway's own it stands between START and END.

    One that has more than `longest` tokens is an error, or is cut, its frame not.
    """
    own = isinstance(tokenizer, Tokenizer)
    pairs = [text if isinstance(text, tuple) else (text,) for text in texts]
    refuse_what_is_no_text([part for pair in pairs for part in pair])
    if not (spans or own):
        encodings = tokenizer.inner.encode_batch_fast(list(texts), add_special_tokens=True)
        found = [_framed(encoding, spans=False) for encoding in encodings]
    else:
        found = [_one(tokenizer, pair, None, spans) for pair in pairs]
    for number, framed in enumerate(found):
        if len(framed.ids) > longest:
            if not truncate:
                raise TooLong(
                    f"text {number + 1} has {len(framed.ids)} tokens, this model takes at most {longest}: shorten it"
                )
            found[number] = _one(tokenizer, pairs[number], longest, spans)
    return found


def _one(tokenizer: Any, pair: tuple[str, ...], longest: int | None, spans: bool) -> Framed:
    inner = tokenizer.inner
    own = isinstance(tokenizer, Tokenizer)
    parts = [inner.encode(text, add_special_tokens=False) for text in pair]
    if longest is not None:
        around = 1 + len(parts) if own else inner.num_special_tokens_to_add(len(parts) == 2)
        for part, length in zip(parts, _cut([len(part.ids) for part in parts], longest - around), strict=True):
            part.truncate(length)
    return _in_our_frame(parts) if own else _framed(inner.post_process(*parts, add_special_tokens=True), spans)


def _cut(lengths: list[int], room: int) -> list[int]:
    """Taken off the longer one until both fit."""
    if len(lengths) == 1:
        return [min(lengths[0], max(room, 0))]
    short, long = min(lengths), max(lengths)
    long = min(long, max(room - short, -(-room // 2)))
    short = min(short, room - long)
    return [long, short] if lengths[0] >= lengths[1] else [short, long]


def _framed(encoding: Any, spans: bool) -> Framed:
    types = encoding.type_ids
    places = tuple(encoding.offsets) if spans else ()
    words = tuple(encoding.word_ids) if spans else ()
    return Framed(encoding.ids, types if any(types) else None, places, words)


def _in_our_frame(parts: list[Any]) -> Framed:
    """START, the text, END, and for a pair its second text with an END of its own."""
    ids, types, spans, words = [START], [0], [(0, 0)], [None]
    for number, part in enumerate(parts):
        ids += [*part.ids, END]
        types += [number] * (len(part.ids) + 1)
        spans += [*part.offsets, (0, 0)]
        words += [*part.word_ids, None]
    return Framed(ids, types if len(parts) > 1 else None, tuple(spans), tuple(words))

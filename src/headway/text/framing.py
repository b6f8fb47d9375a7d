"""Texts and pairs of texts as an encoder reads them: with special tokens before, between and after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.errors import TooLong, refuse
from headway.text.codec import refuse_what_is_no_text

Text = str | tuple[str, str]


@dataclass(frozen=True)
class Framed:
    """A text with its special tokens.

    types: 0 for the first text of a pair, 1 for the second; None where all are 0. spans: the characters of each token
    in its text, (0, 0) for a special token; words: the index of its word, or None; texts: the text of a pair that it is
    of, 0 or 1, or None. letters: see `spelled`. These only where they are wanted. cut: whether it was longer than what
    was allowed.
    """

    ids: list[int]
    types: list[int] | None = None
    spans: tuple[tuple[int, int], ...] = ()
    words: tuple[int | None, ...] = ()
    texts: tuple[int | None, ...] = ()
    letters: npt.NDArray[np.uint8] | None = None
    cut: bool = False

    @property
    def starts(self) -> list[bool]:
        """Whether each token is the first of a word."""
        return [word is not None and word != before for before, word in pairwise((None, *self.words))]


def frame(
    tokenizer: Any, texts: Sequence[Text], longest: int, *, truncate: bool = False, spans: bool = False,
    letters: int = 0,
) -> list[Framed]:  # fmt: skip
    """Each text in the tokenizer's template (`Codec.template`).

    A text of more than `longest` tokens is an error, or with `truncate` is cut; its special tokens are kept. letters:
    the most of each token that are wanted.
    """
    pairs = [text if isinstance(text, tuple) else (text,) for text in texts]
    refuse_what_is_no_text([part for pair in pairs for part in pair])
    inner = tokenizer.template
    encode = inner.encode_batch if spans or letters else inner.encode_batch_fast
    encodings = encode(list(texts), add_special_tokens=True)
    cut: set[int] = set()
    for number, encoding in enumerate(encodings):
        if len(encoding.ids) > longest:
            if not truncate:
                raise TooLong(
                    f"text {number + 1} has {len(encoding.ids)} tokens, this model takes at most {longest}: shorten it"
                )
            encodings[number] = _truncated(inner, pairs[number], longest)
            cut.add(number)
    framed = [_framed(encoding, spans or letters > 0, number in cut) for number, encoding in enumerate(encodings)]
    if not letters:
        return framed
    return [replace(one, letters=spelled(pair, one, letters)) for one, pair in zip(framed, pairs, strict=True)]


def spelled(pair: Sequence[str], framed: Framed, most: int) -> npt.NDArray[np.uint8]:
    """(T, C): the first `most` bytes in UTF-8 of what each token stands for in its text, each plus 1, then 0; of a
    special token only 0. So there is no letter that a model does not know, as in Peters et al. (2018)."""
    found = np.zeros((len(framed.ids), most), np.uint8)
    for row, (start, end), text in zip(found, framed.spans, framed.texts, strict=True):
        if text is not None:
            written = pair[text][start:end].strip().encode()[:most]
            row[: len(written)] = np.frombuffer(written, np.uint8) + 1
    return found


def _truncated(inner: Any, pair: tuple[str, ...], longest: int) -> Any:
    parts = [inner.encode(text, add_special_tokens=False) for text in pair]
    special = inner.num_special_tokens_to_add(len(parts) == 2)
    room, least = longest - special, special + len(parts)
    full = f"model.max_length={longest} leaves no room for text beside {special} special tokens"
    refuse(longest < least, f"{full}: set it to at least {least}")
    for part, length in zip(parts, _lengths([len(part.ids) for part in parts], room), strict=True):
        part.truncate(length)
    return inner.post_process(*parts, add_special_tokens=True)


def _lengths(lengths: list[int], room: int) -> list[int]:
    """The longer text loses tokens until both fit."""
    if len(lengths) == 1:
        return [min(lengths[0], max(room, 0))]
    short, long = min(lengths), max(lengths)
    long = min(long, max(room - short, -(-room // 2)))
    short = min(short, room - long)
    return [long, short] if lengths[0] >= lengths[1] else [short, long]


def _framed(encoding: Any, spans: bool, cut: bool) -> Framed:
    types = encoding.type_ids if any(encoding.type_ids) else None
    if not spans:
        return Framed(encoding.ids, types, cut=cut)
    return Framed(
        encoding.ids, types, tuple(encoding.offsets), tuple(encoding.word_ids), tuple(encoding.sequence_ids),
        cut=cut,
    )  # fmt: skip

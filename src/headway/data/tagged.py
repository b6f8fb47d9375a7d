"""Texts with a tag for each word: aligned with tokens, and batched by length. `tagged_files.py` reads them.

B rows, T length.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from torch import Tensor

from headway.batch import IGNORED, Batch, TextInputs, column
from headway.data.batches import Ints
from headway.data.columns import ENOUGH
from headway.data.labelled import FramedStore, padded
from headway.data.split import hold_out_by_hash
from headway.data.tag_schemes import OUTSIDE
from headway.errors import InputError
from headway.text.framing import Framed

Span = tuple[int, int]
BESIDE = b"\x1f"  # between the letters of a word and what else is known of it


class Sentence(NamedTuple):
    """beside: what is known of each word, such as its part of speech; none where the model does not read it."""

    words: tuple[str, ...]
    labels: tuple[str, ...]
    beside: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def spans(self) -> list[Span]:
        """The characters of each word in the text."""
        ends = accumulate(len(word) + 1 for word in self.words)
        return [(end - 1 - len(word), end - 1) for end, word in zip(ends, self.words, strict=True)]


def labels_of(sentences: Sequence[Sentence]) -> tuple[str, ...]:
    """Every label, in order; that of words in no chunk is the first."""
    found = {label for sentence in sentences for label in sentence.labels}
    return tuple(sorted(found, key=lambda label: (label != OUTSIDE, label)))


def refuse_swapped(sentences: Sequence[Sentence], files: Sequence[object]) -> None:
    """Refuse more different tags than different words, as where the columns are swapped."""
    words, tags = ({one for sentence in sentences for one in sentence[side]} for side in (0, 1))
    if len(tags) <= len(words) or sum(len(sentence.words) for sentence in sentences) < ENOUGH:
        return
    found = f"{len(words):,} different words ({_some(words)}) and {len(tags):,} different tags ({_some(tags)})"
    raise InputError(
        f"{', '.join(map(str, files))}: {found}: they look swapped; --text-column and --label-column say which is which"
    )


def _some(found: Iterable[str]) -> str:
    return ", ".join(sorted(found, key=lambda one: (not one.isalnum(), one))[:4]) + " …"


def hold_out_tagged(sentences: Sequence[Sentence], share: float) -> tuple[list[Sentence], list[Sentence]]:
    """The training sentences and the held-out ones, chosen by a hash of the text."""
    return hold_out_by_hash(sentences, [sentence.text for sentence in sentences], share)


def align(framed: Framed, words: Sequence[Span]) -> Framed:
    """The same tokens with the numbers and spans of these words; the tokenizer's own words may be smaller (U . N .).

    A token belongs to the word that has its last character, since the space before a word may be a part of its token.
    """
    begins = [start for start, _ in words]

    def word_of(span: Span) -> int | None:
        number = bisect_right(begins, span[1] - 1) - 1
        return number if span[1] > span[0] and number >= 0 and span[1] <= words[number][1] else None

    numbers = [None if own is None else word_of(span) for own, span in zip(framed.words, framed.spans, strict=True)]
    spans = tuple((0, 0) if number is None else words[number] for number in numbers)
    return replace(framed, words=tuple(numbers), spans=spans)


def aligned(framed: Framed, sentence: Sentence) -> Framed:
    """`align` with the sentence's words; what is known of each stands behind its letters."""
    found = align(framed, sentence.spans)
    if not sentence.beside or found.letters is None:
        return found
    letters_TC = np.zeros_like(found.letters)
    most = letters_TC.shape[1]
    for row, own, word in zip(letters_TC, found.letters, found.words, strict=True):
        known = np.zeros(0, np.uint8)
        if word is not None:
            known = np.frombuffer(BESIDE + sentence.beside[word].encode()[: most // 2], np.uint8) + np.uint8(1)
        spelled = own[own > 0][: most - len(known)]
        row[: len(spelled) + len(known)] = np.concatenate([spelled, known])
    return replace(found, letters=letters_TC)


@dataclass(frozen=True)
class TaggedBatch(Batch):
    """Framed texts with a label, counted from 0, at the first token of each word; IGNORED at every other place."""

    inputs: TextInputs
    labels_BT: Tensor = column(pad=IGNORED)

    def counted(self) -> dict[str, float]:
        words = int((self.labels_BT != IGNORED).sum())
        return {"loss": words, "nll": words}


class TaggedStore(FramedStore[TaggedBatch]):
    """Sentences, aligned; `number_of` gives the numbers of the labels."""

    def __init__(
        self, sentences: Sequence[Sentence], framed: Sequence[Framed], number_of: dict[str, int], pad: int
    ) -> None:
        super().__init__([aligned(one, sentence) for one, sentence in zip(framed, sentences, strict=True)], pad)
        self.sentences = sentences
        self.labels = [
            [
                number_of[sentence.labels[word]] if first and word is not None else IGNORED
                for first, word in zip(one.starts, one.words, strict=True)
            ]
            for one, sentence in zip(self.framed, sentences, strict=True)
        ]

    def collate(self, examples: Ints, lengths: tuple[int, ...]) -> TaggedBatch:
        labels_BT = padded([self.labels[example] for example in examples.tolist()], lengths[0], IGNORED)
        return TaggedBatch(self.inputs(examples, lengths[0]), labels_BT, examples=tuple(examples.tolist()))

    def named(self, example: int, labels: Sequence[int], names: Sequence[str]) -> list[str]:
        """The label of each word from those of its tokens; of a word that was cut off, that of no chunk."""
        one = self.framed[example]
        found = [OUTSIDE] * len(self.sentences[example].words)
        for first, word, label in zip(one.starts, one.words, labels, strict=False):
            if first and word is not None:
                found[word] = names[label]
        return found

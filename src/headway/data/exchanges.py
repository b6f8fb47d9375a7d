"""Conversations as ids: what a model reads, and which of it are answers that it learns to say.

A model reads a conversation as its chat template writes it. Learned are the answers alone, each with the token that
ends it. Short conversations are packed into rows, side by side; none sees another (`TokenBatch.segments_BT`).

B rows, T length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch

from headway.batch import IGNORED, TokenBatch
from headway.data.batches import order_of
from headway.errors import InputError
from headway.text.chat import Chat, Message, rendered
from headway.text.codec import Codec

OPEN = 64  # rows that are being filled at a time


class Exchange(NamedTuple):
    """ids: as they are read. labels: of each id the one that follows, IGNORED where that is not the model's to say."""

    ids: list[int]
    labels: list[int]


def exchanges(tokenizer: Codec, chat: Chat, conversations: Sequence[Any], last: bool = False) -> list[Exchange]:
    """Of each conversation (with `messages` and `place`). A prompt is read as it is when a model is asked, and its
    answer follows: they are encoded apart. last: only the last answer is learned."""
    texts, learned, ends = list[str](), list[bool](), list[int]()
    for one in conversations:
        parts = _parts(chat, one.messages, one.place)
        texts += [text for text, _ in parts]
        ends.append(len(texts))
        learned += [said and (not last or at == len(parts) - 1) for at, (_, said) in enumerate(parts)]
    encoded = tokenizer.encode_batch(texts)
    starts = [0, *ends[:-1]]
    return [_joined(tokenizer, encoded[a:b], learned[a:b]) for a, b in zip(starts, ends, strict=True)]


def _parts(chat: Chat, messages: Sequence[Message], place: str) -> list[tuple[str, bool]]:
    """The text in parts, and whether each is an answer. A template that writes a message in another way once there are
    more behind it (some leave out earlier thoughts) lets only the last answer be learned."""
    found, before = list[tuple[str, bool]](), ""
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = rendered(chat, messages[:at])
        whole = rendered(chat, messages[: at + 1], answering=False)
        if not whole.startswith(prompt):
            raise InputError(f"{place}: the chat template does not write an answer behind its prompt")
        if not prompt.startswith(before):
            found, before = [], ""
        found += [(prompt[len(before) :], False), (whole[len(prompt) :], True)]
        before = whole
    return found


def _joined(tokenizer: Codec, parts: Sequence[list[int]], learned: Sequence[bool]) -> Exchange:
    ids, labels = list[int](), list[int]()
    for some, said in zip(parts, learned, strict=True):
        if said and ids:
            stop = next((at for at, i in enumerate(some) if i in tokenizer.stops), None)
            # The token before an answer predicts its first one; behind its end nothing is the model's.
            labels[-1] = some[0] if some else IGNORED
            kept = some[1:] if stop is None else some[1 : stop + 1]
            # A template without a token for the end: the one that ends every text, which is said and not read.
            end = tokenizer.end if stop is None and some and tokenizer.end is not None else IGNORED
            follow = [*kept, end]
            labels += follow[: len(some)] + [IGNORED] * (len(some) - len(follow))
        else:
            labels += [IGNORED] * len(some)
        ids += some
    return Exchange(ids, labels)


def padded(found: Sequence[Exchange], length: int) -> TokenBatch:
    """A row for each."""
    ids_BT = np.zeros((len(found), length), np.int64)
    labels_BT = np.full((len(found), length), IGNORED, np.int64)
    for row, one in enumerate(found):
        ids_BT[row, : len(one.ids)], labels_BT[row, : len(one.ids)] = one
    return TokenBatch(torch.from_numpy(ids_BT), torch.from_numpy(labels_BT))


@final
class PackedRows:
    """Endless batches of `rows` rows of `length` tokens. What is in a row stays together, the order of the rows is new
    each epoch; the batch of a step is a function of (exchanges, seed, step) alone. packed: several in a row; else one,
    and no segments."""

    def __init__(
        self, found: Sequence[Exchange], rows: int, length: int, seed: int, shuffle: bool = True, packed: bool = True
    ) -> None:
        self.found, self.rows, self.length, self.seed, self.shuffle = found, rows, length, seed, shuffle
        self.packed = packed
        order = order_of(len(found), seed, 0, shuffle).tolist()
        self.filled = fitted([len(found[at].ids) for at in order], length, OPEN if packed else 0)
        self.filled = [[order[at] for at in row] for row in self.filled]
        self.per_epoch = -(-len(self.filled) // rows)

    def batch(self, step: int) -> TokenBatch:
        epoch, at = divmod(step, self.per_epoch)
        order = order_of(len(self.filled), self.seed, 1 + epoch, self.shuffle)
        chosen = order[at * self.rows : (at + 1) * self.rows].tolist()
        return self._collated([self.filled[row] for row in chosen]).pad(self.rows)

    def epoch(self) -> Iterator[TokenBatch]:
        return map(self.batch, range(self.per_epoch))

    def _collated(self, rows: list[list[int]]) -> TokenBatch:
        shape = len(rows), self.length
        ids_BT, segments_BT = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        labels_BT = np.full(shape, IGNORED, np.int64)
        for row, members in enumerate(rows):
            end = 0
            for number, at in enumerate(members):
                start, end = end, end + len(self.found[at].ids)
                ids_BT[row, start:end], labels_BT[row, start:end] = self.found[at]
                segments_BT[row, start:] = number
            segments_BT[row, end:] += 1  # what fills the row up
        segments = torch.from_numpy(segments_BT) if self.packed else None
        numbers = tuple(members[0] for members in rows)
        return TokenBatch(torch.from_numpy(ids_BT), torch.from_numpy(labels_BT), segments, examples=numbers)


def fitted(lengths: Sequence[int], length: int, most: int = OPEN) -> list[list[int]]:
    """Numbers of examples in rows of at most `length`: each where it leaves the least room, of `most` rows that are
    still open (0: a row for each)."""
    rows, room = list[list[int]](), dict[int, int]()  # of the open ones
    for number, size in enumerate(lengths):
        fits = [row for row, left in room.items() if left >= size]
        row = min(fits, key=room.__getitem__, default=len(rows))
        if row == len(rows):
            rows.append([])
            room[row] = length
        rows[row].append(number)
        room[row] -= size
        if len(room) > most:
            del room[min(room, key=room.__getitem__)]
    return rows

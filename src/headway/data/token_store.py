"""Documents as ids on disk, mapped into memory: encoded once, of any size, found again by content.

    folder/<fingerprint>/
        documents.ids.bin, documents.offsets.npy    document by document, END after each (format: `headway.data.mapped`)
        store.json                                  how much text it was made of

B rows, T length.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from headway.data.documents import Chunk, Corpus
from headway.data.mapped import FORMAT, IdsWriter, MappedIds, Progress, Store, in_order
from headway.errors import InputError, refuse
from headway.text.codec import Codec, hashed
from headway.text.tokenizer import END, TextOptions, Tokenizer

CHARACTERS_AT_ONCE = 1 << 18
LEARNED_FROM = 500_000_000  # characters of a corpus that a vocabulary is learned from
LEARNING_CHUNK = 1 << 12  # characters: the library is given a thousand chunks at once, and makes much of each


@dataclass
class Amount:
    """How much text there is: what perplexity by word and bits by character are made of.

    words: as white space parts them. empty: documents without text, which are left out. unknown: ids that are UNKNOWN.
    """

    documents: int = 0
    characters: int = 0
    bytes: int = 0
    words: int = 0
    unknown: int = 0
    empty: int = 0

    def add(self, chunk: Chunk, inside: bool = False) -> bool:
        """Count a chunk of a document; `inside`: the one before ended within a word. Returns whether this one did."""
        text = chunk.text
        self.characters += len(text)
        self.bytes += len(text.encode("utf-8"))
        self.words += len(text.split()) - (inside and not text[:1].isspace())
        self.documents += chunk.last and bool(text)
        self.empty += chunk.last and not text
        return not chunk.last and not text[-1:].isspace()


@final
class TokenStore(Store):
    """Read-only documents of ids, one row: the next document begins behind an END.

    amount: how much text it was made of. documents: their ids, END last.
    """

    names = ("documents",)
    holds = "documents"
    documents: MappedIds

    def __init__(self, folder: str | Path, reused: bool = True):
        super().__init__(folder, reused)
        self.amount = Amount(**self.meta["amount"])
        self.end: int = self.meta.get("end", END)

    @property
    def tokens(self) -> int:
        """All ids, each document's END counted."""
        return len(self.documents.ids)

    def windows(self, starts: Sequence[int], width: int) -> npt.NDArray[np.int64]:
        """The `width` ids from each of these places on."""
        return self.documents.windows(starts, width)

    def counts(self, most: int = 10_000_000) -> npt.NDArray[np.int64]:
        """How often each id is among the first so many."""
        return np.bincount(self.documents.ids[:most])


def windows_of(
    stores: Sequence[TokenStore], numbers: Sequence[int], starts: Sequence[int], width: int
) -> npt.NDArray[np.int64]:
    """The `width` ids from each of these places on, each in the store of this number."""
    found = np.empty((len(starts), width), np.int64)
    for number in sorted(set(numbers)):
        rows = [row for row, of in enumerate(numbers) if of == number]
        found[rows] = stores[number].windows([starts[row] for row in rows], width)
    return found


def prepare_documents(
    corpus: Corpus, tokenizer: Codec, folder: str | Path, *, progress: Progress | None = None
) -> TokenStore:
    """Encode documents into a store below `folder`, or find the one made of the same before.

    progress is called with the number of characters read so far.
    """
    if isinstance(tokenizer, Tokenizer) and tokenizer.kind == "bpe" and not tokenizer.exact:
        raise InputError("this vocabulary is for single sentences: learn one with text.exact=true for documents")
    place = Path(folder) / _fingerprint(corpus, tokenizer)
    return TokenStore.made(place, lambda building: _write(building, corpus, tokenizer, progress))


def train_document_tokenizer(corpus: Corpus, options: TextOptions, *, limit: int = LEARNED_FROM) -> Tokenizer:
    """The vocabulary of a corpus. Of more than `limit` characters every k-th chunk is taken, k the smallest that
    gives at most `limit`; for characters, all."""
    stride = 1
    if options.kind != "char":
        stride = -(-sum(len(chunk.text) for chunk in corpus.chunks()) // limit) or 1
    return Tokenizer.train((chunk.text for chunk in islice(corpus.chunks(LEARNING_CHUNK), 0, None, stride)), options)


def _write(folder: Path, corpus: Corpus, tokenizer: Codec, progress: Progress | None) -> dict[str, Any]:
    """Append batch after batch; memory holds a few. Returns store.json's content."""
    amount, inside, end = Amount(), False, tokenizer.end
    if end is None:
        raise InputError("this model's tokenizer has no token that ends a text: documents cannot be separated")

    def encode(batch: list[Chunk]) -> tuple[list[Chunk], list[list[int]]]:
        return batch, tokenizer.encode_batch([chunk.text for chunk in batch])

    with IdsWriter(folder, "documents", len(tokenizer)) as writer:
        for [(batch, encoded)] in in_order(_batches(corpus.chunks()), [encode]):
            for chunk, ids in zip(batch, encoded, strict=True):
                inside = amount.add(chunk, inside)
                if chunk.last:
                    ids.append(end)
            filled = [(ids, chunk.last) for chunk, ids in zip(batch, encoded, strict=True) if chunk.text]
            written = writer.append([ids for ids, _ in filled], [last for _, last in filled])
            if tokenizer.unknown not in (None, end):  # GPT-2 has one token for both, and no unknown bytes
                amount.unknown += int((written == tokenizer.unknown).sum())
            if progress:
                progress(amount.characters)
        refuse(not amount.documents, f"there is no text: all of {amount.empty} documents are empty")
        documents = writer.close()
    return {"format": FORMAT, "documents": documents, "amount": asdict(amount), "end": end}


def _batches(chunks: Iterator[Chunk]) -> Iterator[list[Chunk]]:
    """Chunks that are encoded together: enough for all threads, few enough for memory."""
    batch: list[Chunk] = []
    size = 0
    for chunk in chunks:
        batch.append(chunk)
        size += len(chunk.text) + 1
        if size >= CHARACTERS_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _fingerprint(corpus: Corpus, tokenizer: Codec) -> str:
    """A hash of all that decides what a store holds."""
    return hashed(json.dumps(["documents", FORMAT, tokenizer.fingerprint, corpus.identity()]))

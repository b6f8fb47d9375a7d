"""Documents as sentences of ids on disk: what a model that reads both sides of a gap is trained on.

folder/<fingerprint>/
    sentences.ids.bin, sentences.offsets.npy    sentence by sentence, the separator behind a document's last
    store.json                                  how much text it was made of
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import tokenizers

from headway.data.batches import Ints
from headway.data.documents import Corpus
from headway.data.mapped import FORMAT, IdsWriter, MappedIds, Progress, Store, in_order
from headway.errors import refuse
from headway.text.codec import Codec, encoded, hashed

AT_ONCE = 4096  # sentences that are encoded together
BLANK = re.compile(r"\n[^\S\n]*\n\s*")
# Behind a mark, its closing quotes and brackets; the marks of other scripts need no space behind them.
MARKS = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])")


@dataclass(frozen=True)
class Cut:
    """How documents are cut into sentences.

    sentences: `marks` ends one behind a full stop, a question or an exclamation mark, and at a blank line; `lines` at
    every line end. documents: `files` makes one of each text file and each line of .jsonl, `blank-lines` another one
    behind each blank line, as BERT's own data has it. longest: tokens; what is longer is cut.
    """

    sentences: Literal["marks", "lines"] = "marks"
    documents: Literal["files", "blank-lines"] = "files"
    longest: int = 125

    def of(self, text: str) -> list[str]:
        """The sentences of some text without a blank line."""
        if self.sentences == "lines":
            found = text.split("\n")
        else:
            ends = [0, *(match.end() for match in MARKS.finditer(text)), len(text)]
            found = [text[start:end] for start, end in zip(ends, ends[1:], strict=False)]
        return [" ".join(sentence.split()) for sentence in found if sentence.strip()]

    def all(self, corpus: Corpus) -> Iterator[tuple[str, bool]]:
        """Each sentence, and whether it is the last of its document."""
        held = ""
        for chunk in corpus.chunks():
            blocks = BLANK.split(chunk.text)
            for number, block in enumerate(blocks, 1):
                for sentence in self.of(block):
                    if held:
                        yield held, False
                    held = sentence
                if held and number < len(blocks) and self.documents == "blank-lines":
                    yield held, True
                    held = ""
            if held and chunk.last:
                yield held, True
                held = ""


@final
class SentenceStore(Store):
    """Read-only sentences of ids, one document after the other."""

    names = ("sentences",)
    holds = "sentences"
    sentences: MappedIds

    def __init__(self, folder: str | Path, reused: bool = True):
        super().__init__(folder, reused)
        self.separator: int = self.meta["separator"]

    @property
    def tokens(self) -> int:
        """All ids, the separators of documents counted."""
        return len(self.sentences.ids)

    @cached_property
    def starts(self) -> Ints:
        """Where each sentence begins, and where the last one ends."""
        return np.array(self.sentences.offsets, np.int64)

    @cached_property
    def documents(self) -> Ints:
        """The number of the sentence behind the last one of each document."""
        last = self.sentences.ids[self.starts[1:] - 1] == self.separator
        return np.flatnonzero(last) + 1

    def at(self, places: Ints) -> Ints:
        """The ids at these places."""
        ids = self.sentences.ids[places].astype(np.int64)
        self.sentences.let_go()
        return ids

    def counts(self, most: int = 10_000_000) -> Ints:
        """How often each id is among the first so many."""
        return np.bincount(self.sentences.ids[:most])


def prepare_sentences(
    corpus: Corpus, tokenizer: Codec, separator: int, cut: Cut, folder: str | Path, progress: Progress | None = None
) -> SentenceStore:
    """Encode the sentences of documents into a store below `folder`, or find the one made of the same before.

    progress is called with the number of sentences so far.
    """
    facts = ["sentences", FORMAT, tokenizer.fingerprint, separator, asdict(cut), corpus.identity()]
    place = Path(folder) / hashed(json.dumps(facts))
    return SentenceStore.made(place, lambda building: _write(building, corpus, tokenizer, separator, cut, progress))


def _write(
    folder: Path, corpus: Corpus, tokenizer: Codec, separator: int, cut: Cut, progress: Progress | None
) -> dict[str, Any]:
    """Append batch after batch. Returns store.json's content."""
    plain = tokenizers.Tokenizer.from_str(tokenizer.inner.to_str())
    plain.encode_special_tokens = True  # "[MASK]" in a text is text
    count = documents = 0

    def encode(batch: list[tuple[str, bool]]) -> list[list[int]]:
        every = encoded(plain, [sentence for sentence, _ in batch])
        found: list[list[int]] = []
        for ids, (_, last) in zip(every, batch, strict=True):
            found += [ids[at : at + cut.longest] for at in range(0, len(ids), cut.longest)]
            if last:
                found = found or [[]]
                found[-1] = [*found[-1], separator]
        return found

    with IdsWriter(folder, "sentences", len(tokenizer)) as writer:
        for [found] in in_order(_batches(cut.all(corpus)), [encode]):
            writer.append(found)
            count += len(found)
            documents += sum(ids[-1] == separator for ids in found)
            if progress:
                progress(count)
        refuse(not count, "there is no text: every document, or the part that is held out, is empty: give more text")
        sentences = writer.close()
    return {"format": FORMAT, "sentences": sentences, "separator": separator, "documents": documents}


def _batches(sentences: Iterator[tuple[str, bool]]) -> Iterator[list[tuple[str, bool]]]:
    while batch := list(islice(sentences, AT_ONCE)):
        yield batch

"""A table of word vectors to look at: a vector file's, or a model's own embedding."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headway.card import Loaded
from headway.errors import InputError, refuse
from headway.folder import read_model
from headway.generate.shown import Shown
from headway.models import FAMILIES
from headway.models.configs import token_tables
from headway.text.tokenizer import SPECIALS, UNKNOWN, Tokenizer
from headway.text.vectors import Neighbour, WordVectors, read_vectors

SIDES = ("source", "target")


@dataclass(repr=False)
class WordTable(Shown):
    """`tokenizer`: that of the model whose embedding this is, for the spelling of its entries; None: a vector file."""

    vectors: WordVectors
    tokenizer: Tokenizer | None = None
    name: str = ""  # of the model

    def asked(self) -> list[str]:
        return ["nearest"]

    def facts(self) -> dict[str, str]:
        return {"vectors": f"{len(self.vectors):,} words, width {self.vectors.width}", "call": ", ".join(self.asked())}

    def nearest(self, words: str | list[str], k: int = 10, minus: list[str] | None = None) -> list[Neighbour]:
        """The neighbours of a word, or of a sum of words less those in `minus`."""
        words = [words] if isinstance(words, str) else words
        return self.vectors.nearest([*map(self.entry, words)], k, [*map(self.entry, minus or [])])

    def entry(self, word: str) -> str:
        """A word as the table spells it: in lower case, for example, or with the mark of a space."""
        if self.tokenizer is None or word in self.vectors.row_of:
            return word
        ids = self.tokenizer.encode(word) or [UNKNOWN]
        entries = self.tokenizer.tokens(ids)
        if self.tokenizer.kind == "bpe" and self.tokenizer.exact and len(ids) > 1:
            ids = self.tokenizer.encode(f" {word}")
            entries = self.tokenizer.tokens(ids)
        refuse(len(ids) > 1, f"'{word}' is not one entry of the vocabulary, but {len(ids)}: {' '.join(entries)}")
        return word if ids == [UNKNOWN] else entries[0]


def open_words(place: str | Path, side: str | None = None) -> WordTable:
    """The vectors of a file, or of a model's folder; of a translator with two tables those of one `side`."""
    if Path(place).is_file():
        refuse(side is not None, f"{place} is a vector file and has no sides: leave --side out")
        return WordTable(read_vectors(place))
    return table_of(read_model(place), str(place), side)


def table_of(found: Loaded, place: str, side: str | None = None) -> WordTable:
    """The embedding of a model; `place`: how a message names it."""
    tables = list(token_tables(found.model).values())
    refuse(not tables, f"{place} is a model of the family '{found.card.family}', which has no word vectors")
    if side is not None and not FAMILIES[found.card.family].has_source:
        raise InputError(f"{place} has one vocabulary: leave --side out")
    refuse(side is not None and side not in SIDES, f"--side is '{side}': write source or target")
    refuse(side is None and len(tables) > 1, f"{place} has a table for each side: write --side source or --side target")
    at = SIDES.index(side or "source")
    tokenizer = (found.source_tokenizer, found.target_tokenizer)[at]
    weight_VD = tables[min(at, len(tables) - 1)].weight.detach()[len(SPECIALS) : len(tokenizer)]
    words = tokenizer.tokens(range(len(SPECIALS), len(tokenizer)))
    return WordTable(WordVectors(words, weight_VD.float().numpy()), tokenizer)

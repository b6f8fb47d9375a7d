"""Which head looks from a pronoun to its antecedent, where a file lists the antecedents.

Three readings: at a site of one text, the row of the pronoun and the column of its antecedent; across two texts, the
row in which the pronoun's translation is written and the column of the antecedent; in a decoder, that row and the
column of the antecedent's translation. What is a word's translation is what gold alignments are sure of. A head is
right when, of all other words, it looks most at the antecedent. Heads are chosen on every other link and reported on
the rest.

T target places, S source places, W target words, V source words, L layers, H heads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headway.errors import InputError
from headway.evaluate.alignment import Link
from headway.explore.analyses.analysis import Analysis, Cell, Table, Text, Traced
from headway.explore.analyses.gold import Counted, GoldPair, over_pairs, read_gold
from headway.explore.analyses.heads import attention_sites, head_map, head_rows
from headway.explore.analyses.texts import read_texts
from headway.explore.plots import heat_maps
from headway.generate.attention import merge_words
from headway.text.words import Split, word_spans
from headway.traces import Trace

Array = NDArray[Any]
Site = tuple[str, str]


@dataclass(frozen=True)
class AntecedentOptions:
    """links: a file with a line a text, `5-1`: word 1 is the antecedent of word 5. gold: a file of alignments with the
    second text, where there is one. first: the number of the first word in both. words: what counts as one."""

    links: str = ""
    gold: str = ""
    first: Literal[0, 1] = 0
    words: Split = "spaces"


@dataclass(frozen=True)
class Look:
    """One pronoun at one site: right_LH, whether a head looks most at the antecedent; weight_LH, how much it looks
    there; offset: how many words on the antecedent stands; others: how many words there are to look at."""

    right_LH: Array
    weight_LH: Array
    offset: int
    others: int


def looks(
    trace: Trace, owners: Sequence[list[int]], links: Sequence[Link], gold: GoldPair | None
) -> Iterator[tuple[Site, Look]]:  # fmt: skip
    """Every site and every link of one text."""
    tracks = list(trace.tracks)
    into = _translations(gold)
    for stack, site in attention_sites(trace):
        name = f"{stack}.{trace.layers(stack, f'{site}.weights')[0]}.{site}.weights"
        rows, columns = (tracks.index(axis) for axis in trace.axes[name][-2:])
        row_words = owners[rows]
        if rows == 1:  # what a decoder reads: a row is of the word that is written next
            row_words = [*row_words[1:], -1]
        weights_LHWV = merge_words(trace.attention(stack, site), row_words, owners[columns])
        for pronoun, antecedent in links:
            row = pronoun if rows == 0 else into.get(pronoun)
            column = antecedent if columns == 0 else into.get(antecedent)
            if row is None or column is None or (rows == columns == 1 and column >= row):
                continue  # no translation, or one that is not written yet
            own = row if rows == columns else None
            offset = column - (pronoun if own is None else own)
            yield (stack, site), _look(weights_LHWV[:, :, row], column, own, offset)


def _translations(gold: GoldPair | None) -> dict[int, int]:
    """The one word that a word is surely translated by; words with several or none are left out."""
    if gold is None:
        return {}
    count = Counter(source for source, _ in gold.sure)
    return {source: target for source, target in gold.sure if count[source] == 1}


def _look(weights_LHV: Array, column: int, own: int | None, offset: int) -> Look:
    others_LHV = weights_LHV.copy()
    if own is not None and own < others_LHV.shape[-1]:
        others_LHV[..., own] = -1.0
    seen = int((others_LHV.max((0, 1)) > 0).sum())
    right_LH = (others_LHV.argmax(-1) == column) & (weights_LHV[..., column] > 0)
    return Look(right_LH, weights_LHV[..., column], offset, seen)


def read_antecedents(path: str, texts: list[Text], options: AntecedentOptions) -> list[list[Link]]:
    """Links within the first text."""
    if not path:
        raise InputError(
            "links are missing: --set links=FILE, a line a text, 5-1 where word 1 is the antecedent of word 5"
        )
    alone = [Text(text.where, text.first) for text in texts]
    return [sorted(pair.sure) for pair in read_gold(path, alone, options.words, options.first)]


def antecedents(traced: Traced, files: Sequence[str], options: AntecedentOptions) -> Table:
    texts = list(read_texts(files, blank=True))
    links = read_antecedents(options.links, texts, options)
    aligned = read_gold(options.gold, texts, options.words, options.first) if options.gold else None
    if aligned is None:
        empty: frozenset[Link] = frozenset()
        pairs = [GoldPair(text, empty, empty, (len(word_spans(text.first, options.words)), 0)) for text in texts]
    else:
        pairs = aligned
    with_links = [number for number, found in enumerate(links) if found]
    counted, seen = Counted(options.words), dict[Site, list[Look]]()
    layers: dict[Site, list[int]] = {}
    for at, trace, owners in over_pairs(traced, [pairs[number] for number in with_links], counted):
        number = with_links[at]
        for place, look in looks(trace, owners, links[number], pairs[number] if aligned else None):
            seen.setdefault(place, []).append(look)
            layers[place] = trace.layers(place[0], f"{place[1]}.weights")
    if not seen:
        raise InputError(f"{options.links} has no link that could be looked for: each is a pair of words such as 5-1")
    rows = [row for place, found in seen.items() for row in _rows(".".join(place), layers[place], found)]
    return Table(
        ("what", "site", "layer", "head", "links", "right", "weight"),
        rows,
        ("right: how often the antecedent is looked at most of all other words; weight: the attention that it has",
         "offset: the word that stands as far from the pronoun as most antecedents do; chance: any word",
         "best head and offset: chosen on every other link, beginning with the first, and reported on the rest",
         *counted.note(len(with_links))),
    )  # fmt: skip


def _rows(site: str, layers: Sequence[int], found: Sequence[Look]) -> list[tuple[Cell, ...]]:
    right_NLH = np.array([look.right_LH for look in found], dtype=np.float64)
    weight_NLH = np.array([look.weight_LH for look in found], dtype=np.float64)
    means = right_NLH.mean(0), weight_NLH.mean(0)
    rows: list[tuple[Cell, ...]] = [("head", *row[:3], len(found), *row[3:]) for row in head_rows(site, layers, *means)]
    if len(found) < 2:
        return rows
    at, head = np.unravel_index(int(right_NLH[::2].mean(0).argmax()), right_NLH.shape[1:])
    count = len(found[1::2])
    best = float(right_NLH[1::2, at, head].mean()), float(weight_NLH[1::2, at, head].mean())
    [(offset, _)] = Counter(look.offset for look in found[::2]).most_common(1)
    hits = float(np.mean([look.offset == offset for look in found[1::2]]))
    chance = float(np.mean([1 / look.others for look in found[1::2] if look.others]))
    return [
        *rows,
        ("best head", site, layers[int(at)], int(head), count, *best),
        (f"offset {offset:+d}", site, None, None, count, hits, None),
        ("chance", site, None, None, count, chance, None),
    ]


def draw(table: Table, path: Path) -> Path:
    """A heat map a site: how often each head is right."""
    heads = Table(table.columns, [row for row in table.rows if row[0] == "head"])
    maps = [head_map(heads, "right", site, high=1.0, best=True) for site in dict.fromkeys(heads.column("site"))]
    return heat_maps([maps], path, heading="How often a head looks from a pronoun to its antecedent")


ANTECEDENTS = Analysis(
    "antecedents", "which head looks from a pronoun to its antecedent, where a file lists the antecedents",
    "lines", ("weights",), antecedents, draw, AntecedentOptions,
)  # fmt: skip

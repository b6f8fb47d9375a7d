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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from headway.errors import InputError, refuse
from headway.evaluate.alignment import Link
from headway.explore.analyses.analysis import Analysis, Cell, Table, Traced
from headway.explore.analyses.gold import Counted, GoldPair, over_pairs, read_gold
from headway.explore.analyses.heads import head_map, head_rows
from headway.explore.analyses.sites import Site, sites
from headway.explore.analyses.texts import read_texts
from headway.explore.plots import heat_maps
from headway.generate.attention import merge_words
from headway.text.words import Split
from headway.traces import Array, Trace


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
    # The one word that a word is surely translated by; words with several or none are left out.
    sure = sorted(gold.sure) if gold else []
    count = Counter(source for source, _ in sure)
    into = {source: target for source, target in sure if count[source] == 1}
    for site in sites(trace):
        rows, columns = tracks.index(site.looks.name), tracks.index(site.seen.name)
        row_words = owners[rows]
        if rows == 1:  # what a decoder reads: a row is of the word that is written next
            row_words = [*row_words[1:], -1]
        weights_LHWV = merge_words(site.weights_LHTS, row_words, owners[columns])
        for pronoun, antecedent in links:
            row = pronoun if rows == 0 else into.get(pronoun)
            column = antecedent if columns == 0 else into.get(antecedent)
            if row is None or column is None or (rows == columns == 1 and column >= row):
                continue  # no translation, or one that is not written yet
            own = row if rows == columns else None
            offset = column - (pronoun if own is None else own)
            yield site, _look(weights_LHWV[:, :, row], column, own, offset)


def _look(weights_LHV: Array, column: int, own: int | None, offset: int) -> Look:
    others_LHV = weights_LHV.copy()
    if own is not None and own < others_LHV.shape[-1]:
        others_LHV[..., own] = -1.0
    seen = int((others_LHV.max((0, 1)) > 0).sum())
    right_LH = (others_LHV.argmax(-1) == column) & (weights_LHV[..., column] > 0)
    return Look(right_LH, weights_LHV[..., column], offset, seen)


def antecedents(traced: Traced, files: Sequence[str], options: AntecedentOptions) -> Table:
    """Which head looks from a pronoun to its antecedent, where a file lists the antecedents."""
    texts = list(read_texts(files, blank=True))
    if not options.links:
        raise InputError(
            "links are missing: --set links=FILE, a line a text, 5-1 where word 1 is the antecedent of word 5"
        )
    alone = [replace(text, second=None) for text in texts]  # links are within the first text
    links = [sorted(pair.sure) for pair in read_gold(options.links, alone, options.words, options.first)]
    gold = read_gold(options.gold, texts, options.words, options.first) if options.gold else None
    with_links = [replace(text, item=at) for at, text in enumerate(texts) if links[at]]
    counted, seen, layers = Counted(options.words), dict[str, list[Look]](), dict[str, list[int]]()
    for at, trace, owners in over_pairs(traced, with_links, counted):
        for site, look in looks(trace, owners, links[at], gold[at] if gold else None):
            seen.setdefault(site.name, []).append(look)
            layers[site.name] = site.layers
    refuse(not seen, f"{options.links} has no link that could be looked for: each is a pair of words such as 5-1")
    rows = [row for name, found in seen.items() for row in _rows(name, layers[name], found)]
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
    maps = [head_map(heads, "right", site, high=1.0, best=True) for site in heads.distinct("site")]
    return heat_maps([maps], path, heading="How often a head looks from a pronoun to its antecedent")


ANTECEDENTS = Analysis("antecedents", "lines", ("weights",), antecedents, draw, AntecedentOptions)

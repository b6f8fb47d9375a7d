"""Which heads follow grammar: how often the word that a head looks at most is the other word of a dependency.

After Clark et al. 2019, "What does BERT look at?", section 4.2, with their baseline: the best fixed offset. Attention
of words is made of that of tokens (summed over those that are looked at, the mean over those that look); specials and
the word itself are left out, since neither is ever the answer.

L layers, H heads, W words.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headway.data.conllu import Sentence, read_conllu
from headway.errors import InputError
from headway.explore import plots
from headway.explore.analyses.analysis import Analysis, Table, Traced
from headway.explore.analyses.sites import own_attention, sites
from headway.explore.analyses.texts import chosen_on, halves
from headway.explore.plots import ACCENT, HAIRLINE, QUIET, Bar, write
from headway.generate.attention import merge_words
from headway.traces import Array, Trace

UP, DOWN = "dependent → head", "head → dependent"
ROW, WIDTH = 0.24, 5.2  # inches of the picture
Key = tuple[str, str]  # a relation, and the direction of reading


@dataclass
class Tally:
    """Of one relation, read one way: how many pairs could be seen, how often each head found the other word, and how
    far away it stood."""

    hits_LH: Any = 0
    pairs: int = 0
    offsets: Counter[int] = field(default_factory=Counter)

    def add(self, hits_LH: Array, offset: int) -> None:
        self.hits_LH = self.hits_LH + hits_LH
        self.pairs += 1
        self.offsets[offset] += 1


Tallies = dict[Key, Tally]


@dataclass(frozen=True)
class Options:
    """least: relations with fewer pairs in either half are left out."""

    least: int = 20


def looked_at(weights_LHTS: Array, visible_TS: Array, word_T: Sequence[int]) -> tuple[Array, Array]:
    """(L, H, W) the other word that each word looks at most (−1: at none), and (W, W) which words it may look at."""
    weights_LHWW = merge_words(weights_LHTS, word_T, word_T)
    visible_WW = merge_words(visible_TS, word_T, word_T) > 0
    others_WW = visible_WW & ~np.eye(len(visible_WW), dtype=bool)
    weights_LHWW = np.where(others_WW, weights_LHWW, 0.0)
    return np.where(weights_LHWW.max(-1) > 0, weights_LHWW.argmax(-1), -1), others_WW


def count(tallies: Tallies, sentence: Sentence, trace: Trace) -> bool:
    """Adds what one sentence shows; False where its words cannot be found among the model's tokens."""
    seen = own_attention(trace, sentence.text, sentence.spans)
    if seen is None:
        return False
    looks_LHW, others_WW = looked_at(*seen)
    written = set(seen.owner_T)
    for word, (head, relation) in enumerate(zip(sentence.heads, sentence.relations, strict=True)):
        if head < 0 or not {word, head} <= written:
            continue
        for way, source, target in ((UP, word, head), (DOWN, head, word)):
            if others_WW[source, target]:
                tallies[relation, way].add(looks_LHW[:, :, source] == target, target - source)
    return True


def chosen(first: Tally, second: Tally) -> tuple[int, int, float, int, float]:
    """Layer and head that are best on `first` and their accuracy on `second`; the same of a fixed offset."""
    layer, head = map(int, np.unravel_index(np.argmax(first.hits_LH), np.shape(first.hits_LH)))
    offset = max(first.offsets, key=lambda one: (first.offsets[one], -abs(one), one))
    return layer, head, float(second.hits_LH[layer, head]) / second.pairs, offset, second.offsets[offset] / second.pairs


def relations(traced: Traced, files: Sequence[str], options: Options) -> Table:
    """Heads that find the other word of a dependency, beside the best fixed offset."""
    tallies: tuple[Tallies, Tallies] = (defaultdict(Tally), defaultdict(Tally))
    unknown, layers = 0, list[int]()
    # A model that is given a target does not search for one; its encoder never sees it.
    for text, trace in traced.over(halves(files, read_conllu, "sentence"), copied=True):
        measured, sentence = text.item
        layers = sites(trace)[0].layers
        unknown += not count(tallies[measured], sentence, trace)
    rows = _rows(tallies, layers, options.least)
    if not rows:
        raise InputError(
            f"no relation has {options.least} pairs in both halves of {traced.seen:,} sentences: give more of them, or "
            "--set least=1"
        )
    columns = ("relation", "looks", "pairs", "layer", "head", "accuracy", "offset", "by offset")
    notes = (f"{traced.seen:,} sentences; heads and offsets {chosen_on(files, 'sentence')}", *_notes(tallies, unknown))
    return Table(columns, rows, notes, {"looks": _better_ways(tallies[0], {(row[0], row[1]) for row in rows})})


def _rows(tallies: tuple[Tallies, Tallies], layers: list[int], least: int) -> list[tuple[Any, ...]]:
    """Those relations first that are there most often, each in both ways."""
    kept = {key for key in tallies[0] if min(half[key].pairs for half in tallies) >= least}
    most = {name: max(tallies[1][key].pairs for key in kept if key[0] == name) for name, _ in kept}
    rows: list[tuple[Any, ...]] = []
    for key in sorted(kept, key=lambda key: (-most[key[0]], key[0], key[1] != UP)):
        layer, head, accuracy, offset, by_offset = chosen(tallies[0][key], tallies[1][key])
        rows.append((*key, tallies[1][key].pairs, layers[layer], head, accuracy, offset, by_offset))
    return rows


def _better_ways(tallies: Tallies, kept: set[Key]) -> dict[str, str]:
    """Of each relation the way of reading in which its best head finds more words, where heads were chosen. By number
    and not by share: a model that cannot look ahead may see only a few pairs in one of them."""

    def found(key: Key) -> tuple[int, bool]:
        return int(np.max(tallies[key].hits_LH)), key[1] == UP

    return dict(sorted(kept, key=found))  # of the two ways of a relation the last one stays


def _notes(tallies: tuple[Tallies, Tallies], unknown: int) -> list[str]:
    seen = sum(tally.pairs for half in tallies for (_, way), tally in half.items() if way == UP)
    both = sum(tally.pairs for half in tallies for tally in half.values())
    notes = []
    if any(half[relation, UP].pairs != half[relation, DOWN].pairs for half in tallies for relation, _ in list(half)):
        notes.append(
            "this model does not see every word from every word: each way counts the pairs that it can see "
            f"({100 * seen / both:.0f} % of them from dependent to head), and the offset is judged on the same pairs"
        )
    if unknown:
        notes.append(f"{unknown:,} sentences left out: their words cannot be found among the model's tokens")
    return notes


def draw(table: Table, path: Path) -> Path:
    """A row a relation: its best head beside the best offset, in the direction of reading that finds more."""
    shown: list[tuple[Any, ...]] = [row for row in table.rows if row[1] == table.more["looks"][row[0]]]
    figure = plots.new_figure(WIDTH, ROW * len(shown))
    axes = figure.add_axes((0, 0, 1, 1))
    bars = []
    for row, (relation, way, _, layer, head, accuracy, _, by_offset) in enumerate(shown):
        dots = ((by_offset, QUIET, False), (accuracy, ACCENT, True))
        bars.append(Bar(relation, by_offset, accuracy, HAIRLINE, dots=dots))
        write(axes, 1.02, row, f"{layer}.{head}  {way}", 7, QUIET, va="center")
    plots.bars(axes, bars, 8.5)
    plots.quiet(axes, "x")
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    write(axes, 1.02, -1.1, "layer.head  looks from → to", 7, QUIET, va="center")
    dot = {"marker": "o", "markersize": 5.5, "linestyle": "none"}
    styles = [dot | {"color": ACCENT}, dot | {"color": QUIET, "markerfacecolor": "white"}]
    where: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "ncols": 2, "handletextpad": 0.2}
    plots.legend(axes, ["best head", "best fixed offset"], styles, 8, **where)
    return plots.save(figure, path)


RELATIONS = Analysis("relations", "conllu", ("attention.weights", "attention.mask"), relations, draw, Options)

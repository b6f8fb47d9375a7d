"""Word alignment by cross-attention, judged against gold links: each head, each layer's mean, two readings.

Each target word is linked to the source word that it attends to most. *As written*: row t of the attention belongs to
the word that the decoder then writes. *Shifted*: to the word that it has just read (Chen et al. 2020, SHIFT-ATT). Heads
are chosen on the odd lines and reported on the even ones: the lowest of many noisy figures is too good.

L layers, H heads.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headway.errors import InputError, refuse
from headway.evaluate import alignment as aligning
from headway.evaluate.alignment import AlignmentScore, Link
from headway.explore.analyses.analysis import Analysis, Cell, Table, Text, Traced
from headway.explore.analyses.gold import Counted, GoldPair, over_pairs, read_gold
from headway.explore.analyses.texts import read_parallel
from headway.explore.plots import SHADES, HeatMap, heat_maps
from headway.text.words import Split

READINGS = ("written", "shifted")
MEAN = -1  # in place of a head: the mean of all heads of the layer
SEED = 0
LENGTHS = ((1, 9), (10, 19), (20, sys.maxsize))  # of a source, in words
Choice = tuple[str, int, int]  # reading, layer, head
Links = dict[int, set[Link]]  # by the number of the pair


@dataclass(frozen=True)
class AlignmentOptions:
    """gold: a file of links. first: the number of its first word. words: what counts as one. reverse: the folder of a
    model of the other direction, for symmetrised alignments. beside: another aligner's links, and their first word."""

    gold: str = ""
    first: Literal[0, 1] = 0
    words: Split = "spaces"
    reverse: str = ""
    beside: str = ""
    beside_first: Literal[0, 1] = 0


def all_links(traced: Traced, texts: Iterable[Text], counted: Counted, turned: bool = False) -> dict[Choice, Links]:
    """The links of every head and every layer's mean, in both readings, by the number of the pair; always as (source,
    target) of the pairs, also where they are `turned` for a model of the other direction."""
    found: dict[Choice, Links] = defaultdict(dict)
    for number, trace, owners in over_pairs(traced, texts, counted):
        if ("decoder", "cross") not in trace.sites():
            family = trace.about.get("family", "")
            raise InputError(f"this model ({family}) has no cross-attention: an alignment needs a translator")
        source, target = owners
        rows = {"written": [*target[1:], -1], "shifted": target}
        layers = trace.layers("decoder", "cross.weights")
        for layer, weights_HTS in zip(layers, trace.attention("decoder", "cross"), strict=True):
            for head, weights_TS in [(MEAN, weights_HTS.mean(0)), *enumerate(weights_HTS)]:
                for reading in READINGS:
                    links = aligning.links_from_weights(weights_TS, rows[reading], source)
                    found[reading, layer, head][number] = {(t, s) for s, t in links} if turned else links
    return found


class Judge:
    """Error rates of links on a choice of pairs."""

    def __init__(self, pairs: Sequence[GoldPair], numbers: Sequence[int]) -> None:
        self.pairs, self.numbers, self.odd, self.even = pairs, numbers, numbers[::2], numbers[1::2]
        self.sizes = [pair.sizes for pair in pairs]
        self.diagonal = dict(enumerate(aligning.diagonal_links(self.sizes)))

    def score(self, links: Mapping[int, set[Link]], numbers: Sequence[int]) -> AlignmentScore:
        gold = [self.pairs[number] for number in numbers]
        return aligning.alignment_error(
            [links[number] for number in numbers], [pair.sure for pair in gold], [pair.possible for pair in gold]
        )

    def best(self, found: Mapping[Choice, Links], mean: bool) -> Choice:
        """Of the lowest error on the odd pairs, among heads or among means of layers."""
        fitting = [choice for choice in found if (choice[2] == MEAN) == mean]
        return min(fitting, key=lambda choice: self.score(found[choice], self.odd).aer)

    def row(
        self, what: str, links: Mapping[int, set[Link]], numbers: Sequence[int], choice: Choice | None = None
    ) -> tuple[Cell, ...]:
        reading, layer, head = choice or (None, None, None)
        found = astuple(self.score(links, numbers))
        return (what, layer, None if head == MEAN else head, reading, len(numbers), *found)


def alignment(traced: Traced, files: Sequence[str], options: AlignmentOptions) -> Table:
    """Word alignment by cross-attention, its error rate against gold links, by layer and head."""
    texts = [replace(text, item=number) for number, text in enumerate(read_parallel(files))]
    pairs = read_gold(options.gold, texts, options.words, options.first)
    counted = Counted(options.words)
    forward = all_links(traced, texts, counted)
    backward: dict[Choice, Links] = {}
    shared = set(next(iter(forward.values()), {}))
    if options.reverse:
        from headway.tasks.loading import load

        other = Traced(load(options.reverse), traced.tensors, long=traced.long, lines=traced.lines)
        turned = [replace(text, first=str(text.second), second=text.first) for text in texts]
        backward = all_links(other, turned, Counted(options.words), turned=True)
        shared &= set(next(iter(backward.values()), {}))
    refuse(len(shared) < 2, f"{len(shared)} pairs that can be judged: there must be at least two")
    judge = Judge(pairs, sorted(shared))
    rows = [*_of_heads(judge, forward), *_best(judge, forward, backward), *_by_length(judge, forward)]
    if options.beside:
        beside = enumerate(read_gold(options.beside, texts, options.words, options.beside_first))
        links = {number: set(pair.possible) for number, pair in beside}
        name = Path(options.beside).name.removesuffix(".gz")
        rows += [judge.row(name, links, some) for some in (judge.even, judge.numbers)]
    return Table(
        ("what", "layer", "head", "reading", "pairs", "AER", "precision", "recall"),
        rows,
        (f"alignment error rate on {len(shared):,} pairs; as written: a row is of the word then written, shifted: of "
         "the word just read",
         "best: chosen on every other pair, beginning with the first, and reported on the others, as are the baselines",
         "a head at random: the mean over the heads, in the best one's reading",
         *counted.note(len(texts))),
        _more(judge, forward),
    )  # fmt: skip


def _of_heads(judge: Judge, found: Mapping[Choice, Links]) -> Iterator[tuple[Cell, ...]]:
    """Every head and layer; beside them random links, the diagonal, and a head at random."""
    for choice in sorted(found, key=lambda choice: (READINGS.index(choice[0]), *choice[1:])):
        yield judge.row("mean of the layer" if choice[2] == MEAN else "head", found[choice], judge.numbers, choice)
    yield judge.row("random links", dict(enumerate(aligning.random_links(judge.sizes, SEED))), judge.even)
    yield judge.row("diagonal", judge.diagonal, judge.even)
    reading = judge.best(found, mean=False)[0]
    heads = [astuple(judge.score(found[one], judge.even)) for one in found if one[2] != MEAN and one[0] == reading]
    yield ("a head at random", None, None, None, len(judge.even), *np.mean(heads, 0).tolist())


def _best(
    judge: Judge, forward: Mapping[Choice, Links], backward: Mapping[Choice, Links]
) -> Iterator[tuple[Cell, ...]]:  # fmt: skip
    for name, mean in (("best head", False), ("best layer", True)):
        choice = judge.best(forward, mean)
        yield judge.row(name, forward[choice], judge.even, choice)
        if not backward:
            continue
        other = judge.best(backward, mean)
        yield judge.row(f"{name}, reverse", backward[other], judge.even, other)
        for how in aligning.SYMMETRIES:
            links = {at: aligning.symmetrised(forward[choice][at], backward[other][at], how) for at in judge.even}
            yield judge.row(f"{name}, {how}", links, judge.even)


def _by_length(judge: Judge, found: Mapping[Choice, Links]) -> Iterator[tuple[Cell, ...]]:
    """The best layer and the diagonal, by the number of source words."""
    choice = judge.best(found, mean=True)
    for low, high in LENGTHS:
        some = [number for number in judge.even if low <= judge.sizes[number][0] <= high]
        name = f"{low} words and more" if high == LENGTHS[-1][1] else f"{low} to {high} words"
        if some:
            yield judge.row(f"best layer, {name}", found[choice], some, choice)
            yield judge.row(f"diagonal, {name}", judge.diagonal, some)


def _more(judge: Judge, found: Mapping[Choice, Links]) -> dict[str, Any]:
    """Error rates of each reading by layer and head, the layer's mean behind its heads; and which head is best."""
    layers = sorted({layer for _, layer, _ in found})
    heads = sorted({head for _, _, head in found if head != MEAN})
    tables = {
        reading: [
            [judge.score(found[reading, layer, head], judge.numbers).aer for head in (*heads, MEAN)] for layer in layers
        ]
        for reading in READINGS
    }
    return {"layers": layers, "heads": heads, "best": judge.best(found, mean=False), **tables}


def draw(table: Table, path: Path) -> Path:
    """A grid a reading: heads, and behind them the mean of the layer."""
    layers, heads, best = (table.more[name] for name in ("layers", "heads", "best"))
    grids = [
        HeatMap(
            {"written": "as written"}.get(reading, reading), np.array(table.more[reading]),
            high=1.0, colours=SHADES[::-1],
            best=(layers.index(best[1]), heads.index(best[2])) if best[0] == reading else None,
            rows=layers, columns=(*heads, "mean"),
        )
        for reading in READINGS
    ]  # fmt: skip
    return heat_maps([grids], path, heading="Alignment error rate of each head (dark: low)")


ALIGNMENT = Analysis("alignment", "pairs", ("cross.weights",), alignment, draw, AlignmentOptions)

"""Word alignments read off attention, and the alignment error rate that judges them.

Shapes: T target tokens, S source tokens, W target words, V source words, L layers, H heads.
A link is a pair (source word, target word), counted from 0.
"""

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

import numpy as np

from headway.errors import InputError, refuse
from headway.generate.attention import merge_words

Link = tuple[int, int]
Links = AbstractSet[Link]
Symmetry = Literal["intersection", "union", "grow-diag"]
SYMMETRIES: tuple[Symmetry, ...] = ("intersection", "union", "grow-diag")

_LINK = re.compile(r"(\d+)([-p])(\d+)", re.ASCII)


@dataclass(frozen=True)
class AlignmentScore:
    """Alignment error rate (lower is better), precision and recall (higher is better), all from 0 to 1."""

    aer: float
    precision: float
    recall: float


@dataclass(frozen=True)
class AttendedPair:
    """A sentence pair with the attention of every head and its gold links.

    `target_words` and `source_words` give the word of each token; -1: of no word, as the end token.
    """

    weights_LHTS: np.ndarray
    target_words: Sequence[int]
    source_words: Sequence[int]
    sure: Links
    possible: Links


@dataclass(frozen=True)
class BestHead:
    """The head with the lowest error on the sentences it was chosen on, and its score on others."""

    layer: int
    head: int
    chosen_aer: float
    reported: AlignmentScore


def alignment_error(predicted: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links]) -> AlignmentScore:
    """AER = 1 − (|A∩S| + |A∩P|) / (|A| + |S|)  (Och and Ney 2003), over all sentences together.

    Precision is |A∩P| / |A| and recall |A∩S| / |S|. Every sure link is possible too, listed or not. A
    share of nothing is 1: without predicted links none is wrong.
    """
    if not len(predicted) == len(sure) == len(possible):
        raise InputError(
            f"{len(predicted)} predicted, {len(sure)} sure and {len(possible)} possible alignments; "
            "there must be one of each for every sentence"
        )
    given, wanted = sum(map(len, predicted)), sum(map(len, sure))
    refuse(given + wanted == 0, "neither predicted nor sure links; the alignment error rate has nothing to count")
    hit_sure = sum(len(a & s) for a, s in zip(predicted, sure, strict=True))
    hit_possible = sum(len(a & (p | s)) for a, s, p in zip(predicted, sure, possible, strict=True))
    aer = 1 - (hit_sure + hit_possible) / (given + wanted)
    precision = hit_possible / given if given else 1.0
    return AlignmentScore(aer, precision, recall=hit_sure / wanted if wanted else 1.0)


def links_from_weights(weights_TS: np.ndarray, target_words: Sequence[int], source_words: Sequence[int]) -> set[Link]:
    """Each target word linked to argmaxᵥ of its merged attention; the first of equals wins.

    A target word stays unlinked when it has no token, or when all its weight is on tokens of no word.
    """
    weights_WV = merge_words(weights_TS, target_words, source_words)
    if weights_WV.size == 0:
        return set()
    source_W, seen_W = weights_WV.argmax(axis=1), weights_WV.max(axis=1) > 0
    return {(int(source), target) for target, source in enumerate(source_W) if seen_W[target]}


def random_links(sizes: Sequence[tuple[int, int]], seed: int) -> list[set[Link]]:
    """The baseline: each target word linked to a uniformly random source word.

    `sizes` gives (source words, target words) of every sentence. A draw depends on the seed and the number of
    the sentence only.
    """
    drawn = []
    for sentence, (source_size, target_size) in enumerate(sizes):
        refuse(source_size < 1, f"sentence {sentence} has {source_size} source words; a link needs at least one")
        source_W = np.random.default_rng((seed, sentence)).integers(source_size, size=target_size)
        drawn.append({(int(source), target) for target, source in enumerate(source_W)})
    return drawn


def diagonal_links(sizes: Sequence[tuple[int, int]]) -> list[set[Link]]:
    """The other baseline: each target word linked to the source word at the same share of its sentence."""
    return [
        {(int((target + 0.5) * source_size / target_size), target) for target in range(target_size)}
        for source_size, target_size in sizes
    ]


def symmetrised(forward: Links, backward: Links, how: Symmetry) -> set[Link]:
    """One alignment from those of two directions, both as (source, target).

    `grow-diag` (Koehn, Och and Marcu 2003): from the intersection outward, each neighbour (also across a corner) that
    one direction has is taken while its source or its target word is still without a link.
    """
    both, either = set(forward & backward), set(forward | backward)
    if how != "grow-diag":
        return both if how == "intersection" else either
    grown = True
    while grown:
        grown = False
        for source, target in sorted(both):
            for link in sorted((source + i, target + j) for i in (-1, 0, 1) for j in (-1, 0, 1)):
                alone = all(link[0] != s for s, _ in both) or all(link[1] != t for _, t in both)
                if link in either and link not in both and alone:
                    both.add(link)
                    grown = True
    return both


def head_table(pairs: Iterable[AttendedPair]) -> np.ndarray:
    """The alignment error rate of every head, aer_LH. The pairs are read once, so a generator will do."""
    gold: list[tuple[Links, Links]] = []
    found: dict[tuple[int, ...], list[set[Link]]] = {}
    for pair in pairs:
        gold.append((pair.sure, pair.possible))
        for place, links in _links_by_head(pair).items():
            found.setdefault(place, []).append(links)
    refuse(not gold, "no sentence pairs to judge the heads on; give at least one")
    errors = [alignment_error(links, *zip(*gold, strict=True)).aer for links in found.values()]
    return np.array(errors).reshape([size + 1 for size in max(found)])


def best_head(chosen_on: Iterable[AttendedPair], reported_on: Iterable[AttendedPair]) -> BestHead:
    """The head of lowest AER on one set of sentences, scored on another.

    Two sets, because the lowest of many noisy figures is too good on the sentences that it was chosen on.
    """
    table_LH = head_table(chosen_on)
    layer, head = (int(index) for index in np.unravel_index(np.argmin(table_LH), table_LH.shape))
    reported = [(_links_by_head(pair)[layer, head], pair.sure, pair.possible) for pair in reported_on]
    refuse(not reported, "no sentence pairs to report the best head on; keep some out of the choice")
    return BestHead(layer, head, float(table_LH[layer, head]), alignment_error(*zip(*reported, strict=True)))


def _links_by_head(pair: AttendedPair) -> dict[tuple[int, ...], set[Link]]:
    return {
        place: links_from_weights(pair.weights_LHTS[place], pair.target_words, pair.source_words)
        for place in np.ndindex(pair.weights_LHTS.shape[:2])
    }


def read_links(line: str, *, first: int = 0, where: str = "") -> tuple[set[Link], set[Link]]:
    """Sure and possible links of one line: `i-j` is sure, `ipj` only possible, source before target.

    `first` is the number of the first word in the file, 0 or 1; the links returned count from 0, and the
    possible ones include the sure. `where` names the file and line in an error.
    """
    _check_first(first)
    sure, possible = set(), set()
    at = f"{where}: " if where else ""
    for token in line.split():
        match = _LINK.fullmatch(token)
        if match is None:
            raise InputError(f"{at}'{token}' is no link; write 3-4 if it is sure, 3p4 if possible")
        link = (int(match[1]) - first, int(match[3]) - first)
        refuse(min(link) < 0, f"{at}link '{token}' counts words from 0; read it with first=0")
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return sure, possible


def write_links(sure: Links, possible: Links = frozenset(), *, first: int = 0) -> str:
    """One line that `read_links` reads back, sorted by source word: `i-j` for sure, `ipj` for the rest."""
    _check_first(first)
    return " ".join(
        f"{source + first}{'-' if (source, target) in sure else 'p'}{target + first}"
        for source, target in sorted(sure | possible)
    )


def _check_first(first: int) -> None:
    refuse(first not in (0, 1), f"first={first}; the first word of a sentence is number 0 or 1")

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

from headway.errors import InputError
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
    chosen_table_LH: np.ndarray


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
    counts = np.zeros(4, dtype=np.int64)
    for links, sure_links, possible_links in zip(predicted, sure, possible, strict=True):
        counts += _counts(links, sure_links, possible_links)
    return _score(counts)


def links_from_weights(weights_TS: np.ndarray, target_words: Sequence[int], source_words: Sequence[int]) -> set[Link]:
    """Each target word linked to argmaxᵥ of its merged attention; the first of equals wins.

    A target word stays unlinked when it has no token, or when all its weight is on tokens of no word.
    """
    return _argmax_links(merge_words(weights_TS, target_words, source_words))


def random_links(sizes: Sequence[tuple[int, int]], seed: int) -> list[set[Link]]:
    """The baseline: each target word linked to a uniformly random source word.

    `sizes` gives (source words, target words) of every sentence. A draw depends on the seed and the number of
    the sentence only.
    """
    drawn = []
    for sentence, (source_size, target_size) in enumerate(sizes):
        if source_size < 1:
            raise InputError(f"sentence {sentence} has {source_size} source words; a link needs at least one")
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
    counts_LH: np.ndarray | None = None
    for pair in pairs:
        pair_counts_LH = _head_counts(pair)
        if counts_LH is None:
            counts_LH = np.zeros_like(pair_counts_LH)
        if counts_LH.shape != pair_counts_LH.shape:
            raise InputError(
                f"attention of {pair_counts_LH.shape[:2]} layers and heads after {counts_LH.shape[:2]}; "
                "all pairs must come from one model"
            )
        counts_LH += pair_counts_LH
    if counts_LH is None:
        raise InputError("no sentence pairs to judge the heads on; give at least one")
    return np.array([[_score(counts).aer for counts in counts_H] for counts_H in counts_LH])


def best_head(chosen_on: Iterable[AttendedPair], reported_on: Iterable[AttendedPair]) -> BestHead:
    """The head of lowest AER on one set of sentences, scored on another.

    Two sets, because the lowest of many noisy figures is too good on the sentences that it was chosen on.
    """
    table_LH = head_table(chosen_on)
    layer, head = (int(index) for index in np.unravel_index(np.argmin(table_LH), table_LH.shape))
    reported = list(reported_on)
    if not reported:
        raise InputError("no sentence pairs to report the best head on; keep some out of the choice")
    predicted = [
        links_from_weights(pair.weights_LHTS[layer, head], pair.target_words, pair.source_words) for pair in reported
    ]
    score = alignment_error(predicted, [pair.sure for pair in reported], [pair.possible for pair in reported])
    return BestHead(layer, head, float(table_LH[layer, head]), score, table_LH)


def read_links(line: str, *, first: int = 0, where: str = "") -> tuple[set[Link], set[Link]]:
    """Sure and possible links of one line: `i-j` is sure, `ipj` only possible, source before target.

    `first` is the number of the first word in the file, 0 or 1; the links returned count from 0, and the
    possible ones include the sure. `where` names the file and line in an error.
    """
    _check_first(first)
    sure, possible = set(), set()
    for token in line.split():
        match = _LINK.fullmatch(token)
        if match is None:
            raise InputError(f"{_prefix(where)}'{token}' is no link; write 3-4 if it is sure, 3p4 if possible")
        link = (int(match[1]) - first, int(match[3]) - first)
        if min(link) < 0:
            raise InputError(f"{_prefix(where)}link '{token}' counts words from 0; read it with first=0")
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


def _counts(predicted: Links, sure: Links, possible: Links) -> np.ndarray:
    """|A|, |S|, |A∩S| and |A∩P| of one sentence: they add up over sentences, the rates do not."""
    return np.array(
        [len(predicted), len(sure), len(predicted & sure), len(predicted & (possible | sure))], dtype=np.int64
    )


def _score(counts: np.ndarray) -> AlignmentScore:
    predicted, sure, hit_sure, hit_possible = (int(count) for count in counts)
    if predicted + sure == 0:
        raise InputError("neither predicted nor sure links; the alignment error rate has nothing to count")
    return AlignmentScore(
        aer=1 - (hit_sure + hit_possible) / (predicted + sure),
        precision=hit_possible / predicted if predicted else 1.0,
        recall=hit_sure / sure if sure else 1.0,
    )


def _head_counts(pair: AttendedPair) -> np.ndarray:
    """The counts of one sentence pair for every head, the four along the last axis."""
    if np.ndim(pair.weights_LHTS) != 4:
        raise InputError(f"attention of shape {np.shape(pair.weights_LHTS)}; expected layers, heads, target, source")
    weights_LHWV = merge_words(pair.weights_LHTS, pair.target_words, pair.source_words)
    return np.array(
        [
            [_counts(_argmax_links(weights_WV), pair.sure, pair.possible) for weights_WV in weights_HWV]
            for weights_HWV in weights_LHWV
        ]
    )


def _argmax_links(weights_WV: np.ndarray) -> set[Link]:
    if weights_WV.size == 0:
        return set()
    source_W, seen_W = weights_WV.argmax(axis=1), weights_WV.max(axis=1) > 0
    return {(int(source), target) for target, source in enumerate(source_W) if seen_W[target]}


def _check_first(first: int) -> None:
    if first not in (0, 1):
        raise InputError(f"first={first}; the first word of a sentence is number 0 or 1")


def _prefix(where: str) -> str:
    return f"{where}: " if where else ""

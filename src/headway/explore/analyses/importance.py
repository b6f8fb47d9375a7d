"""Which heads a model needs: its loss on a text with one head silenced (Michel et al. 2019; Voita et al. 2019).

Language models are judged by log p(x_t | x_<t), translators by log p(y_t | y_<t, x) of the translations that are given
(or else of those that the whole model writes), models that fill gaps by log p of masked words.

H heads, T places, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from headway.errors import InputError, refuse
from headway.explore.analyses.analysis import Analysis, Cell, Table, Text, Traced, second_text
from headway.explore.analyses.heads import head_map
from headway.explore.analyses.silence import attending, silenced
from headway.explore.analyses.texts import read_texts
from headway.explore.plots import heat_maps
from headway.traces import Array, Trace, log_softmax

Losses = Callable[[], list[float]]  # −log p of each token that is judged, with the model as it is now


@dataclass(frozen=True)
class Options:
    """share: of the words that are masked where a model fills gaps; seed: chooses them."""

    share: float = 0.15
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InputError(
                f"share is {self.share}: it is the share of the words that are masked, above 0 and at most 1"
            )


def losses_of(traced: Traced, text: Text, trace: Trace, options: Options) -> Losses | None:
    """How this text's losses are found again and again; None: there is nothing in it to judge."""
    if traced.loaded.takes == "pair":
        return _gaps(traced, text, trace, options)
    second = second_text(text, trace)
    if second == "":
        return None

    def found() -> list[float]:
        taken = traced.trace(text.first, second, tensors=("next",), top=1).about["next"]["taken"]
        return [-logp for logp in taken if logp is not None]

    return found


def _gaps(traced: Traced, text: Text, trace: Trace, options: Options) -> Losses | None:
    """Of words that are one token, some are masked, all at once, and predicted from the others."""
    encoder, track = traced.loaded, trace.tracks["tokens"]
    if "next" not in trace.about or getattr(encoder.tokenizer, "mask", None) is None:
        raise InputError("this model predicts no words, so there is no loss to judge a head by: take one that does")
    words, spans = track.words or (), track.spans
    alone = [t for t, word in enumerate(words) if word >= 0 and words.count(word) == 1]
    if spans is None or not alone:
        return None
    random = np.random.default_rng([options.seed, *track.ids])  # of the text alone, wherever it stands
    places = sorted(random.choice(alone, max(1, round(options.share * len(alone))), replace=False).tolist())
    masked = track.text or ""
    for t in reversed(places):
        masked = masked[: spans[t][0]] + str(encoder.tokenizer.settings.mask) + masked[spans[t][1] :]
    first, _, second = masked.partition("\n") if text.second is not None else (masked, "", "")

    def found() -> list[float]:
        seen = traced.trace(first, second or None, tensors=("logits",))
        return [-float(log_softmax(seen["logits"][t].astype(np.float64))[track.ids[t]]) for t in places]

    wanted = [encoder.tokenizer.mask if t in places else i for t, i in enumerate(track.ids)]
    read = traced.trace(first, second or None, tensors=("logits",)).tracks["tokens"].ids
    return found if list(read) == wanted else None  # else the text is tokenized differently around the gaps


def importance(traced: Traced, files: Sequence[str], options: Options) -> Table:
    """What each head is worth: the loss with that head silenced."""
    parts = attending(traced.loaded.model)
    works = [losses_of(traced, text, trace, options) for text, trace in traced.over(read_texts(files))]
    judged = [work for work in works if work is not None]

    def now() -> Array:
        return np.array([loss for work in judged for loss in work()])

    whole = now()
    refuse(not len(whole), f"{files[0]}: none of {len(works)} texts has a word that this model could be judged by")
    rows: list[tuple[Cell, ...]] = []
    for (site, layer), part in parts.items():
        for head in range(part.heads):
            with silenced(part, head):
                change = now() - whole
            error = float(change.std(ddof=1) / np.sqrt(len(change))) if len(change) > 1 else None
            mean = float(change.mean())
            rows.append((site, layer, head, float(whole.mean()) + mean, mean, error))
    most = max(rows, key=lambda row: float(row[4] or 0))
    idle = sum(float(row[4] or 0) <= 0 for row in rows)
    notes = [
        f"loss in nats a token: {whole.mean():.3f} with all heads, over {len(whole):,} tokens of {len(judged):,} texts",
        "error: standard error of the change over these tokens",
        f"most needed: {most[0]}, layer {most[1]}, head {most[2]} (+{float(most[4] or 0):.3f}); {idle} of {len(rows)} "
        "heads can be silenced one at a time without any loss",
    ]
    if len(judged) < len(works):
        notes.append(f"{len(works) - len(judged):,} texts left out: they have nothing to judge")
    columns = ("site", "layer", "head", "loss", "change", "error")
    return Table(columns, rows, tuple(notes), {"loss": float(whole.mean())})


def draw(table: Table, path: Path) -> Path:
    """In thousandths, so that a number fits its cell; the palest heads do no harm when they are silenced."""
    maps = [head_map(table, "change", site, best=True) for site in table.distinct("site")]
    shown = [replace(one, values_RC=1000 * one.values_RC) for one in maps]
    return heat_maps([shown], path, heading="What silencing a head costs, nats in 1,000 tokens")


IMPORTANCE = Analysis("importance", "lines", ("embed*.hidden",), importance, draw, Options)

"""Which heads find the name that a pronoun stands for: does it look more at the right name than at the wrong one?

On GAP (Webster et al. 2018), in the manner of Clark et al. 2019, 4.3. The attention of a pronoun to a name is the sum
over the name's tokens and the mean over its own. Beside the heads: the nearer of the two names, and the first of them.

L layers, H heads, N stretches of the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from headway.data.gap import Pronoun, read_gap
from headway.errors import InputError
from headway.explore.analyses.analysis import Analysis, NoOptions, Table, Traced
from headway.explore.analyses.heads import head_map, head_rows
from headway.explore.analyses.sites import Span, own_attention, sites
from headway.explore.analyses.texts import chosen_on, halves
from headway.explore.plots import heat_maps
from headway.generate.attention import merge_words
from headway.traces import Array, Trace

BASELINES = ("nearest name", "first name")


class Judged(NamedTuple):
    """Of one pronoun: whether each head gives the right name more than the wrong one, and whether the
    mention that it looks at most is one of the right name; the same for the baselines."""

    right_LH: Array
    mention_LH: Array
    right_by: tuple[bool, ...]
    mention_by: tuple[bool, ...]


def judged(pronoun: Pronoun, trace: Trace) -> Judged | None:
    """None: it cannot be judged here, since the pronoun does not see both names, or their tokens are not known."""
    right, wrong = sorted(pronoun.names, key=lambda name: not name.meant)
    spans = [pronoun.span, right.span, wrong.span, *mentions(pronoun)]
    attention = own_attention(trace, pronoun.text, spans)
    if attention is None or not {0, 1, 2} <= set(attention.owner_T):
        return None
    weights_LHTS, visible_TS, owner_T = attention
    visible_N = merge_words(visible_TS, owner_T, owner_T)[0] > 0
    if not visible_N[1:3].all():
        return None
    given_LHN = merge_words(weights_LHTS, owner_T, owner_T)[:, :, 0]
    seen = [n for n in range(1, len(visible_N)) if visible_N[n]]
    is_right = np.array([pronoun.text[slice(*spans[n])] == right.text for n in seen])
    right_by = tuple(choice(pronoun.span, [right.span, wrong.span]) == 0 for choice in (nearest, first))
    mention_by = tuple(bool(is_right[choice(pronoun.span, [spans[n] for n in seen])]) for choice in (nearest, first))
    return Judged(
        given_LHN[:, :, 1] > given_LHN[:, :, 2], is_right[given_LHN[:, :, seen].argmax(-1)], right_by, mention_by
    )


def mentions(pronoun: Pronoun) -> list[Span]:
    """Where else in the text either name is written out; what could be part of both is left out."""
    taken = [pronoun.span, *(name.span for name in pronoun.names)]
    found: list[Span] = []
    for name in sorted(pronoun.names, key=lambda name: -len(name.text)):
        for hit in re.finditer(rf"(?<!\w){re.escape(name.text)}(?!\w)", pronoun.text):
            if not any(hit.start() < end and start < hit.end() for start, end in [*taken, *found]):
                found.append(hit.span())
    return sorted(found)


def nearest(pronoun: Span, names: Sequence[Span]) -> int:
    apart = [max(start - pronoun[1], pronoun[0] - end) for start, end in names]
    return apart.index(min(apart))


def first(pronoun: Span, names: Sequence[Span]) -> int:
    return names.index(min(names))


def pronouns(traced: Traced, files: Sequence[str], options: NoOptions) -> Table:
    """Heads by which a pronoun looks at the right name, beside the nearest name and the first."""
    halves_of: tuple[list[Judged], list[Judged]] = ([], [])
    texts = halves(files, read_gap, "pronoun")
    of_one_name = (text for text in texts if text.item[1].names[0].meant != text.item[1].names[1].meant)
    for text, trace in traced.over(of_one_name, copied=True):
        measured, pronoun = text.item
        site = sites(trace)[0]
        one = judged(pronoun, trace)
        if one is not None:
            halves_of[measured].append(one)
    if not all(halves_of):
        raise InputError(
            f"{files[0]}: not enough pronouns from which this model sees both the right and the wrong name"
        )
    choosing, measured = ([np.mean(some, 0) for some in zip(*half, strict=True)] for half in halves_of)
    rows = head_rows(site.name, site.layers, choosing[0], *measured[:2])
    best = max(rows, key=lambda row: float(row[3] or 0))
    by = (choosing[2], *measured[2:])
    rows += [(name, None, None, *(float(share[at]) for share in by)) for at, name in enumerate(BASELINES)]
    count = len(halves_of[1])
    notes = [
        f"{count:,} pronouns with one right and one wrong name, both of which the model sees from there",
        f"best head {chosen_on(files, 'pronoun')}: layer {best[1]}, head {best[2]}, right {float(best[4] or 0):.3f} "
        f"beside {rows[-2][4]:.3f} (nearest name) and {rows[-1][4]:.3f} (first name)",
        "mention: of all places where either name stands, the one that is looked at most is one of the right name",
    ]
    if left_out := traced.seen - count - len(halves_of[0]):
        notes.append(
            f"{left_out:,} pronouns left out: not both names are seen from there, or their tokens are not known"
        )
    columns = ("site", "layer", "head", "right, choosing", "right", "mention")
    return Table(columns, rows, tuple(notes), {"best": [best[1], best[2]]})


def draw(table: Table, path: Path) -> Path:
    """How often each head is right, from one half (a guess) on; the head that was chosen is outlined."""
    site, maps = table.column("site")[0], []
    for name, title in (("right", "right name over wrong"), ("mention", "most seen mention is right")):
        one = head_map(table, name, site, low=0.5)
        layer, head = table.more["best"]
        title = f"{title} (0.5 to {one.values_RC.max():.2f})"
        maps.append(replace(one, title=title, best=(list(one.rows or ()).index(layer), head)))
    return heat_maps([maps], path, heading="Which name a pronoun looks at")


PRONOUNS = Analysis("pronouns", "gap", ("attention.weights", "attention.mask"), pronouns, draw)

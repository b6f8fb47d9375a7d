"""A question to a model, and the trace that answers it on the page.

T places, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headway.errors import refuse
from headway.explore.payload import ENTRY, KEPT, MOST, payload, strongest, with_note
from headway.generate.spelling import HALF
from headway.generate.tracing import Answering, described, labels, text_labels
from headway.text.characters import BYTES, LONGEST
from headway.text.codec import Codec
from headway.traces import Trace, log_softmax

TOP = 10  # likeliest entries at each place
NAMED = 40  # of the likeliest entries at each place that are sent with their names
SMALL = 4096  # entries of a vocabulary that is named completely
LEAN = ("*.weights", "*.position", "next")
AT_ONCE = 1 << 30  # bytes of weights in memory; more are computed a few layers at a time


@dataclass(frozen=True)
class Question:
    """A text; where the model takes one, a second text; layers and heads by their numbers."""

    text: str
    second: str | None = None
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    beam: int | None = None


def card(model: Answering) -> dict[str, Any]:
    """What the page shows of a model before there is a trace."""
    about = described(model.model, model.name)
    return {
        "name": about["model"], "family": about["family"], "size": about["size"], "context": model.limit,
        "vocabulary": model.vocabulary, "takes": model.takes,
    }  # fmt: skip


def answer(model: Answering, question: Question, most: int = MOST) -> bytes:
    """The trace of a question, as large as the page may have it."""
    return payload(traced(model, question, most), most)


def traced(model: Answering, question: Question, most: int = MOST) -> Trace:
    """All that the page shows, or of a long text as much as it can show."""
    size = card(model)["size"]
    depth = max(size.get(key, 0) for key in ("layers", "encoder_layers", "decoder_layers"))
    layers = tuple(range(depth)) if question.layers is None else question.layers
    places = model.places(question.text)
    # Of one layer: a translator's has three kinds of attention, a model without heads at most one matrix in all.
    kinds = 3 if "decoder_layers" in size else 1
    heads = kinds * (len(question.heads) if question.heads else size["heads"]) if "heads" in size else 1
    weights, vectors = heads * places**2, 8 * kinds * places * size.get("width", 0)
    everything = 2 * len(layers) * (2 * weights + vectors)
    asked_for = question.layers is not None and 8 * len(layers) * weights <= AT_ONCE
    if everything <= most or asked_for or "heads" not in size:
        return _named(model, _asked(model, question, None), most)
    each = max(1, AT_ONCE // (4 * weights))
    if each >= len(layers):
        return _named(model, _asked(model, question, LEAN), most)
    groups = [layers[at : at + each] for at in range(0, len(layers), each)]
    return _named(model, _by_layers(model, question, groups), most)


def _by_layers(model: Answering, question: Question, groups: Sequence[tuple[int, ...]]) -> Trace:
    """A few layers at a time, of which only the strongest weights are kept."""
    whole, *others = (strongest(_asked(model, replace(question, layers=group), LEAN)) for group in groups)
    looked_at = dict(whole.about["looked_at"])
    for part in others:
        whole = replace(whole, tensors=whole.tensors | part.tensors, axes=whole.axes | part.axes)
        looked_at |= part.about["looked_at"]
    whole = replace(whole, about=whole.about | {"looked_at": looked_at})
    return with_note(whole, f"Of each row only the {KEPT} strongest weights are shown: the text is long.")


def _asked(model: Answering, question: Question, tensors: Sequence[str] | None) -> Trace:
    more: dict[str, Any] = {"layers": question.layers, "heads": question.heads, "top": TOP, "tensors": tensors}
    refuse(question.second is not None and model.takes == "one", "this model reads one text: leave the second one out")
    if model.takes == "target" and question.second is None and question.beam is not None:
        more["beam"] = question.beam
    texts = [question.text] if question.second is None else [question.text, question.second]
    return model.trace(*texts, **more)


def _named(model: Answering, trace: Trace, most: int) -> Trace:
    """With the names of what may come next; and in place of the logits, where they are few, log-probabilities: half
    precision has more digits for what is likely."""
    tensors, axes = dict(trace.tensors), dict(trace.axes)
    logits_TV = tensors.pop("logits", None)
    if logits_TV is not None and axes["logits"][-1] == "vocabulary" and 2 * logits_TV.size <= min(ENTRY, most):
        tensors["logp"], axes["logp"] = log_softmax(logits_TV), axes["logits"]
    about = dict(trace.about)
    if "next" in about and "next" in tensors:
        last_V = tensors["next"]
        tokenizer = model.tokenizers[1]
        known = min(len(tokenizer), len(last_V))
        every = [last_V[None], tensors["logp"]] if "logp" in tensors else [last_V[None]]
        rows_RV = np.vstack([some_RV[:, :known] for some_RV in every])  # a model may have more than its tokenizer
        ids = np.unique(np.argsort(-rows_RV)[:, : known if known <= SMALL else NAMED]).tolist()
        about["names"] = dict(zip(map(str, ids), labels(tokenizer, ids), strict=True))
        about |= _in_context(tokenizer, trace)
    return Trace(trace.tracks, tensors, {name: axes[name] for name in tensors}, about)


def _in_context(tokenizer: Codec, trace: Trace) -> dict[str, Any]:
    """What may come next and the tree of a search; a token that is part of a character shows the whole, where those
    before it give the rest."""

    def label(before: Sequence[int], token: int, known: str) -> str:
        return text_labels(tokenizer, [*before[-LONGEST:], token])[-1] if BYTES in known else known

    nexts, track = trace.about["next"], list(trace.tracks.values())[-1]
    fills = len(trace.tracks) == 1 and None not in nexts["taken"]
    before = [track.ids[: at if fills else at + 1] for at in range(len(nexts["ids"]))]
    shown = [
        [label(ids, *entry) for entry in zip(row, known, strict=True)]
        for ids, row, known in zip(before, nexts["ids"], nexts["labels"], strict=True)
    ]
    found: dict[str, Any] = {"next": nexts | {"labels": shown}}
    if "beam" in trace.about:
        paths: list[list[int]] = []
        nodes = []
        for node in trace.about["beam"]["nodes"]:
            path = paths[node["parent"]] if node["parent"] >= 0 else []
            paths.append([*path[-LONGEST:], node["id"]] if node["parent"] >= 0 else [])
            nodes.append(node | {"token": label(path, node["id"], node["token"])})
        found["beam"] = trace.about["beam"] | {"nodes": nodes}
    return found


def spelled(model: Answering, ids: Sequence[int]) -> str:
    """The text of these tokens: one to continue from."""
    for i in ids:
        refuse(not 0 <= i < model.vocabulary, f"there is no token {i}: the vocabulary has {model.vocabulary}")
    text = model.tokenizers[1].decode(ids)
    refuse(text.endswith(HALF), "this token is half a character: no text can continue from it alone")
    return str(text)

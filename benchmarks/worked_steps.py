"""Attention step by step with the numbers of a real head, and why scores are divided by √d.

The computation is numpy's in float64, from the vectors that a trace has; it shares no code with the model.

T queries, S keys, D width, K head width, H heads, N draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.explore.plots import ACCENT, COLOURS, INK, QUIET, inches, new_figure, quiet, save, shades, write
from headway.nn.attention import SelfAttention
from headway.traces import Trace

Array = NDArray[np.float64]
WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
KEYS = 32
DRAWS = 2_000


@dataclass(frozen=True)
class Steps:
    """QKᵀ; QKᵀ/√K; that where the mask lets it through and −∞ elsewhere; softmax; weights times V; their sum."""

    products_TS: Array
    scaled_TS: Array
    masked_TS: Array
    weights_TS: Array
    weighted_TSK: Array
    mixed_TK: Array


def softmax(scores: Array) -> Array:
    """exp(s) / Σ exp(s) along the last axis; the largest is taken off first, which changes nothing but overflow."""
    grown = np.exp(scores - scores.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)


def entropy(weights: Array) -> Array:
    """−Σ w ln w, in nats; 0 ln 0 is 0."""
    return -(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(-1)


def six_steps(q_TK: NDArray[Any], k_SK: NDArray[Any], v_SK: NDArray[Any], visible_TS: NDArray[Any]) -> Steps:
    """Steps 2 to 6; the first, which makes q, k and v, is `projected`."""
    q_TK, k_SK, v_SK = (part.astype(np.float64) for part in (q_TK, k_SK, v_SK))
    products_TS = np.array([[(q * k).sum() for k in k_SK] for q in q_TK])
    scaled_TS = products_TS / np.sqrt(q_TK.shape[1])
    masked_TS = np.where(visible_TS, scaled_TS, -np.inf)
    weights_TS = softmax(masked_TS)
    weighted_TSK = weights_TS[:, :, None] * v_SK
    return Steps(products_TS, scaled_TS, masked_TS, weights_TS, weighted_TSK, weighted_TSK.sum(1))


def of_trace(trace: Trace, site: str, head: int) -> Steps:
    """`site`: `decoder.4.attention`."""
    q, k, v = (trace[f"{site}.{name}"][head] for name in ("queries", "keys", "values"))
    return six_steps(q, k, v, trace[f"{site}.mask"])


def projected(part: SelfAttention, x_TD: Array, head: int) -> list[Array]:
    """Step 1: xW^Q, xW^K, xW^V of one head."""
    weight_ED, bias_E = (p.detach().numpy().astype(np.float64) for p in (part.qkv.weight, part.qkv.bias))
    inner = sum(part.sizes) // 3
    rows = [slice(n * inner + head * part.head_width, n * inner + (head + 1) * part.head_width) for n in range(3)]
    return [x_TD @ weight_ED[at].T + bias_E[at] for at in rows]


def normed(norm: Any, x_TD: NDArray[Any]) -> Array:
    """(x − mean) / √(variance + ε) · gain + shift."""
    x_TD = x_TD.astype(np.float64)
    gain_D, shift_D = (p.detach().numpy().astype(np.float64) for p in (norm.weight, norm.bias))
    spread_T1 = np.sqrt(x_TD.var(-1, keepdims=True) + norm.eps)
    return (x_TD - x_TD.mean(-1, keepdims=True)) / spread_T1 * gain_D + shift_D


def apart(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(np.abs(one.astype(np.float64) - other).max())


def steps_rows(generator: Any, text: str, word: str, layer: int, head: int, path: Path) -> list[dict[str, Any]]:
    """A row for each key of one query, and how far the steps are from the trace."""
    trace, site = generator.trace(text), f"decoder.{layer}.attention"
    found, labels = of_trace(trace, site, head), list(trace.tracks["tokens"].labels)
    block = generator.model.decoder.layers[layer]
    below = "embed.hidden" if layer == 0 else f"decoder.{layer - 1}.hidden"
    made = projected(block.attention, normed(block.around_attention.before, trace[below]), head)
    traced = [trace[f"{site}.{name}"][head] for name in ("queries", "keys", "values")]
    differences = {
        "queries, keys, values": max(apart(*both) for both in zip(traced, made, strict=True)),
        "scores": apart(trace[f"{site}.scores"][head], found.scaled_TS),
        "weights": apart(trace[f"{site}.weights"][head], found.weights_TS),
        "weighted sum": apart(trace[f"{site}.mixed"][head], found.mixed_TK),
    }
    assert max(differences.values()) < 1e-4, differences
    at, (_, k_SK, v_SK) = labels.index(word), traced
    visible_S = trace[f"{site}.mask"][at]
    rows: list[dict[str, Any]] = [
        {
            "what": "step", "key": label, "k": _few(k_SK[s]), "product": round(float(found.products_TS[at, s]), 2),
            "scaled": round(float(found.scaled_TS[at, s]), 2), "visible": "yes" if visible_S[s] else "−∞",
            "weight": round(float(found.weights_TS[at, s]), 3), "v": _few(v_SK[s]),
            "weighted": _few(found.weighted_TSK[at, s]),
        }
        for s, label in enumerate(labels)
    ]  # fmt: skip
    rows.append({"what": "step", "key": "sum", "weight": 1.0, "weighted": _few(found.mixed_TK[at])})
    rows += [{"what": "steps apart", "of": name, "apart": value} for name, value in differences.items()]
    more = {"text": text, "word": word, "layer": layer, "head": head, "q": _few(traced[0][at])}
    rows.append({"what": "steps", "head_width": traced[0].shape[1]} | more)
    deck = softmax(np.array([112.0, 96.0]) / 8)
    rows.append({"what": "deck", "scaled": [14.0, 12.0], "weights": [round(float(w), 2) for w in deck]})
    draw_steps(found, traced, labels, at, path)
    return rows


def elsewhere_rows(generator: Any, texts: Sequence[str], word: str, layer: int, head: int) -> list[dict[str, Any]]:
    """What the same head looks at most from the same word in other sentences."""
    rows = []
    for text in texts:
        trace = generator.trace(text, layers=[layer], heads=[head], tensors="weights")
        labels = trace.tracks["tokens"].labels
        weights_S = trace.attention()[0, 0, labels.index(word)]
        first, second = np.argsort(-weights_S)[:2]
        rows.append({
            "what": "elsewhere", "text": text, "first": labels[first], "weight": round(float(weights_S[first]), 2),
            "second": labels[second], "second weight": round(float(weights_S[second]), 2),
        })  # fmt: skip
    return rows


def _few(vector: NDArray[Any], count: int = 3) -> str:
    written = (f"{value:.2f}" for value in vector[:count])
    return " ".join("0.00" if one == "-0.00" else one.replace("-", "−") for one in written) + " …"


def draw_steps(found: Steps, qkv: Sequence[NDArray[Any]], labels: Sequence[str], at: int, path: Path) -> None:
    """Upper row: queries, keys, values. Lower row: what the steps make of them, the chosen query outlined."""
    size, gap, word = 0.2 * len(labels), 0.3, 0.75
    up = size + 0.45
    figure = new_figure(word + 4 * (size + gap), up + size + 0.2)
    mixed = [("Q", qkv[0]), ("K", qkv[1]), ("V", qkv[2]), ("6. Z = weights · V", found.mixed_TK)]
    for n, (title, values) in enumerate(mixed):
        axes = figure.add_axes(inches(figure, word + n * (size + gap), up, size, size))
        _heat(axes, values, title if n != 0 else "1. Q", np.abs(values).max(), labels if n == 0 else (), at, "RdBu_r")
    shown = np.where(np.isfinite(found.masked_TS), found.masked_TS, np.nan)
    steps = [
        ("2. QKᵀ", found.products_TS, "RdBu_r"), ("3. divided by √d", found.scaled_TS, "RdBu_r"),
        ("masked", shown, "RdBu_r"), ("4. softmax", found.weights_TS, None),
    ]  # fmt: skip
    for n, (title, values, colours) in enumerate(steps):
        axes = figure.add_axes(inches(figure, word + n * (size + gap), 0, size, size))
        top = np.nanmax(np.abs(values if n == 0 or colours is None else found.products_TS)) / (2 if 0 < n < 3 else 1)
        _heat(axes, values, title, top, labels if n == 0 else (), at, colours)
        for s, label in enumerate(labels):
            write(axes, s + 0.62, len(labels) + 0.25, label, 6.5, QUIET, rotation=60, ha="right", va="top",
                  rotation_mode="anchor")  # fmt: skip
    save(figure, path)


def _heat(
    axes: Any, values: NDArray[Any], title: str, top: float, labels: Sequence[str], at: int, colours: str | None
) -> None:
    from matplotlib.patches import Rectangle

    low = -top if colours else 0
    axes.imshow(values, cmap=colours or shades(), vmin=low, vmax=top, aspect="auto",
                extent=(0, values.shape[1], len(values), 0))  # fmt: skip
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.add_patch(Rectangle((0, at), values.shape[1], 1, fill=False, edgecolor=ACCENT, linewidth=1.4, clip_on=False))
    axes.set_title(title, fontsize=9, color=INK, loc="left", pad=4)
    for row, label in enumerate(labels):
        write(axes, -0.02 * values.shape[1] - 0.1, row + 0.5, label, 7.5, ACCENT if row == at else INK, ha="right",
              va="center_baseline")  # fmt: skip


def random_scores(width: int, dice: np.random.Generator) -> dict[str, float]:
    """Queries and keys of N(0, 1): the scores' variance, and the entropy of their softmax over `KEYS` keys."""
    q_NK, k_NSK = dice.standard_normal((DRAWS, width)), dice.standard_normal((DRAWS, KEYS, width))
    products_NS = np.einsum("nk,nsk->ns", q_NK, k_NSK)
    scaled_NS = products_NS / np.sqrt(width)
    return {
        "variance": float(products_NS.var()), "scaled variance": float(scaled_NS.var()),
        "entropy": float(entropy(softmax(products_NS)).mean()),
        "scaled entropy": float(entropy(softmax(scaled_NS)).mean()),
        "largest": float(softmax(products_NS).max(-1).mean()),
        "scaled largest": float(softmax(scaled_NS).max(-1).mean()),
    }  # fmt: skip


def head_scores(traces: Sequence[Trace], stack: str, least: int = 8) -> list[dict[str, float]]:
    """The same of every head of a model, over the queries that see at least so many keys: variance within a row, which
    is all that a softmax sees, and entropy over the most that it could be, ln of the keys."""
    by_head: dict[tuple[int, int], list[list[float]]] = {}
    for trace in traces:
        for layer in trace.layers(stack, "attention.scores"):
            scores_HTS, width = trace[f"{stack}.{layer}.attention.scores"].astype(np.float64), _width(trace)
            visible_TS = trace[f"{stack}.{layer}.attention.mask"]
            for head, scores_TS in enumerate(scores_HTS):
                for scores_S, seen_S in zip(scores_TS, visible_TS, strict=True):
                    if seen_S.sum() < least:
                        continue
                    row, most = scores_S[seen_S], np.log(seen_S.sum())
                    plain = row * np.sqrt(width)
                    told = [plain.var(), row.var(), entropy(softmax(plain)) / most, entropy(softmax(row)) / most]
                    by_head.setdefault((layer, head), []).append([float(one) for one in told])
    names = ("variance", "scaled variance", "entropy", "scaled entropy")
    return [
        {"layer": layer, "head": head} | dict(zip(names, np.mean(rows, 0).tolist(), strict=True))
        for (layer, head), rows in sorted(by_head.items())
    ]


def _width(trace: Trace) -> int:
    return int(trace.about["size"]["width"] // trace.about["size"]["heads"])


def variance_rows(models: dict[str, tuple[Any, str]], texts: Sequence[str], path: Path) -> list[dict[str, Any]]:
    """On random vectors by width, and over the heads of each model; `models`: name, model and stack."""
    dice = np.random.default_rng(1)
    drawn = [{"what": "variance", "width": width} | random_scores(width, dice) for width in WIDTHS]
    rows: list[dict[str, Any]] = [{key: _round(value) for key, value in row.items()} for row in drawn]
    by_model = {}
    for name, (loaded, stack) in models.items():
        traces = [loaded.trace(text, tensors=["attention.scores", "attention.mask"]) for text in texts]
        heads = head_scores(traces, stack)
        by_model[name] = heads
        middle = {key: _round(float(np.median([head[key] for head in heads]))) for key in list(heads[0])[2:]}
        ends = [min(head["variance"] for head in heads), max(head["variance"] for head in heads)]
        rows.append({"what": "heads variance", "model": name, "heads": len(heads), "head width": _width(traces[0]),
                     "least": _round(ends[0]), "most": _round(ends[1])} | middle)  # fmt: skip
    draw_variance(rows[: len(WIDTHS)], by_model, path)
    return rows


def _round(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def draw_variance(rows: Sequence[dict[str, Any]], models: dict[str, list[dict[str, float]]], path: Path) -> None:
    """Variance by width, entropy by width, and the heads of real models: entropy without the division and with it."""
    figure = new_figure(10.4, 3.0)
    panels = [figure.add_axes((left, 0, 0.27, 1)) for left in (0.0, 0.355, 0.71)]
    widths = [row["width"] for row in rows]
    for axes, key in zip(panels, ("variance", "entropy"), strict=False):
        for colour, name, which in ((COLOURS[1], "q·k", key), (COLOURS[0], "q·k / √d", f"scaled {key}")):
            axes.plot(widths, [row[which] for row in rows], color=colour, linewidth=1.8, marker="o", markersize=4)
            write(axes, widths[-1] * 1.3, rows[-1][which], name, 9, colour, va="center")
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 8, 64, 512], ["1", "8", "64", "512"])
        axes.minorticks_off()
        quiet(axes, below="width d")
    panels[0].set_yscale("log", base=2)
    panels[0].set_yticks([1, 8, 64, 512], ["1", "8", "64", "512"])
    panels[0].minorticks_off()
    panels[1].axhline(np.log(KEYS), color=QUIET, linewidth=1, linestyle=(0, (1, 2)))
    write(panels[1], 1, np.log(KEYS) + 0.06, f"ln {KEYS}, all keys alike", 8, QUIET)
    panels[1].set_ylim(0, np.log(KEYS) + 0.3)
    for colour, (name, heads) in zip(COLOURS, models.items(), strict=False):
        x, y = ([head[key] for head in heads] for key in ("entropy", "scaled entropy"))
        panels[2].scatter(x, y, s=14, color=colour, alpha=0.75, linewidth=0, label=name)
    panels[2].plot([0, 1], [0, 1], color=QUIET, linewidth=1, linestyle=(0, (1, 2)))
    panels[2].set(xlim=(0, 1.02), ylim=(0, 1.02))
    panels[2].legend(frameon=False, fontsize=8, labelcolor=INK, loc="lower right", handletextpad=0.2)
    quiet(panels[2], below="entropy over ln of the keys, without √d")
    titles = (
        "variance of the scores",
        f"entropy of the softmax over {KEYS} keys",
        "real heads, with √d (1: all keys alike)",
    )
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, fontsize=10, color=INK, loc="left")
    save(figure, path)

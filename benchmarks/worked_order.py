"""Masks, positions, and what becomes of order: each asked of headway's own parts.

T queries, S keys, D width, K head width, H heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.explore.plots import COLOURS, INK, QUIET, inches, new_figure, quiet, save
from headway.models import parts
from headway.models.rung import RUNGS, Attention, Rung, RungConfig, Tanh
from headway.nn.attention import SelfAttention
from headway.nn.mask import Causal, Everything, Global, Mask, Padding, Random, Scene, Segments, Window
from headway.nn.position import LinearBias, RelativeBias, Rotary, Sinusoidal, sinusoid
from headway.nn.view import SEE_ALL

CPU = torch.device("cpu")
PLACES = 12
SCENE = Scene(
    PLACES, PLACES, CPU, key_lengths_B=torch.tensor([9]),
    query_segments_BT=torch.tensor([[0] * 5 + [1] * 4 + [2] * 3]),
    key_segments_BS=torch.tensor([[0] * 5 + [1] * 4 + [2] * 3]),
)  # fmt: skip
MASKS: dict[str, Mask] = {
    "Everything()": Everything(),
    "Causal()": Causal(),
    "Padding(), 9 of 12 words": Padding(),
    "Segments(), 5 + 4 + 3": Segments(),
    "Window(2, 2)": Window(2, 2),
    "Causal() & Padding()": Causal() & Padding(),
    "Causal() & Segments()": Causal() & Segments(),
    "Window(1, 1) | Global(2) | Random(0.1)": Window(1, 1) | Global(2) | Random(0.1),
}
FARTHEST, WIDTH, HEAD_WIDTH, HEADS = 128, 64, 32, 8
VOCABULARY = 50
PAIRS = (
    ("The dog bites the man.", "The man bites the dog."),
    ("Mary gave John a book.", "John gave Mary a book."),
    ("He only said that she sings.", "Only he said that she sings."),
)


def mask_rows(path: Path) -> list[dict[str, Any]]:
    """How many of the pairs each mask shows, and the picture of all."""
    seen = {name: mask.matrix(SCENE)[0, 0].numpy() for name, mask in MASKS.items()}
    draw_masks(seen, path)
    return [{"what": "mask", "mask": name, "visible": int(one.sum()), "of": one.size} for name, one in seen.items()]


def draw_masks(seen: dict[str, NDArray[np.bool_]], path: Path) -> None:
    """Queries downward, keys to the right; dark is visible."""
    from matplotlib.colors import ListedColormap

    side, gap, lift, across = 1.75, 0.4, 0.5, 4
    figure = new_figure(across * (side + gap), 2 * (side + lift))
    for n, (name, one) in enumerate(seen.items()):
        at = inches(figure, n % across * (side + gap), (1 - n // across) * (side + lift), side, side)
        axes = figure.add_axes(at)
        axes.pcolormesh(
            one, cmap=ListedColormap(["#e9eef3", "#2f6fa3"]), vmin=0, vmax=1, edgecolors="white", linewidth=1
        )
        axes.set(xlim=(0, PLACES), ylim=(PLACES, 0), xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.set_title(name.replace(" | Random", "\n| Random"), fontsize=8.5, color=INK, loc="left", pad=4)
        if n % across == 0:
            axes.set_ylabel("who looks", fontsize=8, color=QUIET, labelpad=3)
        if n >= across:
            axes.set_xlabel("at whom", fontsize=8, color=QUIET, labelpad=3)
    save(figure, path)


def added_similarity(table_PD: Tensor, far: Sequence[int]) -> list[float]:
    """Mean cosine of the vectors of two places so far apart."""
    unit_PD = torch.nn.functional.normalize(table_PD.double(), dim=-1)
    return [float((unit_PD[: len(unit_PD) - d] * unit_PD[d:]).sum(-1).mean()) for d in far]


def turned_similarity(part: Rotary, far: Sequence[int]) -> list[float]:
    """qᵀk/|q||k| of a query and an equal key so far before it, each turned by where it stands; mean over random q."""
    dice = torch.Generator().manual_seed(0)
    q_1HTK = torch.randn(1, 500, 1, part.head_width, generator=dice).expand(-1, -1, max(far) + 1, -1)
    turned_HTK = part.rotate(q_1HTK, q_1HTK)[0][0].double()
    norm_H = turned_HTK[:, 0].square().sum(-1)
    return [float(((turned_HTK[:, max(far)] * turned_HTK[:, max(far) - d]).sum(-1) / norm_H).mean()) for d in far]


def position_rows(encoder: Any, path: Path, bias_path: Path) -> list[dict[str, Any]]:
    """Similarity by distance of positions that add and that turn; what is added to the score by those that bias."""
    far = list(range(FARTHEST))
    made = sinusoid(torch.arange(512), WIDTH)
    learned_PD = encoder.model.encoder.embed.position.table.weight.detach()
    curves = {
        "sinusoidal": added_similarity(made, far),
        "learned (MiniLM)": added_similarity(learned_PD, far),
        "rotary": turned_similarity(Rotary(HEAD_WIDTH), far),
    }
    scene = Scene(FARTHEST, FARTHEST, CPU)
    bias_HS = LinearBias(HEADS).bias(torch.zeros(1, HEADS, FARTHEST, 1), scene)[0, :, -1].flip(-1).numpy()
    buckets = RelativeBias(HEADS).bucket(torch.arange(FARTHEST)).tolist()
    draw_positions(made[:64].numpy(), curves, path)
    draw_biases(bias_HS, buckets, bias_path)
    marks = (0, 1, 2, 4, 8, 16, 32, 64)
    rows = [
        {"what": "position", "distance": d, **{name: round(values[d], 3) for name, values in curves.items()},
         "first slope": round(float(bias_HS[0, d]), 3), "last slope": round(float(bias_HS[-1, d]), 3),
         "bucket": buckets[d]}
        for d in marks
    ]  # fmt: skip
    waves = 2 * np.pi * 10_000 ** (np.arange(0, WIDTH, 2) / WIDTH)
    ends = {"shortest": round(float(waves[0]), 2), "longest": round(float(waves[-1]))}
    return [*rows, {"what": "waves", "width": WIDTH} | ends]


def draw_positions(table_PD: NDArray[Any], curves: dict[str, list[float]], path: Path) -> None:
    figure = new_figure(9.6, 2.5)
    heat, cosines = figure.add_axes((0, 0, 0.46, 1)), figure.add_axes((0.54, 0, 0.4, 1))
    heat.imshow(table_PD, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    for colour, (name, values) in zip(COLOURS, curves.items(), strict=False):
        cosines.plot(values, color=colour, linewidth=1.6, label=name)
    place = {"loc": "upper right", "ncols": len(curves), "handlelength": 1.2}
    cosines.legend(frameon=False, fontsize=8.5, labelcolor="linecolor", **place)
    cosines.set_ylim(-0.15, 1.2)
    quiet(cosines, below="distance")
    cosines.set_title("cosine of two places, by distance", fontsize=10, color=INK, loc="left")
    heat.set_title("sinusoidal: {} places, width {}".format(*table_PD.shape), fontsize=10, color=INK, loc="left")
    heat.tick_params(colors=QUIET, labelsize=8, length=0)
    heat.spines[:].set_visible(False)
    heat.set_xlabel("unit", loc="right", fontsize=9, color=QUIET)
    heat.set_ylabel("place", fontsize=9, color=QUIET)
    save(figure, path)


def draw_biases(bias_HS: NDArray[Any], buckets: Sequence[int], path: Path) -> None:
    figure, lowest = new_figure(9.6, 2.3), -16
    lines, steps = figure.add_axes((0, 0, 0.4, 1)), figure.add_axes((0.54, 0, 0.4, 1))
    for head, values_S in enumerate(bias_HS):
        lines.plot(values_S, color=COLOURS[0], linewidth=1.3, alpha=1 - 0.09 * head)
        if values_S[-1] > lowest and head != len(bias_HS) - 2:  # no room for the last but one
            lines.text(len(values_S) + 2, values_S[-1], f"head {head}", fontsize=8, color=COLOURS[0], va="center")
    lines.set_ylim(lowest, 0.5)
    steps.plot(buckets, color=COLOURS[1], linewidth=1.6, drawstyle="steps-post")
    for axes, title in ((lines, "linear bias: added to the score"), (steps, "relative bias: which learned number")):
        quiet(axes, below="distance")
        axes.set_title(title, fontsize=10, color=INK, loc="left")
    save(figure, path)


def drawn(config: RungConfig, seed: int = 0) -> Rung:
    """A rung with all weights drawn, in float64."""
    torch.manual_seed(seed)
    model = Rung(replace(config, width=32, max_length=24), VOCABULARY).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return model


def without_order(layers: int) -> RungConfig:
    """Causal attention, no positions, so many layers."""
    return RungConfig(Attention(heads=4), parts.NoPosition(), parts.NoNorm(), Tanh(), layers)


@torch.no_grad()
def shuffled(attend: Callable[[Tensor], Tensor], x_1TD: Tensor, order: Tensor) -> float:
    """max |f(Px) − Pf(x)|: 0 where a function treats a text as a set, and gives each word its own answer."""
    return float((attend(x_1TD[:, order]) - attend(x_1TD)[:, order]).abs().max())


@torch.no_grad()
def last_word(model: Rung, ids_1T: Tensor, other_1T: Tensor) -> float:
    """How far the answer behind the last word moves if the text is the other."""
    return float((model(ids_1T)[0][:, -1] - model(other_1T)[0][:, -1]).abs().max())


def order_rows() -> list[dict[str, Any]]:
    """Largest differences in float64, of drawn weights and random words."""
    torch.manual_seed(0)
    part, x_1TD, order = SelfAttention(32, 4).double(), torch.randn(1, 14, 32).double(), torch.randperm(14)
    place = Sinusoidal(32)
    causal = Causal().view(Scene(14, 14, CPU))
    free: dict[str, Callable[[Tensor], Tensor]] = {
        "self-attention, no positions": lambda x_1TD: part(x_1TD, SEE_ALL),
        "self-attention, sinusoidal": lambda x_1TD: part(place.add(x_1TD), SEE_ALL),
        "self-attention, causal, no positions": lambda x_1TD: part(x_1TD, causal),
    }
    rows = [(name, "all words shuffled", shuffled(attend, x_1TD, order)) for name, attend in free.items()]
    ids_1T = torch.randperm(VOCABULARY)[None, :14]  # no word twice
    before_1T = torch.cat([ids_1T[:, :-1].flip(1), ids_1T[:, -1:]], 1)
    swapped_1T = ids_1T.clone()
    swapped_1T[0, [4, 13]] = ids_1T[0, [13, 4]]
    for name, config in (
        ("bag of words", RUNGS["bow"]), ("causal attention, 1 layer", without_order(1)),
        ("causal attention, 2 layers", without_order(2)), ("the same, 1 layer, relative bias", RUNGS["positions"]),
    ):  # fmt: skip
        model = drawn(config)
        rows.append((name, "words before the last turned round", last_word(model, ids_1T, before_1T)))
        rows.append((name, "last word and another change places", last_word(model, ids_1T, swapped_1T)))
    return [{"what": "order", "model": name, "change": how, "apart": float(f"{far:.2g}")} for name, how, far in rows]


def sentence_rows(encoder: Any) -> list[dict[str, Any]]:
    """Sentences of the same words in another order: the cosine of their vectors, with the model's positions and with
    one and the same place for all words."""
    table = encoder.model.encoder.embed.position.table.weight
    kept, rows = table.detach().clone(), []
    for first, second in PAIRS:
        found = {}
        for name, used in (("with positions", kept), ("without", kept.mean(0).expand_as(kept))):
            table.data.copy_(used)
            one, other = encoder.embed([first, second], unit=True).astype(np.float64)
            found[name] = round(float(one @ other), 4)
        table.data.copy_(kept)
        rows.append({"what": "sentences", "first": first, "second": second} | found)
    return rows

"""Who, did what, to whom: read by one head, and by several of the same width together.

Sentences of the demo's grammar in which both nouns could do it to the other (the owl hears the boy; the boy hears the
owl), all in the singular, so that no ending tells who it was. One place before the sentence reads it by one layer of
attention; from the vector that it gets there, three linear maps must tell the subject's noun, the verb and the object's
noun.

B rows, T length, D width, V words, R the three roles.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headway
from headway.explore.plots import COLOURS, INK, QUIET, inches, new_figure, quiet, save, shades, write
from headway.nn.attention import SelfAttention
from headway.nn.mask import Padding, Scene
from headway.nn.position import Sinusoidal
from headway.nn.view import View
from headway.recipes.grammar import Dice, draw_how, draw_noun_phrase, draw_place
from headway.recipes.grammar_rules import act
from headway.recipes.grammar_words import ANIMATE, NEGATIONS, VERBS
from headway.train.optimiser import AdamW, Masters
from headway.train.schedule import Cosine

ROLES = ("who", "did what", "to whom")
BLANK, READER = 0, 1
SENTENCES, TESTED, ROWS = 12_000, 2_000, 128


@dataclass(frozen=True)
class Told:
    """Words of a sentence, and the numbers of those that say who, did what, to whom."""

    words: tuple[str, ...]
    roles: tuple[int, int, int]


def told(dice: Dice) -> Told:
    mutual = [verb for verb in VERBS.values() if {*ANIMATE} <= {*verb.subjects} & {*verb.objects}]
    while True:
        subject, verb = draw_noun_phrase(dice, ANIMATE, richness=0.15), dice.pick(mutual)
        how = draw_how(dice, verb.lasting)
        thing = draw_noun_phrase(dice, ANIMATE, richness=0.3, negated=how in NEGATIONS)
        rest = thing.phrase + draw_place(dice, thing.kind) if dice.happens(0.2) else thing.phrase
        clause = act(subject, verb, rest, how)
        if not subject.plural and not thing.plural:
            break
    begins = len(clause.source) - len(rest.source)
    return Told(clause.source, (len(subject.phrase.source) - 1, begins - 1, begins + len(thing.phrase.source) - 1))


@dataclass(frozen=True)
class Corpus:
    """The first `TESTED` sentences are for the test; no sentence is there twice."""

    told: list[Told]
    vocabulary: list[str]
    text_BT: Tensor
    lengths_B: Tensor
    places_BR: Tensor

    @property
    def answers_BR(self) -> Tensor:
        return self.text_BT.gather(1, self.places_BR)


def corpus(count: int = SENTENCES, seed: int = 0) -> Corpus:
    dice, found = Dice(seed), dict[tuple[str, ...], Told]()
    while len(found) < count:
        one = told(dice)
        found.setdefault(one.words, one)
    sentences = list(found.values())
    vocabulary = ["", "(reader)", *sorted({word for one in sentences for word in one.words})]
    number = {word: n for n, word in enumerate(vocabulary)}
    text_BT = torch.full((count, 1 + max(len(one.words) for one in sentences)), BLANK)
    text_BT[:, 0] = READER
    for row, one in enumerate(sentences):
        text_BT[row, 1 : 1 + len(one.words)] = torch.tensor([number[word] for word in one.words])
    lengths_B = torch.tensor([1 + len(one.words) for one in sentences])
    return Corpus(sentences, vocabulary, text_BT, lengths_B, torch.tensor([one.roles for one in sentences]) + 1)


class Equal(nn.Module):
    """1/S Σ_s x_s W^V W^O: an average that nobody chooses."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x_BTD: Tensor, view: View) -> Tensor:
        seen = view.matrix(x_BTD.shape[1], x_BTD.shape[1], x_BTD.device)
        assert seen is not None
        weights_BTS = seen[:, 0].to(x_BTD.dtype)
        answer_BTD: Tensor = self.output(weights_BTS / weights_BTS.sum(-1, keepdim=True) @ self.value(x_BTD))
        return answer_BTD


class Reader(nn.Module):
    """W_r attention(x + p) at the first place, for each role r. `heads` 0: equal weights; `inner`: a layer of ReLU in
    between."""

    def __init__(self, words: int, width: int, heads: int, inner: int = 0) -> None:
        super().__init__()
        self.table, self.position = nn.Embedding(words, width), Sinusoidal(width)
        self.attention = SelfAttention(width, heads) if heads else Equal(width)
        self.between = nn.Sequential(nn.Linear(width, inner), nn.ReLU()) if inner else nn.Identity()
        self.roles = nn.Linear(inner or width, len(ROLES) * words)

    def forward(self, text_BT: Tensor, lengths_B: Tensor) -> Tensor:
        length = text_BT.shape[1]
        view = Padding().view(Scene(length, length, text_BT.device, key_lengths_B=lengths_B))
        read_BD = self.attention(self.position.add(self.table(text_BT)), view)[:, 0]
        scores_BRV: Tensor = self.roles(self.between(read_BD)).unflatten(-1, (len(ROLES), -1))
        return scores_BRV


def trained(data: Corpus, width: int, heads: int, inner: int, steps: int, seed: int) -> Reader:
    torch.manual_seed(seed)
    model = Reader(len(data.vocabulary), width, heads, inner)
    masters, schedule = Masters(model.named_parameters(), AdamW(0.9, 0.99, 1e-8, 0.01), clip=1.0), Cosine(5e-3, 50)
    dice, answers_BR = torch.Generator().manual_seed(seed), data.answers_BR
    for step in range(steps):
        rows = torch.randint(TESTED, len(data.told), (ROWS,), generator=dice)
        scores_BRV = model(data.text_BT[rows], data.lengths_B[rows])
        masters.zero()
        F.cross_entropy(scores_BRV.flatten(0, 1), answers_BR[rows].flatten()).backward()
        masters.set_rate(schedule.rate(step + 1, steps))
        masters.step()
    return model.eval()


@torch.no_grad()
def judged(model: Reader, data: Corpus) -> dict[str, Any]:
    """On the test sentences: the share of right answers by role and of all three, and for each head how often the word
    that it looks at most is that of the role."""
    with headway.trace(model, tensors="weights") as seen:
        said_BR = model(data.text_BT[:TESTED], data.lengths_B[:TESTED]).argmax(-1)
    right_BR = said_BR == data.answers_BR[:TESTED]
    found: dict[str, Any] = dict(zip(ROLES, right_BR.double().mean(0).tolist(), strict=True))
    found["all three"] = float(right_BR.all(-1).double().mean())
    for weights_BHTS in seen.tensors.values():
        looked_BH = weights_BHTS[:, :, 0].argmax(-1)
        hits_HR = (looked_BH[:, :, None] == data.places_BR[:TESTED, None]).double().mean(0)
        found["heads"] = hits_HR.tolist()
    return found


@torch.no_grad()
def by_word(model: Reader, data: Corpus) -> float:
    """Who and whom change places: how often does the head that looks most at one of them stay with the same noun, not
    with the same place? Of the head that finds who best."""
    rows, places_BR = torch.arange(TESTED), data.places_BR[:TESTED]
    turned_BT = data.text_BT[:TESTED].clone()
    for here, there in ((0, 2), (2, 0)):
        turned_BT[rows, places_BR[:, here]] = data.text_BT[rows, places_BR[:, there]]
    first_BH = []
    for text_BT in (data.text_BT[:TESTED], turned_BT):
        with headway.trace(model, tensors="weights") as seen:
            model(text_BT, data.lengths_B[:TESTED])
        weights_BHS = next(iter(seen.tensors.values()))[:, :, 0]
        who_BH, whom_BH = (weights_BHS[rows, :, places_BR[:, role]] for role in (0, 2))
        first_BH.append(who_BH > whom_BH)
    head = int(first_BH[0].double().mean(0).argmax())
    other_B = data.answers_BR[:TESTED, 0] != data.answers_BR[:TESTED, 2]  # the cow sees the cow
    return float((first_BH[0] != first_BH[1])[other_B, head].double().mean())


@torch.no_grad()
def placeless(model: Reader, data: Corpus) -> float:
    """All three right, if the weights stay but the values are of the words alone, without their places."""
    part, text_BT = model.attention, data.text_BT[:TESTED]
    with headway.trace(model, tensors="weights") as seen:
        model(text_BT, data.lengths_B[:TESTED])
    weights_BHS = next(iter(seen.tensors.values()))[:, :, 0]
    v_BTHK = part.qkv(model.table(text_BT)).chunk(3, -1)[2].unflatten(-1, (part.heads, -1))
    read_BD = part.output(torch.einsum("bhs,bshk->bhk", weights_BHS, v_BTHK).flatten(1))
    said_BR = model.roles(model.between(read_BD)).unflatten(-1, (len(ROLES), -1)).argmax(-1)
    return float((said_BR == data.answers_BR[:TESTED]).all(-1).double().mean())


CASES = [(24, 0, 0), (24, 1, 0), (24, 2, 0), (24, 3, 0), (24, 6, 0), (24, 1, 96), (48, 1, 0), (48, 3, 0)]


def name_of(heads: int, inner: int) -> str:
    named = {0: "no head: the plain mean", 1: "one head"}.get(heads, f"{heads} heads")
    return f"{named}, a layer of ReLU behind it" if inner else named


def roles_rows(steps: int, seeds: int, path: Path) -> list[dict[str, Any]]:
    """A row for each kind of reader: means over seeds, and the lowest and highest of all three right."""
    data, rows, shown = corpus(), [], {}
    for width, heads, inner in CASES:
        start, found = time.perf_counter(), []
        for seed in range(seeds):
            model = trained(data, width, heads, inner, steps, seed)
            more = {"by word": by_word(model, data), "placeless": placeless(model, data)} if heads else {}
            found.append(judged(model, data) | more)
            if seed == 0:
                shown[width, heads, inner] = model
        row = {key: round(float(np.mean([one[key] for one in found])), 3) for key in (*ROLES, "all three")}
        ends = [round(end([one["all three"] for one in found]), 3) for end in (min, max)]
        looks = np.mean([np.max(one["heads"], 0) for one in found], 0).round(2).tolist() if heads else [None] * 3
        rows.append({
            "what": "roles", "width": width, "reader": name_of(heads, inner), "weights": _weights(model), **row,
            "lowest": ends[0], "highest": ends[1], "seeds": seeds,
            **{f"best head: {role}": hit for role, hit in zip(ROLES, looks, strict=True)},
            **{key: round(float(np.mean([one[key] for one in found])), 3) if heads else None
               for key in ("by word", "placeless")},
            "seconds": round((time.perf_counter() - start) / seeds, 1),
        })  # fmt: skip
    draw_roles(rows, data, shown, path)
    return rows


def _weights(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def _short(weight: float) -> str:
    return f"{weight:.2f}".removeprefix("0")


@torch.no_grad()
def draw_roles(rows: Sequence[dict[str, Any]], data: Corpus, shown: dict[Any, Reader], path: Path) -> None:
    """Left: the heads of two readers of width 48 on one test sentence. Right: all three roles right."""
    figure = new_figure(11, 3.3)
    at = next(n for n, one in enumerate(data.told) if len(one.words) >= 7)
    sentence, cell = data.told[at], 0.42
    words = sentence.words
    bottom = 2.4
    for heads in (1, 3):
        model = shown.get((48, heads, 0))
        if model is None:
            continue
        with headway.trace(model, tensors="weights") as seen:
            model(data.text_BT[at : at + 1], data.lengths_B[at : at + 1])
        weights_HS = next(iter(seen.tensors.values()))[0, :, 0, 1 : 1 + len(words)].numpy()
        bottom -= heads * cell
        axes = figure.add_axes(inches(figure, 0.8, bottom, cell * len(words), heads * cell))
        axes.pcolormesh(weights_HS, cmap=shades(), vmin=0, vmax=1, edgecolors="white", linewidth=1.5)
        axes.set(xlim=(0, len(words)), ylim=(heads, 0), xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        middle: dict[str, Any] = {"va": "center_baseline"}
        for head, weights_S in enumerate(weights_HS):
            write(axes, -0.15, head + 0.5, "one head" if heads == 1 else f"head {head}", 8.5, ha="right", **middle)
            for place, weight in enumerate(weights_S):
                if weight > 0.05:
                    colour = "white" if weight > 0.55 else INK
                    write(axes, place + 0.5, head + 0.52, _short(weight), 7, colour, ha="center", **middle)
        if heads == 1:
            for place, word in enumerate(words):
                role = dict(zip(sentence.roles, COLOURS, strict=False)).get(place, QUIET)
                write(axes, place + 0.45, -0.2, word, 9, role, rotation=45, rotation_mode="anchor", ha="left")
        bottom -= 0.3
    for n, role in enumerate(ROLES):
        write(figure, (0.8 + 1.0 * n) / 11, (bottom + 0.1) / 3.3, role, 9, COLOURS[n], va="top")
    bars = figure.add_axes((0.66, 0, 0.33, 1))
    names = [f"{row['reader'].replace(', a layer of ReLU behind it', ' + ReLU')}, width {row['width']}" for row in rows]
    places, means = np.arange(len(rows)), np.array([row["all three"] for row in rows])
    reach = np.abs(np.array([[row["lowest"], row["highest"]] for row in rows]).T - means)
    bars.barh(places, means, xerr=reach, color=COLOURS[0], height=0.6, ecolor=INK, error_kw={"linewidth": 1})
    bars.set_yticks(places, names)
    bars.invert_yaxis()
    bars.set_xlim(0, 1.02)
    quiet(bars)
    bars.tick_params(axis="y", labelsize=8.5, labelcolor=INK)
    bars.set_title("who, what and whom all right", fontsize=10, color=INK, loc="left")
    save(figure, path)

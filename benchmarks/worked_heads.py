"""What heads look at: words of a translation, and the noun that "it" stands for.

L layers, H heads, T target words, S source words.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.evaluate.alignment import best_head
from headway.explore.picture import alignment_picture
from headway.explore.plots import ACCENT, COLOURS, INK, QUIET, new_figure, quiet, save, shades, write
from headway.generate.attention import merge_words
from headway.recipes.demo import attended, owners
from headway.recipes.grammar import Sentence, splits, words
from headway.traces import Trace

LONGEST = 10  # words of the sentence that is shown


@dataclass(frozen=True)
class Choice:
    """A sentence whose last word decides which of two nouns "it" is."""

    text: str
    nouns: tuple[str, str]
    ends: tuple[str, str]

    def sentence(self, which: int) -> str:
        return self.text.format(self.ends[which])


CHOICES = (
    Choice("The animal didn't cross the street because it was too {}.", ("animal", "street"), ("tired", "wide")),
    Choice("The trophy did not fit in the suitcase because it was too {}.", ("trophy", "suitcase"), ("big", "small")),
    Choice("The stone broke the window because it was too {}.", ("stone", "window"), ("hard", "thin")),
    Choice("The boat could not pass the bridge because it was too {}.", ("boat", "bridge"), ("tall", "low")),
    Choice("The dog did not eat the bone because it was not {}.", ("dog", "bone"), ("hungry", "fresh")),
    Choice("The truck could not leave the garage because it was too {}.", ("truck", "garage"), ("long", "narrow")),
    Choice("The sheet did not cover the bed because it was too {}.", ("sheet", "bed"), ("short", "long")),
    Choice("The cat did not climb the tree because it was too {}.", ("cat", "tree"), ("lazy", "high")),
)


def crossings(sentence: Sentence) -> int:
    """Pairs of links that cross: how far a translation is from word after word."""
    links = sorted(sentence.sure)
    return sum(t > other for n, (_, t) in enumerate(links) for _, other in links[n:])


def alignment_rows(translator: Any, path: Path) -> list[dict[str, Any]]:
    """The test sentence of at most `LONGEST` words whose links cross most, along the beam's own translation, by the
    head that aligns best on validation sentences."""
    _, valid, test = splits()
    best = best_head([attended(translator, s) for s in valid[:200]], [attended(translator, s) for s in test])
    sentence = max((s for s in test if len(words(s.source)) <= LONGEST), key=crossings)
    trace = translator.trace(sentence.source, beam=4, tensors="cross.weights")
    target = trace.tracks["target"]
    said = translator.target_tokenizer.decode([i for n, i in enumerate(target.ids) if n not in target.specials])
    assert said == sentence.target, f"the beam says {said}, the grammar {sentence.target}: gold links do not fit"
    weights_TS = by_words(trace, translator, sentence)[best.layer, best.head]
    alignment_picture(weights_TS, words(sentence.source), words(sentence.target), path, gold=sentence.sure,
                      possible=sentence.possible)  # fmt: skip
    rows = [
        {"what": "aligned", "target": word, "source": words(sentence.source)[int(row.argmax())],
         "weight": round(float(row.max()), 2),
         "gold": ", ".join(words(sentence.source)[s] for s, t in sorted(sentence.sure) if t == at)}
        for at, (word, row) in enumerate(zip(words(sentence.target), weights_TS, strict=True))
    ]  # fmt: skip
    # Row t is of the piece that is then written.
    pieces_TS = trace.attention("decoder", "cross")[best.layer, best.head]
    for piece, row in zip((*target.labels[1:], "</s>"), pieces_TS, strict=True):
        at = int(row.argmax())
        rows.append({"what": "aligned piece", "target": piece, "source": trace.tracks["source"].labels[at],
                     "weight": round(float(row[at]), 2)})  # fmt: skip
    told = {"layer": best.layer, "head": best.head, "AER on test": round(best.reported.aer, 3)}
    nodes = trace.about["beam"]["nodes"]
    held = {"hypotheses held": len(nodes) - 1, "finished": sum(node["finished"] for node in nodes)}
    return [*rows, {"what": "alignment", "source": sentence.source, "target": said} | told | held]


def by_words(trace: Trace, translator: Any, sentence: Sentence) -> NDArray[np.float64]:
    """Cross-attention of every head over the grammar's words: (L, H, T, S)."""
    source, target = trace.tracks["source"], trace.tracks["target"]
    pieces = [
        tokenizer.tokens([i for n, i in enumerate(track.ids) if n not in track.specials])
        for tokenizer, track in ((translator.source_tokenizer, source), (translator.target_tokenizer, target))
    ]
    owner = owners(pieces[0], words(sentence.source)), owners(pieces[1], words(sentence.target))
    return merge_words(trace.attention("decoder", "cross"), [*owner[1], -1], [*owner[0], -1])


def looks(loaded: Any, choice: Choice, which: int, at: str = "it") -> NDArray[np.float64]:
    """Attention of every head from the word `at` (or from the word that decides, ``) to the two nouns: (L, H, 2)."""
    trace = loaded.trace(choice.sentence(which), tensors="attention.weights")
    track = trace.tracks["tokens"]
    word = [track.spelled[w].strip(".").lower() if w >= 0 else "" for w in track.words or ()]
    query = word.index(at or choice.ends[which])
    keys = [[place for place, one in enumerate(word) if one == noun] for noun in choice.nouns]
    weights_LHS = trace.attention()[:, :, query].astype(np.float64)
    return np.stack([weights_LHS[..., places].sum(-1) for places in keys], -1)


def switches(both_2LH2: NDArray[np.float64]) -> NDArray[np.int64]:
    """By head: 1 it looks more at the right noun in both sentences, −1 at the wrong one in both, 0 at the same noun."""
    first_2LH = both_2LH2[..., 0] > both_2LH2[..., 1]
    return first_2LH[0].astype(np.int64) - first_2LH[1].astype(np.int64)


def it_rows(models: dict[str, Any], shown: tuple[int, int], path: Path) -> list[dict[str, Any]]:
    """`shown`: layer and head of the first model that is told by its numbers."""
    rows: list[dict[str, Any]] = []
    places = {f"{name}, from it": (loaded, "it") for name, loaded in models.items()}
    places |= {f"{name}, from the word that decides": (loaded, "") for name, loaded in models.items()}
    for name, (loaded, at) in places.items():
        both = np.stack([[looks(loaded, choice, which, at) for which in (0, 1)] for choice in CHOICES])
        turned_CLH = np.stack([switches(one) for one in both])
        first_CLH = both[:, 0, ..., 0] > both[:, 0, ..., 1]
        deck, moved = turned_CLH[0], np.abs(both[:, 0] - both[:, 1]).max()
        right_LH = (turned_CLH == 1).sum(0)
        rows.append({
            "what": "it", "who": name, "heads": deck.size, "right": int((deck == 1).sum()),
            "wrong": int((deck == -1).sum()), "first both": int(((deck == 0) & first_CLH[0]).sum()),
            "second both": int(((deck == 0) & ~first_CLH[0]).sum()), "mean right": round(float(right_LH.mean()), 2),
            "mean wrong": round(float((turned_CLH == -1).sum(0).mean()), 2), "best right": int(right_LH.max()),
            "of": len(CHOICES), "moved": float(f"{moved:.2g}"),
        })  # fmt: skip
    first = next(iter(models.values()))
    for choice in CHOICES:
        pair = np.stack([looks(first, choice, which) for which in (0, 1)])[:, shown[0], shown[1]]
        rows.append({
            "what": "it head", "sentence": choice.text.format(" / ".join(choice.ends)),
            "first": " / ".join(f"{one:.2f}" for one in pair[0]), "second": " / ".join(f"{one:.2f}" for one in pair[1]),
            "tilt": round(float(pair[0, 0] / pair[0].sum() - pair[1, 0] / pair[1].sum()), 2),
            "switches": {1: "right", -1: "wrong", 0: "no"}[int(switches(pair[:, None, None])[0, 0])],
        })  # fmt: skip
    draw_it(first, CHOICES[0], shown, path)
    return rows


def draw_it(loaded: Any, choice: Choice, shown: tuple[int, int], path: Path) -> None:
    """Left: one head from "it", a row a sentence. Right: all heads, what share of the two nouns the first one has."""
    figure = new_figure(10.5, 3.1)
    left, right = figure.add_axes((0, 0.36, 0.53, 0.3)), figure.add_axes((0.62, 0, 0.3, 1))
    rows, labels = [], []
    for which in (0, 1):
        trace = loaded.trace(choice.sentence(which), tensors="attention.weights")
        labels = list(trace.tracks["tokens"].labels)
        rows.append(trace.attention()[shown[0], shown[1], labels.index("it")])
    labels[labels.index(choice.ends[1])] = f"{choice.ends[0]} / {choice.ends[1]}"
    left.pcolormesh(np.stack(rows), cmap=shades(), vmin=0, edgecolors="white", linewidth=1.5)
    left.set(xlim=(0, len(labels)), ylim=(2, 0), xticks=[], yticks=[])
    left.spines[:].set_visible(False)
    for row, weights in enumerate(rows):
        write(left, -0.2, row + 0.5, choice.ends[row], 9, INK, ha="right", va="center_baseline")
        for noun in choice.nouns:
            at, weight = labels.index(noun), float(weights[labels.index(noun)])
            colour = "white" if weight > 0.35 else INK
            write(left, at + 0.5, row + 0.52, f"{weight:.2f}"[1:], 7.5, colour, ha="center", va="center_baseline")
    for column, label in enumerate(labels):
        colour = ACCENT if label == "it" or label in choice.nouns else INK
        write(left, column + 0.6, -0.15, label, 8.5, colour, rotation=45, rotation_mode="anchor", ha="left")
    write(left, 0, 2.35, f"head {shown[0]}.{shown[1]}: where it looks from “it”", 9, QUIET, va="top")
    both = np.stack([looks(loaded, choice, which) for which in (0, 1)])
    share_2LH = both[..., 0] / both.sum(-1)
    turned = switches(both)
    for what, colour, name in (
        (0, QUIET, "same noun"),
        (1, COLOURS[2], "switches rightly"),
        (-1, COLOURS[1], "wrongly"),
    ):
        dots = turned == what
        right.scatter(share_2LH[0][dots], share_2LH[1][dots], s=16, color=colour, linewidth=0, alpha=0.85,
                      label=f"{name}: {int(dots.sum())}")  # fmt: skip
    right.scatter(*share_2LH[:, shown[0], shown[1]], s=70, facecolor="none", edgecolor=ACCENT, linewidth=1.5)
    quiet(right, below=f"“{choice.ends[0]}”")
    right.axhline(0.5, color=QUIET, linewidth=0.8)
    right.axvline(0.5, color=QUIET, linewidth=0.8)
    right.set(xlim=(0, 1), ylim=(0, 1))
    right.set_ylabel(f"“{choice.ends[1]}”", fontsize=9, color=QUIET)
    right.legend(frameon=False, fontsize=8, labelcolor=INK, loc="upper left", bbox_to_anchor=(1, 1), handletextpad=0.2)
    title = f"of the weight on both nouns, {choice.nouns[0]}’s share"
    right.set_title(title, fontsize=9.5, color=INK, loc="left")
    save(figure, path)

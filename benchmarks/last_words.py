"""Which words decide: the gradient of a label's log-probability by the place of the word, of RNNs and of a CNN.

A classifier that reads the last state of an RNN is said to weigh the last words most; one that takes the largest of
each feature over all places has no reason to. Both are trained on the sentences of SST-2 (`classify-lstm`,
`classify-cnn`); an LSTM is also asked as it was before its first step. Then, over the validation sentences of at least
ten words, the norm of ∂ log p(label)/∂ word vector is read at every word and shared out over ten tenths of the
sentence; each sentence counts the same. An LSTM that averages its states stands between them. Draws
`docs/last-words.png`.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/last_words.py --device cpu
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scores import trained

from headway.batch import TextInputs
from headway.data.catalog import find
from headway.data.labelled import Labelled, read_labelled
from headway.explore.plots import COLOURS, HAIRLINE, INK, QUIET, new_figure, save
from headway.tasks.loading import load
from headway.text.framing import frame

PICTURE = Path(__file__).parent.parent / "docs" / "last-words.png"
PARTS, SHORTEST = 10, 10
UNTRAINED = ["engine.steps=1", "schedule.peak=0"]
MODELS = {
    "LSTM before training, last state": ("classify-lstm", UNTRAINED),
    "RNN, last state": ("classify-lstm", ["model.cell=rnn", "schedule.peak=3e-4"]),
    "LSTM, last state": ("classify-lstm", []),
    "LSTM, mean of its states": ("classify-lstm", ["head.pooling=mean"]),
    "CNN, largest of each feature": ("classify-cnn", []),
}
DATA = ["data.train=textcls/stsa.binary.train.gz", "data.valid=textcls/stsa.binary.dev.gz"]


def shares(norms: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """How much of the sum lies in each tenth of the sentence; a word that lies across a border is divided there."""
    edges = np.linspace(0, len(norms), PARTS + 1)
    upto = np.interp(edges, np.arange(len(norms) + 1), np.concatenate([[0.0], np.cumsum(norms)]))
    return np.diff(upto) / upto[-1]


def gradients(model: Any, texts: list[Labelled]) -> tuple[list[float], float]:
    """The mean share of each tenth, and how many labels are right."""
    found, right = [], 0
    for text in texts:
        norms, said = norms_of(model, text)
        if len(norms) < SHORTEST:
            continue
        right += said == int(text.label)
        found.append(shares(norms))
    return np.mean(found, axis=0).tolist(), right / len(found)


def norms_of(model: Any, text: Labelled) -> tuple[np.ndarray[Any, Any], int]:
    """‖∂ log p(label)/∂ word vector‖ of every word of the text, its frame left out, and the label that is given."""
    [framed] = frame(model.tokenizer, [text.text], model.limit, truncate=True, spans=True)
    own = torch.tensor([word is not None for word in framed.words])
    seen: list[torch.Tensor] = []

    def keep(module: Any, given: Any, made: torch.Tensor) -> None:
        made.requires_grad_().retain_grad()
        seen.append(made)

    hook = model.model.encoder.table.register_forward_hook(keep)
    logits = model.model(TextInputs(torch.tensor([framed.ids])))[0]
    hook.remove()
    logits.log_softmax(-1)[int(text.label)].backward()
    assert seen[0].grad is not None
    return seen[0].grad[0].norm(dim=-1)[own].numpy(), int(logits.argmax())


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    figure = new_figure(7, 3.6)
    axes = figure.add_axes((0, 0, 1, 1))
    middle = (np.arange(PARTS) + 0.5) / PARTS
    for row, colour in zip(rows, COLOURS, strict=False):
        axes.plot(middle, row["shares"], color=colour, linewidth=2.0, marker="o", markersize=3, label=row["who"])
    axes.axhline(1 / PARTS, color=QUIET, linewidth=1, linestyle=(0, (1, 2)))
    axes.text(0.99, 1 / PARTS, "all words alike", fontsize=8, color=QUIET, va="bottom", ha="right")
    axes.set_title(
        "share of the gradient of log p(label), by place in the sentence", fontsize=10, color=INK, loc="left"
    )
    axes.set_xlabel("from the first word to the last", loc="right", fontsize=9, color=QUIET)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, None)
    axes.tick_params(colors=QUIET, labelsize=8)
    axes.grid(color=HAIRLINE, linewidth=0.6)
    axes.spines[:].set_visible(False)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    save(figure, path)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/last-words"))
    parser.add_argument("--picture", type=Path, default=PICTURE)
    parser.add_argument("--texts", type=int, default=10**9, help="only the first so many sentences")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    texts = read_labelled([find("textcls/stsa.binary.dev.gz")])[: options.texts]
    rows = []
    for who, (recipe, own) in MODELS.items():
        name = who.lower().replace(",", "").replace(" ", "-")
        settings = [f"engine.device={options.device}", *DATA, *own, *options.settings]
        trained(recipe, name, options.runs, settings)
        found, accuracy = gradients(load(options.runs / name, "cpu"), texts)
        rows.append({
            "who": who, "accuracy": round(accuracy, 4), "shares": [round(share, 4) for share in found],
            "first_fifth": round(sum(found[:2]), 4), "last_fifth": round(sum(found[-2:]), 4),
        })  # fmt: skip
    draw(rows, options.picture)
    write(f"last-words-{options.device}", options.device, rows, options.out, case={"texts": len(texts)})


if __name__ == "__main__":
    main()

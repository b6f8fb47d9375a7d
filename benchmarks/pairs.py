"""The strawberry pairs by rung: which models of the ladder see what an ending hangs on, near, far and by order alone.

Every recipe of the ladder learns from sentences that `strawberry.py` draws (a line a document), each at a
small size and under one budget of tokens; then it says of each minimal pair which ending is the likelier. One half is
what a model scores that does not see what matters.

    PYTHONPATH=src python benchmarks/pairs.py [--tokens 1000000] [--seeds 3]
"""

from __future__ import annotations

from measure import arguments, write
from minimal_pairs import score_pairs
from strawberry import corpus, minimal_pairs

# isort: split
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.folder import read_model
from headway.models.neural_ngram import NeuralNGramConfig
from headway.models.rung import RungConfig
from headway.recipes import GROUPS, RECIPES
from headway.tasks.language import PlainText
from headway.text.tokenizer import TextOptions
from headway.train.comparison import within
from headway.train.job import train
from headway.train.log import Log
from headway.train.run import Run

SENTENCES, PAIRS, WIDTH = 20_000, 200, 64


def small(run: Run, text: Path, tokens: int, seed: int) -> Run:
    """The recipe's model at a small size, on these sentences."""
    # A document is a sentence: who can keep to it does.
    apart = isinstance(run.model, RungConfig)
    data = PlainText((str(text),), apart=apart, text=TextOptions(kind="word", min_count=1, lines=True))
    model: Any = run.model
    if isinstance(model, RungConfig):
        model = replace(model, width=WIDTH, layers=min(model.layers, 2), dropout=0.0)
    elif isinstance(model, NeuralNGramConfig):
        model = replace(model, width=WIDTH, hidden=WIDTH, dropout=0.0)
    engine = replace(run.engine, device="cpu", seed=seed)
    run = replace(run, data=data, model=model, engine=engine)
    return within(run, tokens)


def scores(name: str, text: Path, tokens: int, seed: int) -> dict[str, dict[str, float]]:
    run = small(RECIPES[name].make(), text, tokens, seed)
    with tempfile.TemporaryDirectory() as folder:
        train(run, Path(folder), Log(Path(folder), quiet=True))
        found = read_model(folder)
    sets = minimal_pairs(PAIRS)
    return {kind: dict(score_pairs(found.model, found.source_tokenizer, sets[kind]).values()) for kind in sets}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=GROUPS["ladder"])
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "sentences.txt"
        text.write_text("\n".join(corpus(SENTENCES)) + "\n", encoding="utf-8")
        for name in options.only:
            found = [scores(name, text, options.tokens, seed) for seed in range(1, options.seeds + 1)]
            row: dict[str, Any] = {"who": name}
            for kind in found[0]:
                row[f"{kind}, share"] = round(statistics.mean(each[kind]["share"] for each in found), 3)
                row[f"{kind}, nats"] = round(statistics.mean(each[kind]["nats"] for each in found), 2) + 0.0  # no −0
            rows.append(row)
            print(row, flush=True)
    case = {"sentences": SENTENCES, "pairs": 2 * PAIRS, "tokens": options.tokens, "seeds": options.seeds}
    write("pairs-cpu", "cpu", rows, options.out, case=case)


if __name__ == "__main__":
    main()

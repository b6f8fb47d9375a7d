"""N-grams on the Penn Treebank, how fast text is counted, and deck D's tables and pictures.

One thread; times are of the processor, so that other work on the machine does not count.

HEADWAY_DATA=data PYTHONPATH=src python benchmarks/counting.py
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import deck_d
import numpy as np
import torch
from chain_picture import chain_picture
from votes_picture import votes_picture

from headway.data.catalog import find
from headway.data.documents import Documents
from headway.data.token_store import prepare_documents, train_document_tokenizer
from headway.models.ngram import NGram, NGramConfig
from headway.models.smoothing import AddK, ModifiedKneserNey, Smoothing, StupidBackoff
from headway.recipes import RECIPES
from headway.text.tokenizer import END

ROOT = Path(__file__).parent.parent
PUBLISHED = {3: "148.3", 5: "141.2"}  # KN3, KN5 (Mikolov et al. 2011)
CASES: list[tuple[Smoothing, int]] = [
    *((ModifiedKneserNey(), order) for order in (1, 2, 3, 4, 5, 6)),
    *((AddK(k), order) for order, k in ((2, 0.01), (3, 0.001))),
    *((StupidBackoff(), order) for order in (3, 5)),
]
MILLIONS = 10


def treebank(folder: str) -> tuple[dict[str, Any], int, float]:
    """The ids of each part with an END before, the size of the vocabulary, and the seconds that took."""
    started = time.process_time()
    parts = {part: Documents.at(find(f"ptb/ptb.{part}.txt"), lines=True) for part in ("train", "valid", "test")}
    tokenizer = train_document_tokenizer(parts["train"], RECIPES["ptb-kn5"].make().data.text)
    stores = {part: prepare_documents(documents, tokenizer, folder) for part, documents in parts.items()}
    ids = {part: np.concatenate([[END], store.windows([0], store.tokens)[0]]) for part, store in stores.items()}
    return ids, len(tokenizer), time.process_time() - started


def perplexity(model: NGram, ids: Any) -> float:
    return math.exp(-float(model.score(torch.from_numpy(ids)[None]).sum()) / (len(ids) - 1))


def rows(ids: dict[str, Any], vocabulary: int) -> list[dict[str, Any]]:
    found = []
    for smoothing, order in CASES:
        started = time.process_time()
        model = NGram.count(NGramConfig(order, smoothing), vocabulary, ids["train"])
        counted = time.process_time() - started
        scores = {part: round(perplexity(model, ids[part]), 2) for part in ("valid", "test")}
        sums = model(torch.randint(2, vocabulary, (1000, order)))[0][:, -1].exp().sum(-1)
        found.append(
            {
                "smoothing": smoothing.name + (f", k = {smoothing.k:g}" if isinstance(smoothing, AddK) else ""),
                "order": order, "test": scores["test"], "validation": scores["valid"],
                "published": PUBLISHED.get(order) if isinstance(smoothing, ModifiedKneserNey) else None,
                "ngrams": vocabulary + sum(model.config.sizes), "seconds": round(counted, 2),
                "sum_off_by": None if isinstance(smoothing, StupidBackoff) else float((sums - 1).abs().max()),
            }
        )  # fmt: skip
    return found


def pace() -> dict[str, Any]:
    """Words drawn as in a large text, by Zipf's law: no order of n-grams is as easily counted as in a small one."""
    rng = np.random.default_rng(0)
    ids = 4 + np.minimum(rng.zipf(1.2, MILLIONS * 1_000_000), 50_000)
    ids[rng.random(len(ids)) < 0.04] = END
    started = time.process_time()
    model = NGram.count(NGramConfig(3), 50_005, ids)
    return {"tokens": len(ids), "seconds": round(time.process_time() - started, 1), "ngrams": sum(model.config.sizes)}


def tables() -> list[dict[str, Any]]:
    """Deck D's, as it prints them."""
    show, battery, log = deck_d.SHOW_ME, deck_d.BATTERY, deck_d.LOG
    votes = deck_d.count_votes()
    of_ran = votes.pairs.transitions(log.ids("ran")[0])[1:, 1:]
    named = [
        ("first order, show me", show.words, show.words, show.table(show.words)),
        ("first order, battery", battery.words, battery.words, battery.table(battery.words)),
        ("second order, battery", list(deck_d.PAIRS), battery.words, battery.table(deck_d.PAIRS)),
        ("with skips", [f"{word}, ran" for word in log.words], log.words, of_ran),
    ]
    found: list[dict[str, Any]] = [
        {"name": name, "histories": histories, "words": words, "p": table.double().round(decimals=6).tolist()}
        for name, histories, words, table in named
    ]
    counts = [
        {"beginning": text, "mask": "learned" if masked else "none"} | votes.of(text, masked)
        for text in (deck_d.PROGRAM_CASE, deck_d.BATTERY_CASE)
        for masked in (False, True)
    ]
    return [*found, {"name": "votes", "rows": counts}]


def chains(path: Path) -> None:
    examples = {"show me my …": deck_d.SHOW_ME, "check whether …": deck_d.BATTERY}
    chain_picture({name: (text.table(text.words).numpy(), text.words) for name, text in examples.items()}, path)


def picture(path: Path) -> None:
    votes = deck_d.count_votes()
    of_ran = votes.pairs.transitions(deck_d.LOG.ids("ran")[0])[1:, 1:]
    beginnings = {
        text: (votes.of(text, False), votes.of(text, True)) for text in (deck_d.PROGRAM_CASE, deck_d.BATTERY_CASE)
    }
    votes_picture(of_ran.numpy(), votes.mask_VV[1:, 1:].numpy(), deck_d.LOG.words, "ran", beginnings, path)


def main() -> None:
    options = arguments(__doc__).parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    chains(ROOT / "docs" / "chains.png")
    picture(ROOT / "docs" / "votes.png")
    write("deck-d", "cpu", tables(), options.out)
    with tempfile.TemporaryDirectory() as folder:
        ids, vocabulary, seconds = treebank(folder)
    case = {"tokens": len(ids["train"]) - 1, "predicted": len(ids["test"]) - 1, "encoding_seconds": round(seconds, 1)}
    write("counting-cpu", "cpu", rows(ids, vocabulary), options.out, case=case, pace=pace())


if __name__ == "__main__":
    main()

"""Sentence vectors: headway's `embed` beside sentence-transformers, and transformers with its usual loop.

The same folder (all-MiniLM-L6-v2), the same sentences in the same order, text in, vectors of length 1 out. headway and
sentence-transformers sort by length each in their own way; the usual loop takes 32 sentences as they come. Times are
seconds of the clock and of the processor (all threads), for a machine that others use too; the vectors must be equal.
All in float32, whatever the folder has: half precision is many times slower on a CPU.

sentence-transformers is no dependency of headway: without it its row is left out.

    PYTHONPATH=src python benchmarks/embedding.py MODEL SENTENCES --device cpu --threads 2
"""

from __future__ import annotations

from measure import arguments, median, write

# isort: split
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headway.data.readers import lines
from headway.tasks.loading import load

ROWS = 32  # of a batch, as the others have it by default
Embed = Callable[[list[str]], NDArray[np.float32]]


def headway(folder: str, device: str) -> Embed:
    encoder = load(folder, device, "float32")
    return lambda texts: encoder.embed(texts, truncate=True)


def sentence_transformers(folder: str, device: str) -> Embed | None:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        return None
    model = SentenceTransformer(folder, device=device, model_kwargs={"dtype": torch.float32})
    return lambda texts: np.asarray(model.encode(texts, batch_size=ROWS, show_progress_bar=False))


def usual_loop(folder: str, device: str) -> Embed:
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).to(device).eval()

    @torch.inference_mode()
    def embed(texts: list[str]) -> NDArray[np.float32]:
        found = []
        for at in range(0, len(texts), ROWS):
            some = texts[at : at + ROWS]
            inputs = tokenizer(some, padding=True, truncation=True, max_length=256, return_tensors="pt").to(device)
            own = inputs["attention_mask"][..., None]
            mean = (model(**inputs).last_hidden_state * own).sum(1) / own.sum(1)
            found.append(torch.nn.functional.normalize(mean).cpu().numpy())
        return np.concatenate(found)

    return embed


def timed(embed: Embed, texts: list[str]) -> tuple[float, float]:
    clock, processor = time.perf_counter(), time.process_time()
    embed(texts)
    return time.perf_counter() - clock, time.process_time() - processor


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("model")
    parser.add_argument("sentences")
    parser.add_argument("--limit", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    texts = list(islice(lines(options.sentences), options.limit))
    made = {
        "headway": headway(options.model, options.device),
        "sentence-transformers": sentence_transformers(options.model, options.device),
        "transformers": usual_loop(options.model, options.device),
    }
    contestants = {who: embed for who, embed in made.items() if embed is not None}
    vectors = {who: embed(texts[:512]) for who, embed in contestants.items()}  # and they are warm
    spent: dict[str, list[tuple[float, float]]] = {who: [] for who in contestants}
    for _ in range(options.repeats or 3):
        for who, embed in contestants.items():
            spent[who].append(timed(embed, texts))
            print(who, [round(x, 2) for x in spent[who][-1]], flush=True)
    rows: list[dict[str, Any]] = []
    for who, times in spent.items():
        clock, processor = (median([pair[i] for pair in times]) for i in range(2))
        rows.append({
            "who": who, "sentences_per_second": round(len(texts) / clock), "seconds": round(clock, 2),
            "processor_seconds": round(processor, 2),
            "largest_difference": float(np.abs(vectors[who] - vectors["headway"]).max()),
        })  # fmt: skip
    for row in rows:
        row["times_transformers"] = round(rows[-1]["seconds"] / row["seconds"], 2)
        row["times_transformers_by_processor"] = round(rows[-1]["processor_seconds"] / row["processor_seconds"], 2)
    case = {"sentences": len(texts), "threads": options.threads}
    write(f"embedding-{options.device}", options.device, rows, options.out, case=case)


if __name__ == "__main__":
    main()

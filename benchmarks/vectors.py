"""Skip-gram with negative sampling on CPU cores: headway's `novels-skip-gram` beside gensim's word2vec.

Same words of the same text (those that headway keeps in its vocabulary, punctuation among them), same width, window,
number of negatives, threshold, passes, first rate and threads. Both are judged by headway's loss on the same held-out
text, gensim's two tables put into headway's model. Times are of training alone, seconds of the clock and of the
processor (all threads), for a machine that others use too.

gensim is no dependency of headway: PYTHON is an interpreter that has it.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/vectors.py --gensim PYTHON --threads 1
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import json
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headway.recipes import RECIPES
from headway.tasks.language import TextCorpus, open_text
from headway.tasks.negative_sampling import NegativeSamplingObjective, RowStep
from headway.tasks.start import RunContext
from headway.tasks.word_vectors import WordVectors
from headway.text.tokenizer import END, SPECIALS
from headway.train.log import Log
from headway.train.loop import prefetch
from headway.train.optimiser import Masters
from headway.train.parallel.ranks import ALONE

PASSES = 5

PEER = """
import json, sys, time
import numpy as np
from gensim.models import Word2Vec
folder, threads, passes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ids, counts = np.load(folder + "/ids.npy"), np.load(folder + "/counts.npy")
cuts = np.flatnonzero(ids == 2)
texts = [text[text > 3].astype(str).tolist() for text in np.split(ids, cuts)]
sentences = [text[at : at + 1000] for text in texts for at in range(0, len(text), 1000)]
model = Word2Vec(vector_size=100, window=5, negative=5, sg=1, min_count=1, sample=1e-4, epochs=passes, workers=threads,
                 alpha=0.025, seed=1)
model.build_vocab_from_freq({str(i): int(n) for i, n in enumerate(counts) if n})
clock, processor = time.perf_counter(), time.process_time()
model.train(sentences, total_examples=len(sentences), epochs=passes)
spent = time.perf_counter() - clock, time.process_time() - processor
table = np.zeros((2, len(counts), 100), np.float32)
for row, word in enumerate(model.wv.index_to_key):
    table[:, int(word)] = model.wv.vectors[row], model.syn1neg[row]
np.save(folder + "/table.npy", table)
print(json.dumps(spent))
"""


def headway(task: WordVectors) -> tuple[float, float]:
    """The steps of a run, prepared in another thread as the loop does it, without validation and checkpoints."""
    run = task.run
    masters = Masters(task.model.named_parameters(), run.optimiser)
    step = RowStep(NegativeSamplingObjective(task.model), masters)
    clock, processor = time.perf_counter(), time.process_time()
    for number, tiles in enumerate(prefetch(task.batch, range(run.engine.steps)), 1):
        masters.set_rate(run.schedule.rate(number, run.engine.steps))
        step(tiles)
    return time.perf_counter() - clock, time.process_time() - processor


def loss_of(task: WordVectors) -> float:
    with torch.no_grad():
        return task.valid_losses(NegativeSamplingObjective(task.model))["loss"]


def gensim(python: str, folder: Path, threads: int) -> tuple[float, float]:
    done = subprocess.run(
        [python, "-c", PEER, str(folder), str(threads), str(PASSES)], capture_output=True, text=True, check=True
    )  # fmt: skip
    clock, processor = json.loads(done.stdout)
    return clock, processor


def task_of(corpus: TextCorpus, context: RunContext, seed: int) -> WordVectors:
    run = RECIPES["novels-skip-gram"].make()
    tokens = sum(store.tokens for store in corpus.train)
    engine = replace(run.engine, steps=PASSES * tokens // run.engine.batch, seed=seed, device="cpu")
    return WordVectors(replace(run, engine=engine), replace(context, resumed=True))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--gensim", required=True, metavar="PYTHON", help="an interpreter that has gensim")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    figures: dict[str, list[tuple[float, float, float]]] = {"gensim": [], "headway": []}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        context = RunContext(place, Log(quiet=True), torch.device("cpu"), torch.float32, ALONE)
        corpus = open_text(RECIPES["novels-skip-gram"].make().data, context)
        tokens = sum(store.tokens for store in corpus.train)
        ids = np.concatenate([store.windows([0], store.tokens)[0] for store in corpus.train])
        np.save(place / "ids.npy", ids)
        counts = np.bincount(ids, minlength=len(corpus.tokenizer))
        counts[: len(SPECIALS)] = 0
        assert END == 2  # as the peer's script has it
        np.save(place / "counts.npy", counts)
        for repeat in range(options.repeats or 3):
            spent = gensim(options.gensim, place, options.threads)
            task = task_of(corpus, context, seed=repeat + 1)
            with torch.no_grad():
                v, u = torch.from_numpy(np.load(place / "table.npy"))
                task.model.table.weight.copy_(v)
                task.model.around_VD.copy_(u)
            figures["gensim"].append((*spent, loss_of(task)))
            task = task_of(corpus, context, seed=repeat + 1)
            spent = headway(task)
            figures["headway"].append((*spent, loss_of(task)))
            print({who: [round(x, 3) for x in rows[-1]] for who, rows in figures.items()}, flush=True)
    rows: list[dict[str, Any]] = []
    for who, found in figures.items():
        clock, processor, loss = (float(np.median([row[i] for row in found])) for i in range(3))
        rows.append({
            "who": who, "tokens_per_second": round(PASSES * tokens / clock), "seconds": round(clock, 1),
            "processor_seconds": round(processor, 1), "loss": round(loss, 4),
        })  # fmt: skip
    for row in rows:
        row["times_gensim"] = round(rows[0]["seconds"] / row["seconds"], 2)
        row["times_gensim_by_processor"] = round(rows[0]["processor_seconds"] / row["processor_seconds"], 2)
    case = {"tokens": tokens, "passes": PASSES, "width": 100, "threads": options.threads}
    write("vectors-cpu", "cpu", rows, options.out, case=case)


if __name__ == "__main__":
    main()

"""An encoder that is trained from nothing: how well it fills gaps, what it is worth for labels, how quick a step is.

`words` trains the recipe (WikiText-2 and 18 novels) and puts its figures on the test text beside two models that count:
the most frequent token, and a 5-gram that sees the two tokens on either side (interpolated by Witten and Bell's rule;
it is shown the true neighbours, where the encoder may find a gap). `labels` trains SST-2 and CoLA from that encoder,
and from the same one as it was before its first step (`nothing`: same sizes, same vocabulary), several seeds, same
steps. `speed` is a training step beside transformers' BertForPreTraining of the same shape and batch; on a GPU both
compiled.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/pretraining.py --parts words labels speed --device cuda \
        --seeds 3 --parallel 6

A run that was stopped is resumed by the same command, one that has ended is not trained again: they lie in `--runs`.
`--set` changes the settings of the pre-training, `--tuned` those of the labels: a few steps for a trial.
"""

from __future__ import annotations

from measure import arguments, interleaved, median, write

# isort: split
import json
import statistics
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scores import trained
from side_by_side import mean, side_by_side, spread, training_options

from headway.batch import IGNORED, TextInputs
from headway.data.batches import Ints
from headway.data.catalog import cache_folder
from headway.data.masked_rows import MaskedRows
from headway.data.masking import MaskedBatch, Masking
from headway.data.sentences import SentenceStore
from headway.folder import read_model
from headway.models import build
from headway.models.bert import SIZES, BertConfig
from headway.models.heads import WordsAndPair
from headway.tasks.masked import MaskedLoss, marks_of
from headway.train.optimiser import Adam, Masters
from headway.train.run import run_from
from headway.train.step import GraphStep, TrainStep, compiled

TASKS = {"sst2-minilm": "test accuracy", "cola-minilm": "test matthews"}
PEAKS = {"pre-trained": 1e-4, "nothing": 3e-4}
# The places around a gap that a context has, from the widest back to none.
CONTEXTS = ((-2, -1, 1, 2), (-2, -1, 1), (-1, 1), (-1,))
SPEED = {"cuda": (256, 128, 30_528, "minilm"), "cpu": (16, 64, 8000, "mini")}  # rows, length, vocabulary, size


class Counted:
    """P(w | context) = (count(context, w) + n P(w | shorter context)) / (count(context) + n), n the different words
    that follow the context (Witten and Bell 1991); the shortest context is none."""

    def __init__(self, ids_T: Ints, vocabulary: int) -> None:
        counts_V = np.bincount(ids_T, minlength=vocabulary).astype(np.float64)
        self.unigram_V = counts_V / counts_V.sum()
        self.factors = np.random.default_rng(0).integers(1, 2**63, 5, np.uint64) | np.uint64(1)
        self.tables = {context: self._table(ids_T, context) for context in CONTEXTS}

    def _table(self, ids_T: Ints, context: tuple[int, ...]) -> tuple[Ints, Ints, Ints, Ints]:
        """Keys of contexts in order, where the words of each begin, the words, and their counts."""
        middle = np.arange(2, len(ids_T) - 2)
        keys = self._keys(np.stack([ids_T[middle + at] for at in context], 1))
        order = np.lexsort((ids_T[middle], keys))
        keys, words = keys[order], ids_T[middle][order]
        new = np.flatnonzero(np.r_[True, (keys[1:] != keys[:-1]) | (words[1:] != words[:-1])])
        counts = np.diff(np.r_[new, len(keys)])
        keys, words = keys[new], words[new]
        first = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
        return keys[first], np.r_[first, len(keys)], words, counts

    def _keys(self, near_NC: Ints) -> Ints:
        keys: Ints = (near_NC.astype(np.uint64) * self.factors[: near_NC.shape[1]]).sum(1, dtype=np.uint64)
        return keys ^ (keys >> np.uint64(29))

    def shares(self, around: dict[int, int]) -> Any:
        """P of every token; `around`: the tokens by their places around the gap."""
        share_V = self.unigram_V.copy()
        for context in reversed(CONTEXTS):
            known, begins, words, counts = self.tables[context]
            key = self._keys(np.array([[around[at] for at in context]]))[0]
            at = int(np.searchsorted(known, key))
            if at == len(known) or known[at] != key:
                break
            some = slice(begins[at], begins[at + 1])
            different = begins[at + 1] - begins[at]
            share_V *= different / (counts[some].sum() + different)
            share_V[words[some]] += counts[some] / (counts[some].sum() + different)
        return share_V


def gaps(rows: MaskedRows) -> Iterator[tuple[int, dict[int, int]]]:
    """Each hidden token and the true tokens around it."""
    for batch in rows.epoch():
        ids_BT, places_BP, labels_BP = (
            tensor.numpy() for tensor in (batch.inputs.ids_BT, batch.places_BP, batch.labels_BP)
        )
        row_N, at_N = (labels_BP != IGNORED).nonzero()
        whole_BT = ids_BT.copy()
        whole_BT[row_N, places_BP[row_N, at_N]] = labels_BP[row_N, at_N]
        padded_BT = np.pad(whole_BT, ((0, 0), (2, 2)))
        for row, place in zip(row_N, places_BP[row_N, at_N], strict=True):
            yield int(whole_BT[row, place]), {at: int(padded_BT[row, place + 2 + at]) for at in (-2, -1, 1, 2)}


def judged(name: str, found: list[tuple[float, bool]]) -> dict[str, Any]:
    loss, right = (statistics.mean(values) for values in zip(*found, strict=True))
    return {"who": name, "loss": round(loss, 4), "accuracy": round(right, 4), "gaps": len(found)}


def words(options: Namespace) -> list[dict[str, Any]]:
    score = trained(options.recipe, options.recipe, options.runs, [*device(options), *options.settings])
    loaded = read_model(options.runs / options.recipe)
    run, tokenizer, pairs = run_from(loaded.card.run), loaded.source_tokenizer, loaded.card.head.pairs
    length = min(run.data.length, run.max_length)
    names = _stores(options.runs / options.recipe)
    train, test = (SentenceStore(cache_folder() / "stores" / names[part]) for part in ("train", "test"))
    masking, batch = Masking.of(run.data.mask, tokenizer), max(1, run.engine.batch // length)
    rows = MaskedRows(test, masking, marks_of(tokenizer), batch, length, 0, pairs)
    counted = Counted(np.asarray(train.sentences.ids, np.int64), len(tokenizer))
    best, alone, beside = int(counted.unigram_V.argmax()), [], []
    for word, around in gaps(rows):
        share_V = counted.shares(around)
        # A token that the training text does not have would be infinitely surprising: it counts as a millionth.
        beside.append((-float(np.log(max(share_V[word], 1e-6))), int(share_V.argmax()) == word))
        alone.append((-float(np.log(max(counted.unigram_V[word], 1e-6))), best == word))
    figures = {
        "who": "headway", "loss": score["test loss"], "accuracy": score["test accuracy"], "gaps": len(alone),
        "next_sentence": score.get("test next sentence accuracy"), "parameters": score["parameters"],
        "steps": score["steps"], "epochs": score["epochs"], "seconds": score["training seconds"],
    }  # fmt: skip
    return [figures, judged("5-gram of both sides", beside), judged("the most frequent token", alone)]


def _stores(run: Path) -> dict[str, str]:
    """The stores that a run was trained and judged with, as its newest checkpoint names them."""
    newest = max(run.glob("checkpoints/step-*"), key=lambda place: int(place.name.split("-")[1]))
    return dict(json.loads((newest / "state-0.json").read_text())["data"])


def device(options: Namespace) -> list[str]:
    return [f"engine.device={options.device}"]


def labels(options: Namespace) -> list[dict[str, Any]]:
    seeds = range(1, options.seeds + 1)
    first = options.runs / options.recipe
    trained(options.recipe, options.recipe, options.runs, [*device(options), *options.settings])
    for seed in seeds:  # the encoder before its first step
        still = ["engine.steps=1", "engine.seconds=0", "schedule.peak=0", f"engine.seed={seed}"]
        trained(options.recipe, f"untrained-{seed}", options.runs, [*device(options), *options.settings, *still])
    jobs = [(recipe, way, seed) for recipe in TASKS for way in PEAKS for seed in seeds]

    def tune(recipe: str, way: str, seed: int) -> dict[str, Any]:
        init = first if way == "pre-trained" else options.runs / f"untrained-{seed}"
        config = read_model(init).card.config
        sizes = [f"model.{key}={getattr(config, key)}" for key in ("layers", "width", "inner", "heads", "max_length")]
        settings = [f"engine.seed={seed}", f"schedule.peak={PEAKS[way]}", *sizes, *device(options)]
        return trained(recipe, f"{recipe}-{way}-{seed}", options.runs, [*settings, *options.tuned], str(init))

    found = side_by_side(lambda job: tune(*job), jobs, options.parallel)
    rows = []
    for recipe, figure in TASKS.items():
        for way in PEAKS:
            some = [found[recipe, way, seed] for seed in seeds]
            values = [one[figure] for one in some]
            rows.append({
                "recipe": recipe, "learns": way, "figure": figure, "mean": mean(values),
                "spread": spread(values), "each": values, "steps": some[0]["steps"], "peak": PEAKS[way],
            })  # fmt: skip
    return rows


def speed(options: Namespace) -> list[dict[str, Any]]:
    rows, length, vocabulary, size = SPEED[options.device]
    torch.manual_seed(0)
    config, many = SIZES[size], round(0.15 * length)
    ids_BT = torch.randint(5, vocabulary, (rows, length), device=options.device)
    places_BP = torch.rand(rows, length, device=options.device).argsort(1)[:, :many].contiguous()
    labels_BP, pairs_B = ids_BT.gather(1, places_BP), torch.randint(0, 2, (rows,), device=options.device)
    types_BT = (torch.arange(length, device=options.device) > length // 2).long().repeat(rows, 1)
    batch = MaskedBatch(TextInputs(ids_BT, None, types_BT), places_BP, labels_BP, pairs_B, ids_BT.numel())
    labels_BT = torch.full_like(ids_BT, -100).scatter(1, places_BP, labels_BP)
    batch = batch.map(lambda tensor: tensor.to(options.device))
    works: dict[str, Callable[[], Any]] = {}
    for how in ("eager",) if options.device == "cpu" else ("graphs", "compile+graphs"):
        works[f"headway {how}"] = ours(config, vocabulary, batch, how, options.device)
    for how in ("float32",) if options.device == "cpu" else ("autocast", "bfloat16"):
        given = {"input_ids": ids_BT, "token_type_ids": types_BT, "labels": labels_BT, "next_sentence_label": pairs_B}
        works[f"transformers, {how}"] = theirs(config, vocabulary, given, how, options.device)
    repeats = options.repeats or (20 if options.device == "cuda" else 3)
    times = interleaved(works, options.device, 5 if options.device == "cuda" else 1, repeats)
    peer = min(median(values) for name, values in times.items() if name.startswith("transformers"))
    return [
        {"who": name, "rows": rows, "length": length, "tokens_per_second": round(ids_BT.numel() / median(values)),
         "milliseconds": round(median(values) * 1e3, 2), "times_transformers": round(peer / median(values), 2)}
        for name, values in times.items()
    ]  # fmt: skip


def ours(config: BertConfig, vocabulary: int, batch: MaskedBatch, how: str, place: str) -> Callable[[], Any]:
    dtype = torch.bfloat16 if place == "cuda" else torch.float32
    model = build("bert", config, (vocabulary,), WordsAndPair()).to(place, dtype)
    masters = Masters(model.named_parameters(), Adam(), 0.0)
    masters.set_rate(1e-4)
    objective: Any = MaskedLoss().build(model).train()
    step: Any = (GraphStep if "graphs" in how else TrainStep)(
        compiled(objective) if "compile" in how else objective, masters
    )
    return lambda: step(batch, 1)


def theirs(config: BertConfig, vocabulary: int, given: dict[str, Any], how: str, place: str) -> Callable[[], Any]:
    from transformers import BertConfig as Config
    from transformers import BertForPreTraining

    shape = Config(
        vocab_size=vocabulary, hidden_size=config.width, num_hidden_layers=config.layers,
        intermediate_size=config.inner, num_attention_heads=config.heads, max_position_embeddings=config.max_length,
    )  # fmt: skip
    model = BertForPreTraining(shape).to(place, torch.bfloat16 if how == "bfloat16" else torch.float32).train()
    optimiser = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    run: Any = torch.compile(model) if place == "cuda" else model

    def step() -> None:
        with torch.autocast(place, torch.bfloat16, enabled=how == "autocast"):
            loss = run(**given).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


PARTS = {"words": words, "labels": labels, "speed": speed}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--recipe", default="novels-bert")
    parser.add_argument("--tuned", action="append", default=[], help="settings of the labels")
    options = training_options(parser, "pretraining")
    for part in options.parts:
        case = {"seeds": options.seeds} if part == "labels" else {"recipe": options.recipe} if part == "words" else {}
        rows = PARTS[part](options)
        write(f"pretraining-{part}-{options.device}", options.device, rows, options.out, case=case)


if __name__ == "__main__":
    main()

"""Recipes for language models."""

from __future__ import annotations

from dataclasses import replace

from headway.models import ModelConfig
from headway.models.gpt import SIZES
from headway.recipes.recipe import recipe, varied
from headway.tasks.language import PlainText
from headway.tasks.objective import NextToken
from headway.text.tokenizer import TextOptions
from headway.train.optimiser import AdamW
from headway.train.run import Engine, Run, Validation
from headway.train.schedule import Cosine

SHAKESPEARE = PlainText(("tinyshakespeare/input.txt",), order="random", text=TextOptions(kind="char", exact=True))
SUBWORDS = TextOptions(size=16_000, exact=True)


def language_run(
    name: str, data: PlainText, model: ModelConfig, peak: float, steps: int, batch: int, snapshot: int = 500
) -> Run:
    """AdamW with weight decay and clipping, up to the peak and down to a tenth of it, as GPTs are trained."""
    return Run(
        name, data, model, NextToken(), AdamW(beta2=0.99, epsilon=1e-8, decay=0.1),
        Cosine(peak=peak, warmup=100, floor=0.1), validation=Validation(every=250, score_every=250),
        engine=Engine(steps=steps, batch=batch, clip=1.0, average=0, snapshot=snapshot),
    )  # fmt: skip


@recipe("gpt", "a language model of your own text: --data FILE")
def own_text(name: str) -> Run:
    """Defaults for anybody's text: a model that trains on a laptop in an hour or so."""
    model = replace(SIZES["124M"], layers=4, width=256, heads=4, dropout=0.1, max_length=256)
    run = language_run(name, PlainText(text=replace(SUBWORDS, size=8000)), model, 1e-3, 5000, 4096)
    return varied(run, validation={"patience": 10})


@recipe(
    "shakespeare-char", "Shakespeare letter by letter, nanoGPT's model",
    "loss 1.442 in 43 s from start to end on one H200 (nanoGPT's settings: 1.451 in 44 s)",
)  # fmt: skip
def shakespeare(name: str) -> Run:
    """nanoGPT's model, 10.7 M parameters, and batches of 64 windows of 256 characters; more dropout, since it learns
    the text by heart, at twice the rate, and 4,000 of its 5,000 steps."""
    run = language_run(name, SHAKESPEARE, replace(SIZES["char"], dropout=0.4), 2e-3, 4000, 64 * 256)
    return varied(run, schedule={"floor": 0.0})


@recipe(
    "shakespeare-char-cpu", "the same, small enough for a laptop",
    "loss 1.75 in 85 s on two CPU cores (nanoGPT's settings: 1.91 in 81 s)",
)  # fmt: skip
def shakespeare_cpu(name: str) -> Run:
    """nanoGPT's size for a laptop (4 layers of width 128, windows of 64 characters) at four times its rate."""
    model = replace(SIZES["char"], layers=4, width=128, heads=4, dropout=0.0, attention_dropout=0.0, max_length=64)
    return language_run(name, SHAKESPEARE, model, 4e-3, 2000, 12 * 64)


@recipe("novels-gpt", "18 English novels, byte-pair tokens")
def novels(name: str) -> Run:
    data = PlainText(("novels/core",), text=SUBWORDS)
    model = replace(SIZES["124M"], layers=6, width=384, heads=6, dropout=0.2, attention_dropout=0.0, max_length=512)
    return language_run(name, data, model, 1e-3, 4000, 32_768)


@recipe("gpt2-124m", "GPT-2's smallest size on your own text: --data FILE")
def gpt2(name: str) -> Run:
    """GPT-2's smallest size and vocabulary size, for text of your own."""
    data = PlainText(text=replace(SUBWORDS, size=50_257))
    return varied(language_run(name, data, SIZES["124M"], 6e-4, 100_000, 64 * 1024), schedule={"warmup": 2000})

"""Recipes for language models."""

from __future__ import annotations

from dataclasses import replace

from headway.models.gpt import SIZES
from headway.recipes.recipe import Recipe
from headway.tasks.language import PlainText
from headway.tasks.objective import NextToken
from headway.text.tokenizer import TextOptions
from headway.train.optimiser import AdamW
from headway.train.run import Engine, Run, Validation
from headway.train.schedule import Cosine

CHARACTERS = TextOptions(kind="char", exact=True)
SUBWORDS = TextOptions(size=16_000, exact=True)


def language_run(name: str, data: PlainText, model: object, **how: object) -> Run:
    """AdamW with weight decay and clipping, up to the peak and down to a tenth of it, as GPTs are trained."""
    settings: dict[str, object] = {
        "objective": NextToken(),
        "optimiser": AdamW(beta2=0.99, epsilon=1e-8, decay=0.1),
        "schedule": Cosine(peak=1e-3, warmup=100, floor=0.1),
        "validation": Validation(every=250, score_every=250),
        "engine": Engine(steps=5000, batch=64 * 256, clip=1.0, average=0, snapshot=500, log=50),
    }
    return Run(name, data, model, **(settings | how))  # type: ignore[arg-type]


def shakespeare() -> Run:
    """nanoGPT's model, 10.7 M parameters, and batches of 64 windows of 256 characters; more dropout, since it learns
    the text by heart, at twice the rate, and 4,000 of its 5,000 steps."""
    data = PlainText(("tinyshakespeare/input.txt",), order="random", text=CHARACTERS)
    model = replace(SIZES["char"], dropout=0.4)
    engine = Engine(steps=4000, batch=64 * 256, clip=1.0, average=0, snapshot=500, log=50)
    schedule = Cosine(peak=2e-3, warmup=100, floor=0.0)
    return language_run("shakespeare-char", data, model, engine=engine, schedule=schedule)


def shakespeare_cpu() -> Run:
    """nanoGPT's size for a laptop (4 layers of width 128, windows of 64 characters) at four times its rate."""
    data = PlainText(("tinyshakespeare/input.txt",), order="random", text=CHARACTERS)
    model = replace(SIZES["char"], layers=4, width=128, heads=4, dropout=0.0, attention_dropout=0.0, max_length=64)
    engine = Engine(steps=2000, batch=12 * 64, clip=1.0, average=0, snapshot=500, log=50)
    schedule = Cosine(peak=4e-3, warmup=100, floor=0.1)
    return language_run("shakespeare-char-cpu", data, model, engine=engine, schedule=schedule)


def novels() -> Run:
    data = PlainText(("novels/core",), text=SUBWORDS)
    model = replace(SIZES["124M"], layers=6, width=384, heads=6, dropout=0.2, attention_dropout=0.0, max_length=512)
    return language_run("novels-gpt", data, model, engine=Engine(steps=4000, batch=32_768, clip=1.0, average=0))


def gpt2() -> Run:
    """GPT-2's smallest size and vocabulary size, for text of your own."""
    data = PlainText(text=TextOptions(size=50_257, exact=True))
    schedule = Cosine(peak=6e-4, warmup=2000, floor=0.1)
    engine = Engine(steps=100_000, batch=64 * 1024, clip=1.0, average=0)
    return language_run("gpt2-124m", data, SIZES["124M"], schedule=schedule, engine=engine)


def own_text() -> Run:
    """Defaults for anybody's text: a model that trains on a laptop in an hour or so."""
    model = replace(SIZES["124M"], layers=4, width=256, heads=4, dropout=0.1, max_length=256)
    validation = Validation(every=250, score_every=250, patience=10)
    engine = Engine(steps=5000, batch=4096, clip=1.0, average=0)
    return language_run(
        "gpt", PlainText(text=replace(SUBWORDS, size=8000)), model, validation=validation, engine=engine
    )


LANGUAGE = (
    Recipe("gpt", "a language model of your own text: --data FILE", "", own_text),
    Recipe(
        "shakespeare-char", "Shakespeare letter by letter, nanoGPT's model",
        "loss 1.442 in 43 s from start to end on one H200 (nanoGPT's settings: 1.451 in 44 s)", shakespeare,
    ),
    Recipe(
        "shakespeare-char-cpu", "the same, small enough for a laptop",
        "loss 1.75 in 85 s on two CPU cores (nanoGPT's settings: 1.91 in 81 s)", shakespeare_cpu,
    ),
    Recipe("novels-gpt", "18 English novels, byte-pair tokens", "", novels),
    Recipe("gpt2-124m", "GPT-2's smallest size on your own text: --data FILE", "", gpt2),
)  # fmt: skip

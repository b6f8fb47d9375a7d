"""Recipes for labels of words."""

from __future__ import annotations

from headway.models.bert import BertConfig
from headway.models.heads import Crf
from headway.recipes.recipe import recipe, varied
from headway.tasks.tagging import TaggedText, WordLabels
from headway.text.tokenizer import TextOptions
from headway.train.optimiser import AdamW
from headway.train.run import Engine, Run, Validation
from headway.train.schedule import Linear

TEXT = TextOptions(size=8000)
SMALL = BertConfig(2, 128, 512, 4, types=0, max_length=256, dropout=0.3)


def tagging_run(name: str, data: TaggedText) -> Run:
    """A small encoder that starts from nothing, below a conditional random field."""
    return Run(
        name, data, SMALL, WordLabels(), AdamW(beta2=0.999, epsilon=1e-8, decay=0.01), Linear(peak=1e-3, warmup=200),
        head=Crf(), validation=Validation(every=200, score_every=200),
        engine=Engine(steps=2000, batch=2048, clip=1.0, average=0),
    )  # fmt: skip


@recipe("tag", "labels of the words of your own texts: --data FILE [--init MODEL]")
def own_tags(name: str) -> Run:
    """Defaults for your own labels; better with --init MODEL, a pre-trained encoder, and its sizes."""
    return varied(tagging_run(name, TaggedText(text=TEXT)), validation=Validation(100, 100, patience=10))


@recipe(
    "conll2003-tagger", "named entities, CoNLL-2003, from nothing",
    "entity F1 0.704 (validation 0.777), without pre-training; one H200, 35 s",
)  # fmt: skip
def conll2003(name: str) -> Run:
    """Persons, places, organisations and others in Reuters' news (Tjong Kim Sang and De Meulder 2003)."""
    train, valid, test = ((f"conll2003/eng.{part}.gz",) for part in ("train", "testa", "testb"))
    model = {"layers": 4, "width": 256, "inner": 1024, "dropout": 0.4}
    run = tagging_run(name, TaggedText(train, valid, test, text=TEXT))
    return varied(run, model=model, schedule={"peak": 5e-4}, engine={"steps": 4000})

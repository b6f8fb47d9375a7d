"""Recipes for labels of words."""

from __future__ import annotations

from headway.models.bert import BertConfig
from headway.models.heads import Crf
from headway.recipes.recipe import Recipe
from headway.tasks.tagging import TaggedText, WordLabels
from headway.text.tokenizer import TextOptions
from headway.train.optimiser import AdamW
from headway.train.run import Engine, Run, Validation
from headway.train.schedule import Linear

TEXT = TextOptions(size=8000)
SMALL = BertConfig(2, 128, 512, 4, types=0, max_length=256, dropout=0.3)


def tagging_run(name: str, data: TaggedText, **how: object) -> Run:
    """A small encoder that starts from nothing, below a conditional random field."""
    settings: dict[str, object] = {
        "optimiser": AdamW(beta2=0.999, epsilon=1e-8, decay=0.01),
        "schedule": Linear(peak=1e-3, warmup=200),
        "validation": Validation(every=200, score_every=200),
        "engine": Engine(steps=2000, batch=2048, clip=1.0, average=0, snapshot=500, log=50),
    }
    return Run(name, data, SMALL, WordLabels(), head=Crf(), **(settings | how))  # type: ignore[arg-type]


def conll2003() -> Run:
    """Persons, places, organisations and others in Reuters' news (Tjong Kim Sang and De Meulder 2003)."""
    train, valid, test = ((f"conll2003/eng.{part}.gz",) for part in ("train", "testa", "testb"))
    return tagging_run("conll2003-tagger", TaggedText(train, valid, test, text=TEXT))


def own_tags() -> Run:
    """Defaults for your own labels; better with --init MODEL, a pre-trained encoder, and its sizes."""
    return tagging_run("tag", TaggedText(text=TEXT), validation=Validation(every=100, score_every=100, patience=10))


TAGGING = (
    Recipe("tag", "labels of the words of your own texts: --data FILE [--init MODEL]", "", own_tags),
    Recipe("conll2003-tagger", "named entities, CoNLL-2003, from nothing", "", conll2003),
)

"""Recipes for labels of texts."""

from __future__ import annotations

from headway.evaluate.labels import Judge
from headway.models.bert import SIZES
from headway.models.heads import Classes
from headway.recipes.recipe import recipe, varied
from headway.tasks.classification import LabelledText
from headway.tasks.objective import Labels
from headway.text.tokenizer import TextOptions
from headway.train.optimiser import AdamW
from headway.train.run import Engine, Run, Validation
from headway.train.schedule import Linear

COLA = "cola/cola_public.zip/cola_public/raw/"
SUBWORDS = TextOptions(size=8000, lowercase=True)


def classification_run(name: str, data: LabelledText, judge: Judge = "accuracy") -> Run:
    """BERT's own way to a task: Adam at a small rate, up over the first tenth, straight down (Devlin et al. 2019)."""
    return Run(
        name, data, SIZES["minilm"], Labels(judge=judge), AdamW(beta2=0.999, epsilon=1e-8, decay=0.01),
        Linear(peak=5e-5, warmup=100), head=Classes(), validation=Validation(every=100, score_every=100),
        engine=Engine(steps=1000, batch=1024, clip=1.0, average=0),
    )  # fmt: skip


@recipe("classify", "labels of your own texts: --data FILE [--init MODEL]")
def own_labels(name: str) -> Run:
    """Defaults for anybody's labels; better with --init MODEL, an encoder that has read much before."""
    return varied(classification_run(name, LabelledText(text=SUBWORDS)), validation={"patience": 10})


@recipe("sst2-minilm", "good or bad film, SST-2: --init MINILM")
def sst2(name: str) -> Run:
    """Sentences of film reviews, good or bad (Socher et al. 2013)."""
    train, valid, test = ((f"textcls/stsa.binary.{part}.gz",) for part in ("train", "dev", "test"))
    data = LabelledText(train, valid, test, names=("negative", "positive"), text=SUBWORDS)
    return classification_run(name, data)


@recipe("cola-minilm", "English or not, CoLA: --init MINILM")
def cola(name: str) -> Run:
    """Whether a sentence is English (Warstadt et al. 2019): by Matthews' correlation, since most are."""
    train, valid, test = ((f"{COLA}{part}.tsv",) for part in ("in_domain_train", "in_domain_dev", "out_of_domain_dev"))
    data = LabelledText(train, valid, test, names=("unacceptable", "acceptable"), text=SUBWORDS)
    return varied(classification_run(name, data, "matthews"), engine={"steps": 1500, "batch": 512})

"""Recipes for recurrent language models."""

from __future__ import annotations

from dataclasses import replace

from headway.models.recurrent import SIZES, Locked, RecurrentConfig, Stepwise
from headway.recipes.counting import treebank
from headway.recipes.recipe import recipe, varied
from headway.tasks.language import PlainText
from headway.tasks.objective import Carried
from headway.text.tokenizer import TextOptions
from headway.train.optimiser import AdamW, Sgd
from headway.train.run import Engine, Run, Validation
from headway.train.schedule import Cosine, Staircase

WINDOW = 35
EPOCH = 1327  # steps in which 20 rows of such windows have read the treebank
AWD_EPOCH = 166  # of 80 rows of 70


@recipe("lstm", "a recurrent language model of your own text: --data FILE")
def own_text(name: str) -> Run:
    """Defaults for anybody's text: an LSTM that trains on a laptop in an hour or so."""
    data = PlainText(order="stream", text=TextOptions(size=8000, exact=True))
    model = RecurrentConfig(layers=2, width=400, tied=True, dropout=Stepwise(0.2), max_length=64)
    return Run(
        name, data, model, Carried(), AdamW(beta2=0.99, epsilon=1e-8, decay=0.01),
        Cosine(peak=3e-3, warmup=100, floor=0.05), validation=Validation(every=250, score_every=250, patience=10),
        engine=Engine(steps=5000, batch=32 * 64, clip=1.0, average=0),
    )  # fmt: skip


@recipe(
    "ptb-lstm-medium", "Penn Treebank, Zaremba's LSTM of 2 × 650",
    "test perplexity 82.3 (published: 82.7), validation 85.9; one H200 beside three other runs, 325 s",
)  # fmt: skip
def treebank_medium(name: str) -> Run:
    """Zaremba et al. 2014: the rate 1 for six epochs, then divided by 1.2 each; gradients clipped at 5. Theirs are of
    the sum over a window's steps, headway's of the mean. 26 of their 39 epochs come to their perplexity."""
    return Run(
        name, replace(treebank(), order="stream"), SIZES["medium"], Carried(), Sgd(),
        Staircase(peak=1.0 * WINDOW, hold=6 * EPOCH, every=EPOCH, factor=1 / 1.2),
        validation=Validation(every=EPOCH, score_every=EPOCH),
        # A cell adds up many small changes: bfloat16 would lose them.
        engine=Engine(
            steps=26 * EPOCH, batch=20 * WINDOW, clip=5.0 / WINDOW, dtype="float32", average=0, snapshot=EPOCH,
            checkpoint=EPOCH, log=200,
        ),
    )  # fmt: skip


@recipe(
    "ptb-lstm-tied", "the same with one table for embedding and head",
    "test perplexity 75.3, validation 78.7; one H200 beside three other runs, 402 s",
)  # fmt: skip
def treebank_tied(name: str) -> Run:
    """The same with one table for embedding and head (Inan et al. 2017, Press and Wolf 2017) and locked
    dropout: more of it than here (0.5, 0.4, 0.5) was worse after as many epochs."""
    dropout = Locked(inputs=0.4, between=0.3, outputs=0.4, weights=0.2, words=0.05)
    return varied(
        treebank_medium(), recipe=name, model={"tied": True, "dropout": dropout},
        schedule={"hold": 8 * EPOCH, "factor": 0.82}, engine={"steps": 33 * EPOCH, "average": 8},
    )  # fmt: skip


@recipe(
    "ptb-awd-lstm", "Penn Treebank, AWD-LSTM's model by AdamW",
    "test perplexity 60.8, validation 63.3; one H200 beside another run, 292 s",
)  # fmt: skip
def treebank_awd(name: str) -> Run:
    """Merity et al. 2018: every kind of dropout, AR and TAR. Four times their rows, which a GPU hardly notices, and
    AdamW: in as many seconds it came to a test perplexity of 62.0 where their averaged descent came to 69.6."""
    often = 10 * AWD_EPOCH
    return Run(
        name,
        replace(treebank(), order="stream", jitter=0.25),
        # More dropout than their code was published with (0.4, 0.25, 0.4): Adam overfits sooner.
        replace(SIZES["awd"], dropout=Locked(inputs=0.5, between=0.3, outputs=0.5)),
        # TAR's 1 of the paper stands before the output's dropout, ours behind it.
        Carried(activation=2.0, change=0.6),
        AdamW(beta2=0.99, epsilon=1e-8, decay=0.1),
        Cosine(peak=4e-3, warmup=1000),
        validation=Validation(every=often, score_every=often),
        engine=Engine(27_500, batch=80 * 70, clip=0.25, average=0, snapshot=often, checkpoint=often, log=200),
    )

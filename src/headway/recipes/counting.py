"""Recipes for models that are counted: Markov chains, n-grams."""

from __future__ import annotations

from headway.models.ngram import NGramConfig
from headway.recipes.recipe import recipe
from headway.tasks.language import PlainText
from headway.tasks.objective import Counting
from headway.text.tokenizer import TextOptions
from headway.train.run import Run

# The treebank's own words, 10,000 with the end of a sentence; each line is one.
TREEBANK = TextOptions(kind="word", size=20_000, min_count=1, lines=True)


def treebank(text: TextOptions = TREEBANK) -> PlainText:
    """The Penn Treebank as Mikolov prepared it, with its own validation and test."""
    return PlainText(("ptb/ptb.train.txt",), ("ptb/ptb.valid.txt",), ("ptb/ptb.test.txt",), text=text)


@recipe("markov", "a Markov chain of your own text, counted: --data FILE")
def own_text(name: str) -> Run:
    """Words and line ends as they are, each from the two before it."""
    text = TextOptions(kind="word", size=100_000, min_count=1, exact=True)
    return Run(name, PlainText(text=text), NGramConfig(order=3), Counting())


@recipe(
    "ptb-kn5", "Penn Treebank, 5-grams by modified Kneser-Ney",
    "test perplexity 141.19 (published: 141.2) in 6 s on one CPU core",
)  # fmt: skip
def treebank_kn5(name: str) -> Run:
    return Run(name, treebank(), NGramConfig(order=5), Counting())


@recipe(
    "names-markov", "first names letter by letter, to make up new ones",
    "test perplexity 7.56 per letter in 1 s on one CPU core",
)  # fmt: skip
def names(name: str) -> Run:
    """First names letter by letter."""
    text = TextOptions(kind="char", lines=True)
    data = PlainText(("names/names.txt",), hold_out=0.1, hold_out_test=0.1, text=text)
    return Run(name, data, NGramConfig(order=5), Counting())

"""Complete named runs, each with the score that it reaches. `RECIPES` is the one place where a name becomes a run."""

from __future__ import annotations

from headway.recipes.classification import CLASSIFICATION
from headway.recipes.counting import COUNTING
from headway.recipes.ladder import LADDER, RUNG_RECIPES
from headway.recipes.language import LANGUAGE
from headway.recipes.pictures import PICTURES
from headway.recipes.recipe import Recipe
from headway.recipes.recurrent import RECURRENT
from headway.recipes.rnn_seq2seq import RNN_SEQ2SEQ
from headway.recipes.tagging import TAGGING
from headway.recipes.translation import TRANSLATION
from headway.recipes.vectors import VECTORS

EVERY = (
    *TRANSLATION,
    *LANGUAGE,
    *COUNTING,
    *RUNG_RECIPES,
    *RECURRENT,
    *RNN_SEQ2SEQ,
    *VECTORS,
    *CLASSIFICATION,
    *TAGGING,
    *PICTURES,
)
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in EVERY}

# Names for several at once.
GROUPS: dict[str, tuple[str, ...]] = {"ladder": LADDER}

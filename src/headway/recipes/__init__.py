"""Complete named runs, each with the score that it reaches. `RECIPES` is the one place where a name becomes a run."""

from __future__ import annotations

# isort: off
# The recipes of these modules are listed in this order.
from headway.recipes import translation, language, counting, ladder, recurrent, rnn_seq2seq, vectors  # noqa: F401
from headway.recipes import classification, tagging, pictures  # noqa: F401

# isort: on
from headway.recipes.recipe import RECIPES as RECIPES

# Names for several at once.
GROUPS: dict[str, tuple[str, ...]] = {"ladder": ladder.LADDER}

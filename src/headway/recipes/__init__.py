"""Complete named runs, each with the score that it reaches. `RECIPES` is the one place where a name becomes a run."""

from __future__ import annotations

from headway.recipes.language import LANGUAGE
from headway.recipes.recipe import Recipe
from headway.recipes.translation import TRANSLATION

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (*TRANSLATION, *LANGUAGE)}

"""Complete named runs, each with the score that it reaches. `RECIPES` is the one place where a name becomes a run."""

from __future__ import annotations

from headway.recipes.recipe import GROUPS as GROUPS
from headway.recipes.recipe import RECIPES as RECIPES

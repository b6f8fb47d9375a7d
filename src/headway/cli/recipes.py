"""headway recipes"""

from __future__ import annotations

from headway.cli.options import AS_JSON


def recipes(as_json: bool = AS_JSON) -> None:
    """What can be trained, on what, to which score."""
    from headway.recipes import RECIPES

    if as_json:
        import json

        rows = [{"name": r.name, "summary": r.summary, "reaches": r.reaches} for r in RECIPES.values()]
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    width = max(map(len, RECIPES))
    for recipe in RECIPES.values():
        print(f"{recipe.name:<{width}}  {recipe.summary}")
        if recipe.reaches:
            print(f"{'':<{width}}  → {recipe.reaches}")
    print("\nheadway train RECIPE [--set key=value] [--out FOLDER]; --dry-run shows what it would do")

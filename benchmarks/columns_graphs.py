"""The columns of tables about graphs and molecules."""

from __future__ import annotations

from formats import Column, count, number


def three(value: float) -> str:
    return f"{value:.3f}"


ZINC_MODELS = ("graph", "attention", "gated", "gin")  # ZINC's recipes
ZINC: list[Column] = [
    ("recipe", "recipe", lambda value: f"`{value}`"),
    ("mae", "test MAE", three),
    ("spread", "± over seeds", three),
    ("validation", "validation", three),
    ("parameters", "weights", count),
    ("seconds", "s a training", number),
]
MOLECULES: list[Column] = [
    ("data", "data", str),
    ("who", "model", str),
    ("rmse", "test RMSE", three),
    ("spread", "± over divisions", three),
    ("validation", "validation", three),
    ("parameters", "weights", count),
    ("seconds", "s a training", number),
]
MUTAG: list[Column] = [
    ("who", "model", str),
    ("accuracy", "test accuracy", three),
    ("spread", "± over folds", three),
    ("seconds", "s a training", number),
]

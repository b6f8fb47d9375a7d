"""What a recipe is: a table of a .toml file in this folder. It has the settings of a run, by the keys of run.json, that
differ from the defaults. A part with a name is a new one; one without a name changes that of the tables before it.

    like         the tables that it starts from, in this order
    summary      what it trains on what; a table without one is no recipe, only a start for others
    model.size   one of the family's sizes, which the other keys of the model change
    pretrained   it needs another model to start from (--init)
    from_nothing what differs for a run that does not start from another model (--init)
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from headway.models import FAMILIES
from headway.models.rung import RUNGS
from headway.plain import from_plain, to_plain
from headway.train.run import Run

# The recipes of these files are listed in this order.
FILES = (
    "translation", "language", "counting", "ladder", "recurrent", "rnn_seq2seq", "convolution", "vectors",
    "classification", "tagging", "questions", "masked", "long", "graphs", "pictures", "scenes", "sounds", "worlds",
    "mixtures", "memory", "labs",
)  # fmt: skip
TABLES: dict[str, dict[str, Any]] = {}
for _file in FILES:
    _found = tomllib.loads(files(__package__).joinpath(f"{_file}.toml").read_text(encoding="utf-8"))
    assert not TABLES.keys() & _found.keys(), f"two recipes of one name: {TABLES.keys() & _found.keys()}"
    TABLES |= _found
# Which score a recipe reaches where and in which time: made from benchmarks/results by benchmarks/table.py.
REACHES: dict[str, str] = json.loads(files(__package__).joinpath("reaches.json").read_text(encoding="utf-8"))
SIZES = {name: family.sizes for name, family in FAMILIES.items()} | {"rung": RUNGS}


@dataclass(frozen=True)
class Recipe:
    """A name, what it trains on what, which score it reaches where and in which time, and its run. pretrained: whether
    it needs another model to start from."""

    name: str
    summary: str
    reaches: str = ""
    pretrained: bool = False

    def make(self, pretrained: bool = False, **more: Any) -> Run:
        """Its run; `more`: other settings. pretrained: whether it will start from another model's weights."""
        settings = _settings(self.name)
        alone = settings.pop("from_nothing", {})
        settings = _changed(settings, {} if pretrained else alone)
        settings = _changed(settings, {"recipe": self.name} | more)
        model = dict(settings["model"])
        if size := model.pop("size", ""):
            model = _changed(to_plain(SIZES[model["name"]][size]), model)
        run: Run = from_plain(Run, settings | {"model": model})
        return run


def _settings(name: str) -> dict[str, Any]:
    """Those of a table, and of the tables that it is like."""
    table = TABLES[name]
    found: dict[str, Any] = {}
    for other in table.get("like", ()):
        found = _changed(found, _settings(other))
    return _changed(found, {key: part for key, part in table.items() if key not in ("like", "summary", "pretrained")})


def _changed(settings: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """The settings with others."""
    found = dict(settings)
    for key, part in more.items():
        changes = isinstance(part, dict) and "name" not in part
        found[key] = _changed(found.get(key, {}), part) if changes else part
    return found


RECIPES = {
    name: Recipe(name, table["summary"], REACHES.get(name, ""), table.get("pretrained", False))
    for name, table in TABLES.items()
    if "summary" in table
}
# Names for several at once: the ladder from the foot up. A bag of words is worse than any n-gram: from it on each rung
# is better than the one before.
GROUPS = {
    "classifiers": (
        "classify-bow", "classify-bigrams", "classify-tfidf", "classify-cnn", "classify-lstm", "classify-transformer",
        "classify-frozen", "classify-finetuned",
    ),
    "ladder": ("ladder-kn", "mlp", *(f"ladder-{rung}" for rung in RUNGS)),
    "road": (
        "multi30k-de-en-lstm-plain", "multi30k-de-en-lstm-dot", "multi30k-de-en-lstm-multiplicative",
        "multi30k-de-en-lstm", "multi30k-de-en-lstm-scaled-dot", "multi30k-de-en-lstm-before",
        "multi30k-de-en-lstm-feeding", "multi30k-de-en-conv", "multi30k-de-en",
    ),
}  # fmt: skip

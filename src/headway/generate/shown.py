"""What a model that answers is, and what it can be asked: a few lines in a terminal, a table in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from headway.models.configs import SIZES, family_of, sizes_of
from headway.notebook import facts_table

FEW = 8  # labels that are named


class Shown:
    """Abstract. A model by its `facts`."""

    name = ""
    card: Any = None
    model: Any = None
    labels: Sequence[str] = ()

    def asked(self) -> list[str]:
        """The methods that answer: those of one value or many, and those that stream and trace one."""
        names = [name for name in dir(type(self)) if not name.startswith("_")]
        answering = [name for name in names if getattr(getattr(type(self), name, None), "one_or_many", False)]
        return [*answering, *(name for name in ("stream", "trace") if name in names)]

    def facts(self) -> dict[str, str]:
        """By name: family, size, what it reads and writes, labels, device, score, and what it can be asked."""
        found = {
            "family": self.card.family if self.card else "" if self.model is None else family_of(self.model),
            **({} if self.model is None else _built(self.model)),
            "data": _data(self.card) if self.card else "",
            "labels": _listed(self.labels),
            "score": "" if not self.card else _score(self.card.score),
            "call": ", ".join(self.asked()),
        }
        return {name: value for name, value in found.items() if value}

    @property
    def title(self) -> str:
        return type(self).__name__ + (f" '{self.name}'" if self.name else "")

    def __repr__(self) -> str:
        facts = self.facts()
        wide = max(map(len, facts), default=0)
        return "\n".join([self.title, *(f"  {name:<{wide}}  {value}" for name, value in facts.items())])

    def _repr_html_(self) -> str:
        return facts_table(self.title, self.facts())


def _built(model: nn.Module) -> dict[str, str]:
    sizes, first = sizes_of(model), next(model.parameters(), None)
    counts = [f"{key.replace('_', ' ')} {sizes[key]}" for key in SIZES if sizes.get(key)]
    size = ", ".join([f"{sizes['parameters']:,} parameters", *counts])
    where = "" if first is None else f"{first.device}, {str(first.dtype).removeprefix('torch.')}"
    return {"size": size, "device": where}


def _data(card: Any) -> str:
    """What it reads → what it writes: languages and vocabularies, or the size of a picture."""
    each = [", ".join(filter(None, (config.title, config.summary))) for config in card.processors.values()]
    return " → ".join(each)


def _score(scores: dict[str, Any]) -> str:
    """The figure that chose the weights, and those of the test data."""
    named = [f"{key} {value}" for at, (key, value) in enumerate(scores.items()) if not at or key.startswith("test")]
    return ", ".join(named)


def _listed(labels: Sequence[str]) -> str:
    more = f", … ({len(labels):,} in all)" if len(labels) > FEW else ""
    return ", ".join(labels[:FEW]) + more

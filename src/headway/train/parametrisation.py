"""How the rate of a weight, and its value at the start, follow the model's width.

D width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from headway.card import Loaded
from headway.errors import refuse
from headway.models.language import hidden_weights
from headway.train.optimiser import Adam


@dataclass(frozen=True)
class Standard:
    """The same for all weights of all models: the best rate then falls with the width, about as its root."""

    name: ClassVar[str] = "standard"

    def check(self, model: Any, run: Any, earlier: Loaded | None) -> None:
        """Refuse what it is not meant for."""

    def begin(self, model: Any) -> None:
        """Change the drawn weights of a new model."""

    def rates(self, model: Any) -> dict[str, float]:
        """What the rates of weights are multiplied by, where that is not 1."""
        return {}

    def peak(self, peak: float, chosen_at: int, width: int) -> float:
        """The highest rate, from the best one at another width."""
        return peak * math.sqrt(chosen_at / width)

    def head_width(self, width: int, heads: int) -> int:
        """What the heads of models of all widths must have, from one of them; 0: anything."""
        return 0

    def chosen_at(self, width: int) -> int:
        """What `base` has to be where the rate was chosen at this width; 0: nothing is missing."""
        return 0


@dataclass(frozen=True)
class MuP:
    """μP (Yang et al. 2021, table 8), for Adam: the rate that is best for a model of width `base` is so for others.

    The matrices of the blocks start with √(base/D) of the usual deviation and learn at base/D of the rate; logits are
    base/D times as large. For Adam a factor of the logits is the same as that gain of the last norm, learned at that
    share of the rate, so the model itself stays what it is. What AdamW takes away in a step stays as it is too: its
    decay grows where the rate falls. Heads must keep their width, else the scores would change with it.
    """

    name: ClassVar[str] = "mup"
    base: int = 0

    def __post_init__(self) -> None:
        refuse(self.base < 0, f"engine.parametrisation.base is a width, at least 1, not {self.base}")

    def check(self, model: Any, run: Any, earlier: Loaded | None) -> None:
        refuse(not self.base, "engine.parametrisation.base is missing: the width for which the rate was chosen")
        hidden_weights(model)
        other = run.optimiser.name
        refuse(
            not isinstance(run.optimiser, Adam), f"engine.parametrisation=mup is for adam and adamw, not for {other}"
        )
        plain = type(model.decoder.final) in (nn.LayerNorm, nn.RMSNorm)
        refuse(not plain, "engine.parametrisation=mup needs a model with a norm and its gain behind the last layer")
        grows = model.embed.scale != 1 and model.embed.scale == model.config.width**0.5
        refuse(grows, "engine.parametrisation=mup: embeddings that are multiplied by √D would grow with the width")
        if earlier is not None:
            before = earlier.card.run.get("engine", {}).get("parametrisation", {}).get("name", Standard.name)
            refuse(
                before != self.name,
                f"engine.parametrisation=mup: the model that it starts from was trained as {before}",
            )

    @torch.no_grad()
    def begin(self, model: Any) -> None:
        ratio = self.base / model.config.width
        model.decoder.final.weight.mul_(ratio)
        for weight in hidden_weights(model).values():
            weight.mul_(math.sqrt(ratio))

    def rates(self, model: Any) -> dict[str, float]:
        names = [*hidden_weights(model), "decoder.final.weight"]
        return dict.fromkeys(names, self.base / model.config.width)

    def peak(self, peak: float, chosen_at: int, width: int) -> float:
        return peak

    def head_width(self, width: int, heads: int) -> int:
        return width // heads

    def chosen_at(self, width: int) -> int:
        return 0 if self.base else width


Parametrisation = Standard | MuP

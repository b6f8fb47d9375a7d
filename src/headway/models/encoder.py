"""What every encoder has, whatever it reads and however it computes."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from headway.models.protocols import Encoded


class Encoder(nn.Module):
    """Abstract. Reads its inputs whole; a head (`headway.models.heads`) stands on the last layer.

    width: of the last layer. dropout: what a head takes unless it has its own. context: the most positions that it
    reads; None: any number.
    """

    config: Any
    width: int
    dropout: float
    context: int | None
    # As those of `headway.models.steps.StepModel`: the tracks that each part looks from and to.
    tracks: ClassVar[dict[str, tuple[str, str]]] = {"": ("tokens", "tokens")}

    @property
    def table(self) -> nn.Embedding:
        """The vectors of its vocabulary, for a head that shares them."""
        raise TypeError(f"{type(self).__name__} has no vocabulary whose vectors a head could share")

    def draw(self, part: nn.Module) -> None:
        """The first weights of a part, where the encoder has a rule for them; by default they stay as drawn."""

    def encode(self, inputs: Any) -> Encoded:
        raise NotImplementedError

    def forward(self, inputs: Any) -> Encoded:
        return self.encode(inputs)

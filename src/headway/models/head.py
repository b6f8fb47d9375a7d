"""What every head has. The heads of encoders and their registry are in `headway.models.heads`.

B batch, T length, D width, V vocabulary, L labels.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from headway.errors import InputError
from headway.models.protocols import Encoded, Terms


class Head(nn.Module):
    """Abstract. A method that a head does not have raises an error that says what the model does instead.

    axes: of the logits, as a trace names them; none where there are no logits. capturable: whether `losses` runs the
    same kernels for every batch of a shape.
    """

    axes: ClassVar[tuple[str, ...]] = ()
    capturable: ClassVar[bool] = True
    does: ClassVar[str] = ""

    def forward(self, encoded: Encoded) -> Any:
        raise NotImplementedError

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        raise InputError(f"a model that {self.does} is not trained from this data")

    def words(self, hidden_BTD: Tensor) -> Tensor:
        """Logits of the word at each position."""
        raise InputError(f"this model fills no gaps: it {self.does}")

    def classes(self, encoded: Encoded) -> Tensor:
        """The probability of each label of the text, or a number for each."""
        raise InputError(f"this model has no labels for a text: it {self.does}")

    def tags(self, encoded: Encoded, starts_BT: Tensor) -> tuple[Tensor, Tensor]:
        """The label of each token and its probability. Only those of `starts_BT` are read: the first token of each
        word."""
        raise InputError(f"this model has no labels for words: it {self.does}")

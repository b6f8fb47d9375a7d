"""Published models that headway does not build, as the shapes of their weights alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Encoder:
    """BERT (Devlin et al. 2019): a Transformer encoder with positions, two segments and a pooler on its first token."""

    layers: int
    width: int
    inner: int
    vocabulary: int = 30_522
    positions: int = 512
    segments: int = 2

    def embedding(self) -> list[Shape]:
        rows = (self.vocabulary, self.positions, self.segments)
        return [*((count, self.width) for count in rows), *self._norm()]

    def layer(self) -> list[Shape]:
        """Four maps of attention and two of the feed-forward network, each with a bias, and two norms."""
        maps = [(self.width, self.width)] * 4 + [(self.inner, self.width), (self.width, self.inner)]
        return [*maps, *((to,) for to, _ in maps), *self._norm(), *self._norm()]

    def pooler(self) -> list[Shape]:
        return [(self.width, self.width), (self.width,)]

    def _norm(self) -> list[Shape]:
        return [(self.width,)] * 2

    def parameters(self) -> dict[str, int]:
        """Of each part, all its layers together."""
        return {
            "embedding": _numbers(self.embedding()),
            "layers": self.layers * _numbers(self.layer()),
            "pooler": _numbers(self.pooler()),
        }

    def products(self, length: int, batch: int = 1) -> dict[str, int]:
        """Multiply-adds of a forward pass: every matrix once for each token, and the pairs of attention."""
        matrices = sum(math.prod(shape) for shape in self.layer() if len(shape) == 2)
        return {
            "maps": batch * length * self.layers * matrices,
            "pairs": batch * self.layers * 2 * length**2 * self.width,
            "pooler": batch * self.width**2,
        }


def _numbers(shapes: list[Shape]) -> int:
    return sum(math.prod(shape) for shape in shapes)


ENCODERS = {"bert-base": Encoder(12, 768, 3072), "bert-large": Encoder(24, 1024, 4096)}

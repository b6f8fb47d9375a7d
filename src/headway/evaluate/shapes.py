"""Published models that headway does not build, as the shapes of their weights alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Encoder:
    """BERT (Devlin et al. 2019): a Transformer encoder with positions, two segments and a pooler on its first token."""

    layers: int
    width: int
    inner: int
    vocabulary: int = 30_522
    positions: int = 512
    segments: int = 2

    @property
    def matrices(self) -> int:
        """Of a layer: four maps of attention and two of the feed-forward network."""
        return 4 * self.width**2 + 2 * self.inner * self.width

    def parameters(self) -> dict[str, int]:
        """Of each part, all its layers together: matrices, a bias of each map, and norms of 2·width."""
        norm, biases = 2 * self.width, 5 * self.width + self.inner
        return {
            "embedding": (self.vocabulary + self.positions + self.segments) * self.width + norm,
            "layers": self.layers * (self.matrices + biases + 2 * norm),
            "pooler": self.width**2 + self.width,
        }

    def products(self, length: int, batch: int = 1) -> dict[str, int]:
        """Multiply-adds of a forward pass: every matrix once for each token, and the pairs of attention."""
        return {
            "maps": batch * length * self.layers * self.matrices,
            "pairs": batch * self.layers * 2 * length**2 * self.width,
            "pooler": batch * self.width**2,
        }


ENCODERS = {"bert-base": Encoder(12, 768, 3072), "bert-large": Encoder(24, 1024, 4096)}

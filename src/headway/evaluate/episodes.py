"""What a policy's episodes came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class EpisodeScores:
    """returns: the sum of each episode's rewards. succeeded: None where the world does not say."""

    returns: tuple[float, ...]
    steps: tuple[int, ...]
    succeeded: tuple[bool, ...] | None = None

    @classmethod
    def of(cls, episodes: Sequence[Any]) -> EpisodeScores:
        said = [one.succeeded for one in episodes]
        told = None if any(one is None for one in said) else tuple(map(bool, said))
        return cls(tuple(one.total for one in episodes), tuple(len(one.rewards) for one in episodes), told)

    @property
    def interval(self) -> float:
        """Half of the interval that has the mean return with 95 %, of so many episodes (normal approximation)."""
        count = len(self.returns)
        return float(1.96 * np.std(self.returns, ddof=1) / count**0.5) if count > 1 else float("nan")

    def figures(self) -> dict[str, float]:
        found = {
            "return": float(np.mean(self.returns)), "interval": self.interval, "least": min(self.returns),
            "most": max(self.returns), "steps": float(np.mean(self.steps)),
        }  # fmt: skip
        return found | ({} if self.succeeded is None else {"success": float(np.mean(self.succeeded))})

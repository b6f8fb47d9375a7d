"""The objective of word vectors: words beside each other against words of noise (Mikolov et al. 2013).

Sizes are those of `headway.data.word_windows`; E columns and noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.word_windows import Tiles
from headway.models.protocols import Terms
from headway.tasks.objective import Config, Objective


@final
class NegativeSamplingObjective(Objective):
    """For a word i of a tile, its n_i neighbours j, and the tile's M words of noise m,

        loss = −Σ_i [Σ_j log σ(u_j·v_i) + (K n_i / M) Σ_m log σ(−u_m·v_i)]

    which is eq. 4 of Mikolov et al. (2013) summed over all pairs, in expectation: every pair has K words of noise there
    and M of the weight K/M here.
    """

    @property
    def small_kernels(self) -> bool:
        return True

    def forward(self, batch: Tiles) -> Terms:
        near_PTC, noise_PT1 = self.weights(batch)
        v_PTD = self.model.table(batch.words_PT)
        score_PTC, score_PTM = (v_PTD @ self.model.around_VD[ids].mT for ids in (batch.around_PC, batch.noise_PM))
        loss = -(near_PTC * F.logsigmoid(score_PTC)).sum() - (noise_PT1 * F.logsigmoid(-score_PTM)).sum()
        return {"loss": (loss, 1.0), "nll": (loss.detach(), 0.0)}

    def weights(self, tiles: Tiles) -> tuple[Tensor, Tensor]:
        """What each product of a tile counts: 1 for a neighbour, K n_i / M for noise."""
        near_PTC = tiles.near_PTC.float()
        noise = self.model.config.negatives / tiles.noise_PM.shape[1]
        return near_PTC, near_PTC.sum(-1, keepdim=True) * noise

    def step(self, masters: Any) -> RowStep:
        return RowStep(self, masters)


@final
class RowStep:
    """One step down the gradient of `NegativeSamplingObjective`, written out by hand: only the rows of words that are
    in the tiles are touched, where an optimiser would read and write both tables.

    The gradients of a step are summed. For a word that stands in many of its pairs the sum would overshoot where steps
    of one pair each would not: rate · pairs is held to `most`. The loss is measured on every tenth batch.
    """

    most = 1.0

    def __init__(self, objective: NegativeSamplingObjective, masters: Any) -> None:
        self.objective, self.masters, self.model = objective, masters, objective.model
        pairs_V: Tensor = self.model.pairs_V
        self.most_V = (self.most / pairs_V.clamp(min=1e-9)).float().to(masters.device)
        self.bad = torch.zeros((), device=masters.device)

    @torch.no_grad()
    def __call__(self, batch: Tiles, parts: int = 1) -> dict[str, Tensor]:
        tiles = batch.map(lambda tensor: tensor.to(self.masters.device, non_blocking=True))
        loss = count = torch.zeros((), device=self.masters.device)
        if batch.measured:
            loss, count = self.objective(tiles)["loss"][0], tiles.counts["loss"]
            self.bad = (~loss.isfinite()).float()
        self.learn(tiles, self.masters.rate)
        sums = {"loss": loss, "nll": loss, "count.loss": count, "count.nll": count}
        return sums | {"norm": torch.zeros_like(loss), "bad": self.bad}

    @torch.no_grad()
    def learn(self, tiles: Tiles, rate: float) -> None:
        """The rate of a word is `rate`, or `most_V` where that is less."""
        model, columns = self.model, tiles.around_PC.shape[1]
        ids_PE = torch.cat([tiles.around_PC, tiles.noise_PM], 1)
        v_PTD, u_PED = F.embedding(tiles.words_PT, model.table.weight), F.embedding(ids_PE, model.around_VD)
        near_PTC, noise_PT1 = self.objective.weights(tiles)
        # ∂loss/∂(u·v): weight · (σ − 1) for a neighbour, weight · σ for noise.
        slope_PTE = torch.bmm(v_PTD, u_PED.mT).sigmoid_()
        slope_PTE[:, :, :columns].sub_(1).mul_(near_PTC)
        slope_PTE[:, :, columns:].mul_(noise_PT1)
        toward_v, toward_u = torch.bmm(slope_PTE, u_PED), torch.bmm(slope_PTE.mT, v_PTD)
        self._descend(model.table.weight, tiles.words_PT, toward_v, rate)
        self._descend(model.around_VD, ids_PE, toward_u, rate)

    def _descend(self, table_VD: Tensor, ids: Tensor, toward: Tensor, rate: float) -> None:
        """Take each gradient off its row; a row that is there several times gets the sum."""
        ids_N1 = ids.flatten()[:, None]
        steps_ND = toward.flatten(0, 1).mul_(self.most_V[ids_N1].clamp_(max=rate).neg_())
        # Over rows that are expanded this is twice as fast as index_add_.
        table_VD.scatter_add_(0, ids_N1.expand_as(steps_ND), steps_ND)


@dataclass(frozen=True)
class NegativeSampling(Config):
    """Neighbours against words of noise (Mikolov et al. 2013)."""

    name: ClassVar[str] = "negative-sampling"
    objective: ClassVar[type[Objective]] = NegativeSamplingObjective
    learns: ClassVar[str] = "rows"

    def cost_in_words(self, run: Any) -> str:
        tokens = run.engine.steps * run.engine.batch
        return f"{tokens:,} tokens in {run.engine.steps:,} steps: about a minute for 20 million on two CPU cores"

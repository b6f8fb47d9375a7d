"""Direct preference optimisation: of two answers the one that people chose becomes likelier, beside what the model
said before. Judged by the share of held-out pairs whose chosen answer has gained more.

B pairs, T length, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.batch import IGNORED, TokenBatch
from headway.data.batches import BucketedBatches
from headway.data.conversations import Preference, read_preferences
from headway.data.preference_pairs import PreferenceBatch, PreferenceStore
from headway.errors import refuse
from headway.models.protocols import Terms
from headway.nn.loss import log_likelihoods
from headway.tasks.conversing import Conversations, Tuning
from headway.tasks.objective import Config, Objective, TokenObjective
from headway.tasks.start import RunContext
from headway.tasks.task import Figure


@final
class DpoObjective(TokenObjective):
    """With π the model and ρ the one that training began with, of a chosen answer y and a rejected one z

        loss = −(1 − ε) log σ(Δ) − ε log σ(−Δ),    Δ = β[(log π(y) − log ρ(y)) − (log π(z) − log ρ(z))]

    (Rafailov et al. 2023, eq. 7; ε is the share of pairs that are taken to be the wrong way round) plus, where it has a
    weight, the cross-entropy of the chosen answer's tokens.
    """

    def weight(self) -> Tensor:
        """Without rows that only fill the head up: both models are compared over the same tokens."""
        return self.model.output_weight[: self.model.vocabulary]

    def forward(self, batch: PreferenceBatch) -> Terms:  # type: ignore[override]
        config, (model_B2, nll) = self.config, self.log_probs(batch)
        gain_B2 = model_B2 - batch.reference_B2.to(model_B2)
        margin_B = (gain_B2[:, 0] - gain_B2[:, 1]) * batch.real_B
        delta_B = config.beta * margin_B
        wrong = config.smoothing
        loss_B = -(1 - wrong) * F.logsigmoid(delta_B) - wrong * F.logsigmoid(-delta_B)
        right_B = (margin_B.detach() > 0).float() * batch.real_B
        terms: Terms = {
            "loss": ((loss_B * batch.real_B).sum(), 1.0),
            "accuracy": (right_B.sum(), 0.0),
            "margin": (margin_B.detach().sum(), 0.0),
            "nll": (nll if config.likelihood else nll.detach(), config.likelihood),
        }
        return terms

    def log_probs(self, batch: PreferenceBatch) -> tuple[Tensor, Tensor]:
        """log π of both answers, and Σ −log π of the chosen ones."""
        both = TokenBatch.join([batch.chosen, batch.rejected])
        of_rows_R = log_likelihoods(self.hidden(both), self.weight(), both.labels_BT, IGNORED)
        model_B2 = of_rows_R.unflatten(0, (2, -1)).T
        return model_B2, -model_B2[:, 0].sum()


@dataclass(frozen=True)
class Dpo(Config):
    """beta: how dear it is to move away from the first model. smoothing: the share of pairs that are taken to be the
    wrong way round. likelihood: the weight of the chosen answers' own cross-entropy."""

    name: ClassVar[str] = "dpo"
    objective: ClassVar[type[Objective]] = DpoObjective
    beta: float = 0.1
    smoothing: float = 0.0
    likelihood: float = 0.0

    def __post_init__(self) -> None:
        refuse(not 0 < self.beta < float("inf"), f"objective.beta must be above 0, not {self.beta}")
        refuse(not 0 <= self.smoothing < 0.5, f"objective.smoothing must lie between 0 and 0.5, not {self.smoothing}")
        refuse(not self.likelihood >= 0, f"objective.likelihood must be 0 or more, not {self.likelihood}")


@dataclass(frozen=True)
class Preferences(Conversations):
    """JSON lines with a chosen and a rejected answer each (`headway.data.conversations` has the shapes). The rest as in
    `Conversations`; pairs are not packed."""

    name: ClassVar[str] = "preferences"
    wanted: ClassVar[str] = "FILE (.jsonl of prompt, chosen and rejected)"


class Preferring(Tuning):
    """What the first model thinks of each answer is computed once, before the first step."""

    name = "preferring"
    data = Preferences
    objectives = (Dpo,)
    headline = ("accuracy", True)
    unit = "pairs"
    reads = staticmethod(read_preferences)

    def __init__(self, run: Any, context: RunContext) -> None:
        refuse(
            not run.init, "preferences tune a model that can answer (headway train tune makes one): pass --init MODEL"
        )
        super().__init__(run, context)
        self.held = {}
        for part, values in self.parts.items():
            store = self._store(part, values)
            train = part == "train"
            made = store.batches(run.engine.batch, run.engine.seed if train else 0, train, self.limit)
            self._refer(store, made)
            if train:
                self.batches = made
            else:
                self.held[part] = made

    def _store(self, part: str, values: Sequence[Preference]) -> PreferenceStore:
        sides = [
            self.encoded([value.answered(answer) for value, answer in zip(values, answers, strict=True)], last=True)
            for answers in ([value.chosen for value in values], [value.rejected for value in values])
        ]
        limit = min(self.run.data.length or self.limit, self.limit)
        pairs = list(zip(*sides, strict=True))
        fits = [max(len(one.ids) for one in pair) <= limit for pair in pairs]
        self.parts[part] = [value for value, fit in zip(values, fits, strict=True) if fit]
        kept = [pair for pair, fit in zip(pairs, fits, strict=True) if fit]
        self.told(part, len(pairs), len(kept), sum(label != IGNORED for pair in kept for label in pair[0].labels))
        return PreferenceStore(kept)

    @torch.no_grad()
    def _refer(self, store: PreferenceStore, made: BucketedBatches[PreferenceBatch]) -> None:
        """Fill in what the first model thinks."""
        objective, device = DpoObjective(self.model.eval(), self.run.objective).eval(), self.context.device
        with self.log.bar("asking the first model", len(store.pairs), " pairs") as show:
            done = 0
            for batch in made.epoch():
                found_B2 = objective.log_probs(batch.map(lambda tensor: tensor.to(device)))[0]
                count = len(batch.examples)
                store.reference_N2[list(batch.examples)] = found_B2[:count].double().cpu()
                show(done := done + count)
        self.model.train()

    def shown_losses(self, losses: dict[str, float]) -> dict[str, float]:
        return {name: losses[name] for name in ("loss", "accuracy", "margin")}

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        return "loss", Figure(losses["loss"])

    def final_figures(self) -> dict[str, Any]:
        """The share of held-out pairs in which the chosen answer gained more, and by how many nats."""
        found = self.held_losses()
        names = ("accuracy", "margin")
        return {f"{part} {name}": round(one[name], 4) for part, one in found.items() for name in names}

    def guess(self) -> float:
        return float(np.log(2))

    @staticmethod
    def prompt_of(value: Preference) -> Sequence[Any]:
        return value.prompt

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> PreferenceBatch:
        both = super().sample(run, size, device)
        half = both.rows(0, max(1, len(both) // 2))
        pairs = len(half)
        return PreferenceBatch(half, half, torch.zeros(pairs, 2, device=device), torch.ones(pairs, device=device))

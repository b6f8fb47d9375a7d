"""Logistic regression on TF-IDF by scikit-learn: fitted on all texts at once, then kept as tensors.

scikit-learn counts the n-grams, weighs them and fits; its table and its coefficients are copied into a model of the
family `tfidf`, which needs scikit-learn no more.

N texts, G n-grams, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.errors import refuse
from headway.evaluate.labels import Judge
from headway.extras import wanted
from headway.models import build
from headway.nn.grams import gram_keys
from headway.tasks.objective import Config
from headway.text.tokenizer import SPECIALS

ROUNDS = 1000  # of the solver, at most


@dataclass(frozen=True)
class LogisticRegression(Config):
    """−Σ log p(label) + ‖W‖²/2C, at its minimum. strengths: values of C, of which the one that validates best is kept.
    `judge`: the figure that chooses it."""

    name: ClassVar[str] = "logistic-regression"
    learns: ClassVar[str] = "fitting"
    one_pass: ClassVar[bool] = True
    one_label: ClassVar[bool] = True
    strengths: tuple[float, ...] = (1.0, 4.0, 16.0)
    judge: Judge = "accuracy"

    def __post_init__(self) -> None:
        wrong = not self.strengths or not all(0 < strength < float("inf") for strength in self.strengths)
        refuse(wrong, f"objective.strengths must be numbers above 0, not {list(self.strengths)}")

    def cost_in_words(self, run: Any) -> str:
        return "fitted on all texts at once by scikit-learn: seconds for some ten thousand"


def counted_grams(ids: Sequence[int], order: int, vocabulary: int) -> list[int]:
    """The keys of the n-grams of a text; none has a special or an unknown token in it."""
    words = [list(some) for plain, some in groupby(ids, lambda entry: entry >= len(SPECIALS)) if plain]
    keys = [gram_keys(torch.tensor([some]), order, vocabulary) for some in words]
    return [key for some in keys for key_1M in some for key in key_1M.flatten().tolist()]


def load_library() -> None:
    """scikit-learn takes seconds to import, which are not part of a fit."""
    for module in ("sklearn.feature_extraction.text", "sklearn.linear_model"):
        wanted(module, "classical")


class TfIdfFit:
    """The vectors of the training texts, and a model for each strength."""

    def __init__(self, config: Any, vocabulary: int, texts: Sequence[Sequence[int]]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        grams = [counted_grams(ids, config.order, vocabulary) for ids in texts]
        refuse(not any(grams), "no text has a word that the vocabulary knows: there is nothing to count")
        self.vectorizer = TfidfVectorizer(
            analyzer=list, sublinear_tf=config.sublinear, max_features=config.features, dtype=np.float64
        )
        self.x_NG = self.vectorizer.fit_transform(grams)
        self.keys = sorted(self.vectorizer.vocabulary_, key=self.vectorizer.vocabulary_.get)
        self.config, self.vocabulary = replace(config, found=len(self.keys)), vocabulary

    def model(self, labels_N: NDArray[np.int64], strength: float, weights_N: Any, head: Any) -> Any:
        """The regression of this strength as an encoder and a head."""
        from sklearn.linear_model import LogisticRegression as Regression

        found = Regression(C=strength, max_iter=ROUNDS).fit(self.x_NG, labels_N, sample_weight=weights_N)
        model = build(self.config.name, self.config, (self.vocabulary,), head)
        weight_LG, bias_L = (torch.from_numpy(one) for one in (found.coef_, found.intercept_))
        if len(bias_L) == 1:  # of two labels scikit-learn has the second's alone
            weight_LG, bias_L = (torch.cat([-one / 2, one / 2]) for one in (weight_LG, bias_L))
        self._fill(model, {"head.labels.weight": weight_LG, "head.labels.bias": bias_L})
        return model.eval()

    @torch.no_grad()
    def _fill(self, model: Any, weights: dict[str, Tensor]) -> None:
        table = {"encoder.keys_G": torch.tensor(self.keys), "encoder.idf_G": torch.from_numpy(self.vectorizer.idf_)}
        homes = dict(chain(model.named_parameters(), model.named_buffers()))
        for name, values in (table | weights).items():
            homes[name].copy_(values)

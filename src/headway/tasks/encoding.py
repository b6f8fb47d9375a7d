"""What encoders with other heads answer: vectors of texts, words for gaps, labels of words."""

from __future__ import annotations

import torch

from headway.card import Loaded
from headway.generate.encoder import Encoder
from headway.tasks.task import Task

ENCODER_VERBS = ("embed", "fill", "predict")  # a head refuses what it has no answer for


class Encoding(Task):
    """Abstract. A model that is asked, and not trained by headway yet."""

    roles = ("encodes",)
    verbs = ENCODER_VERBS

    @classmethod
    def open(cls, loaded: Loaded, device: torch.device, dtype: torch.dtype) -> Encoder:
        return Encoder(loaded, device, dtype)


class Embedding(Encoding):
    name = "embedding"
    verb = "embed"


class MaskedWords(Encoding):
    name = "masked-words"
    verb = "fill"


class Tagging(Encoding):
    name = "tagging"
    verb = "predict"

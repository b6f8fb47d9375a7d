"""Heads that answer for every token or word: labels, replaced words, the span of an answer.

B batch, T length, D width, L labels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.batch import IGNORED
from headway.errors import refuse
from headway.models.crf import Chain, valid_steps
from headway.models.head import Head, HeadChoice, Map, cross_entropy, own_dropout
from headway.models.protocols import Encoded, Encodes, Terms

IMPOSSIBLE = -1e4  # added to a score: finite, so that gradients are


class TagsHead(Head):
    """hC + c: a logit for each label of each token."""

    axes = ("row", "target", "label")
    does = "labels words (headway predict)"

    def __init__(self, encoder: Encodes, config: Tags) -> None:
        super().__init__()
        self.dropout, self.labels = own_dropout(encoder, config), nn.Linear(encoder.width, len(config.labels))
        self.layer = nn.Identity() if config.map is None else config.map.build(encoder.width)

    def forward(self, encoded: Encoded) -> Tensor:
        return self.labels(self.dropout(self.layer(encoded.x_BTD)))

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        return cross_entropy(self(encoded).flatten(0, 1), batch.labels_BT.flatten(), smoothing)

    def tags(self, encoded: Encoded, starts_BT: Tensor) -> tuple[Tensor, Tensor]:
        share_BT, label_BT = self(encoded).float().softmax(-1).max(-1)
        return label_BT, share_BT


@dataclass(frozen=True)
class Tags(HeadChoice):
    """A label of every token. `dropout`: None for that of the encoder. `map`: a hidden layer (None: none)."""

    name = "tags"
    task = "tagging"
    module: ClassVar[Any] = TagsHead
    labels: tuple[str, ...] = ("0", "1")
    dropout: float | None = None
    map: Map | None = None


class ReplacedHead(TagsHead):
    """Logits (0, f(hW + b)c + d): a token is the text's own, or stands in the place of one (Clark et al. 2020, 2)."""

    def __init__(self, encoder: Encodes, config: Replaced) -> None:
        super().__init__(encoder, config)
        self.labels = nn.Linear(encoder.width, 1)

    def forward(self, encoded: Encoded) -> Tensor:
        return F.pad(super().forward(encoded), (1, 0))


@dataclass(frozen=True)
class Replaced(Tags):
    """Whether each token is the text's own: a discriminator."""

    name = "replaced"
    task = "replaced-tokens"
    module = ReplacedHead
    labels: tuple[str, ...] = ("original", "replaced")
    dropout: float | None = 0.0
    map: Map | None = field(default_factory=lambda: Map("gelu"))


class SpansHead(Head):
    """hS + s: logits of the first and of the last token of an answer, a softmax over all tokens each (Devlin et al.
    2019, 4.2)."""

    axes = ("row", "target", "label")
    does = "finds answers in a text (headway predict)"

    def __init__(self, encoder: Encodes, config: Spans) -> None:
        super().__init__()
        self.dropout, self.ends = own_dropout(encoder, config), nn.Linear(encoder.width, 2)
        self.layer = nn.Identity() if config.map is None else config.map.build(encoder.width)

    def forward(self, encoded: Encoded) -> Tensor:
        return self.ends(self.dropout(self.layer(encoded.x_BTD)))

    def spans(self, encoded: Encoded) -> tuple[Tensor, Tensor]:
        first_BT, last_BT = self(encoded).unbind(-1)
        return first_BT, last_BT

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        """The mean of −log p(first) and −log p(last)."""
        refuse(smoothing, "the ends of an answer have no label smoothing: set objective.smoothing=0")
        (first_BT, last_BT), lengths_B = self.spans(encoded), encoded.lengths_B
        first, _ = cross_entropy(_unpadded(first_BT, lengths_B), batch.first_B, 0.0)["nll"]
        last, _ = cross_entropy(_unpadded(last_BT, lengths_B), batch.last_B, 0.0)["nll"]
        nll = first + last
        return {"loss": (nll / 2, 1.0), "nll": (nll.detach() / 2, 0.0)}


def _unpadded(logits_BT: Tensor, lengths_B: Tensor | None) -> Tensor:
    """Logits of −∞ for padding."""
    if lengths_B is None:
        return logits_BT
    padding_BT = torch.arange(logits_BT.shape[1], device=logits_BT.device) >= lengths_B[:, None]
    return logits_BT.masked_fill(padding_BT, -torch.inf)


@dataclass(frozen=True)
class Spans(HeadChoice):
    """An answer to a question, as a part of a text that is read with it. `dropout`, `map`: as of `Tags`."""

    name = "spans"
    task = "question-answering"
    module = SpansHead
    dropout: float | None = 0.0
    map: Map | None = None


class CrfHead(TagsHead):
    """−log p(y | x) over the words of each text; padding and the further tokens of a word are passed over."""

    first_L: Tensor
    step_LL: Tensor
    last_L: Tensor

    def __init__(self, encoder: Encodes, config: Crf) -> None:
        super().__init__(encoder, config)
        labels = len(config.labels)
        self.before_L, self.behind_L = nn.Parameter(torch.zeros(labels)), nn.Parameter(torch.zeros(labels))
        self.between_LL = nn.Parameter(torch.zeros(labels, labels))
        first_L, step_LL, last_L = valid_steps(config.labels)
        shut = IMPOSSIBLE if config.valid else 0.0
        for name, allowed in (("first_L", first_L), ("step_LL", step_LL), ("last_L", last_L)):
            self.register_buffer(name, torch.where(allowed, 0.0, shut), persistent=False)

    def chain(self, encoded: Encoded, starts_BT: Tensor) -> tuple[Chain, Tensor]:
        """The chain of the words that begin at `starts_BT`, and the token of each."""
        e_BTL = self(encoded)
        wide = torch.promote_types(e_BTL.dtype, torch.float32)
        token_BT = (~starts_BT).long().argsort(dim=1, stable=True)  # first tokens of words to the left, in their order
        e_BTL = e_BTL.gather(1, token_BT[..., None].expand_as(e_BTL)).to(wide)
        learned = self.before_L, self.between_LL, self.behind_L
        fixed = self.first_L, self.step_LL, self.last_L
        a_L, A_LL, b_L = (weight.to(wide) + rule.to(wide) for weight, rule in zip(learned, fixed, strict=True))
        return Chain(a_L, e_BTL, A_LL, b_L, starts_BT.gather(1, token_BT)), token_BT

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        refuse(smoothing, "a conditional random field has no label smoothing: set objective.smoothing=0")
        starts_BT = batch.labels_BT != IGNORED
        chain, token_BT = self.chain(encoded, starts_BT)
        labels_BT = batch.labels_BT.gather(1, token_BT).clamp(min=0)
        nll_B = chain.log_partition() - chain.score(labels_BT)
        nll = torch.where(starts_BT.any(1), nll_B, 0.0).sum()
        return {"loss": (nll, 1.0), "nll": (nll.detach(), 0.0)}

    def tags(self, encoded: Encoded, starts_BT: Tensor) -> tuple[Tensor, Tensor]:
        """The labels of the best sequence, and the probability of each over all sequences."""
        chain, token_BT = self.chain(encoded, starts_BT)
        best_BT = chain.best()
        share_BT = chain.marginals().gather(2, best_BT[..., None])[..., 0]
        return torch.zeros_like(best_BT).scatter(1, token_BT, best_BT), share_BT.scatter(1, token_BT, share_BT)


@dataclass(frozen=True)
class Crf(Tags):
    """A label of every word, chosen together with those of its neighbours. `valid`: sequences of BIO or BIOES labels
    that mark no chunks (O I-PER) have probability 0."""

    name = "crf"
    module = CrfHead
    valid: bool = False

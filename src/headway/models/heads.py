"""Heads: the last part of a model, on top of an encoder. Any encoder takes any head (`Headed`).

A head's config is a frozen dataclass with a `name`, a `task` and its `module`. The module gives logits, the loss terms
of a batch, and the answers that its task reads.

B batch, T length, D width, V vocabulary, L labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.batch import IGNORED
from headway.errors import InputError, refuse
from headway.models.crf import Chain
from headway.models.protocols import Encoded, Encodes, Terms
from headway.nn import embedding, tap
from headway.nn.dropout import Dropout
from headway.nn.feed_forward import gelu
from headway.nn.pooling import FirstToken, Pooling

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


class Head(nn.Module):
    """Abstract. A method that a head does not have raises an error that says what the model does instead.

    axes: of the logits, as a trace names them; none where there are no logits. capturable: whether `losses` runs the
    same kernels for every batch of a shape.
    """

    axes: ClassVar[tuple[str, ...]] = ()
    capturable: ClassVar[bool] = True
    does: ClassVar[str] = ""

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


class HeadChoice:
    """Abstract. A head's config."""

    name: ClassVar[str]
    task: ClassVar[str]
    module: ClassVar[Any]  # a `Head`, made of an encoder and this config


class VectorsHead(Head):
    does = "gives vectors (headway embed)"

    def __init__(self, encoder: Encodes, config: Vectors) -> None:
        super().__init__()
        self.first = FirstToken(encoder.width) if config.first else None

    def forward(self, encoded: Encoded) -> Any:
        return encoded.x_BTD if self.first is None else (encoded.x_BTD, self.first(encoded.x_BTD))


@dataclass(frozen=True)
class Vectors(HeadChoice):
    """The last layer. `first`: beside it, a map of the first token's vector. `pooling`: how a text's vector is made of
    its tokens' (None: not known), `unit`: of length 1, `longest`: of at most so many tokens (0: as the model),
    `prompt`: what stands before every text."""

    name = "vectors"
    task = "embedding"
    module = VectorsHead
    first: bool = False
    pooling: Pooling | None = None
    unit: bool = False
    longest: int = 0
    prompt: str = ""


class WordsHead(Head):
    """Logits norm(f(hW))Eᵀ + b: the word at each position; E is the embedding's own table."""

    axes = ("row", "target", "vocabulary")
    does = "fills gaps (headway fill)"

    def __init__(self, encoder: Encodes, config: Words) -> None:
        super().__init__()
        table = encoder.table
        narrow, self.activation = table.embedding_dim, ACTIVATIONS[config.activation]
        self.map, self.norm = nn.Linear(encoder.width, narrow), nn.LayerNorm(narrow, config.epsilon)
        self.output = embedding.Head(narrow, table.num_embeddings, table if config.tied else None)
        self.bias_V = nn.Parameter(torch.zeros(table.num_embeddings))

    def forward(self, encoded: Encoded) -> Any:
        return self.words(encoded.x_BTD)

    def words(self, hidden_BTD: Tensor) -> Tensor:
        return self.output(self.norm(self.activation(self.map(hidden_BTD)))) + self.bias_V


@dataclass(frozen=True)
class Words(HeadChoice):
    """A word for every position (Devlin et al. 2019, 3.1). `tied`: by the embedding's own table."""

    name = "words"
    task = "masked-words"
    module: ClassVar[Any] = WordsHead
    tied: bool = True
    activation: Literal["gelu", "gelu-tanh", "relu"] = "gelu"
    epsilon: float = 1e-12


class WordsAndPairHead(WordsHead):
    """The words, and two logits for the order of the texts of a pair (Devlin et al. 2019, 3.1; Lan et al. 2020, 3.1).
    The axes are those of the words."""

    def __init__(self, encoder: Encodes, config: WordsAndPair) -> None:
        super().__init__(encoder, config)
        self.first, self.pair = FirstToken(encoder.width), nn.Linear(encoder.width, 2)

    def forward(self, encoded: Encoded) -> Any:
        return self.words(encoded.x_BTD), self.pair(self.first(encoded.x_BTD))


@dataclass(frozen=True)
class WordsAndPair(Words):
    """Pre-training's two tasks: words, and whether the texts of a pair are in their order."""

    name = "words-and-pair"
    module = WordsAndPairHead


def _cross_entropy(logits_NL: Tensor, labels_N: Tensor, smoothing: float) -> Terms:
    """Σ −log p(label), smoothed in `loss`."""
    wide_NL = logits_NL.to(torch.promote_types(logits_NL.dtype, torch.float32))
    sums = partial(F.cross_entropy, wide_NL, labels_N, ignore_index=IGNORED, reduction="sum")
    nll = sums()
    return {"loss": (sums(label_smoothing=smoothing) if smoothing else nll, 1.0), "nll": (nll, 0.0)}


def _dropout(encoder: Encodes, config: Classes | Tags) -> Dropout:
    return Dropout(encoder.dropout if config.dropout is None else config.dropout)


class ClassesHead(Head):
    """tanh(h₁W + b)C + c: a logit for each label of the text."""

    axes = ("row", "label")
    does = "labels texts (headway predict)"

    def __init__(self, encoder: Encodes, config: Classes) -> None:
        super().__init__()
        self.first, self.labels = FirstToken(encoder.width), nn.Linear(encoder.width, len(config.labels))
        self.dropout, self.answer = _dropout(encoder, config), config.answer
        self.before = self.dropout if config.twice else nn.Identity()

    def forward(self, encoded: Encoded) -> Tensor:
        return self.labels(self.dropout(self.first(self.before(encoded.x_BTD[:, :1]))))

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        return _cross_entropy(self(encoded), batch.labels_B, smoothing)

    def classes(self, encoded: Encoded) -> Tensor:
        logits_BL = self(encoded).float()
        shares = {"one": lambda: logits_BL.softmax(-1), "several": logits_BL.sigmoid, "number": lambda: logits_BL}
        return shares[self.answer]()


@dataclass(frozen=True)
class Classes(HeadChoice):
    """A label of the text. `answer`: one of them, any number of them, or a number for each. `dropout`: None for that of
    the encoder; `twice`: before the first map too."""

    name = "classes"
    task = "classification"
    module = ClassesHead
    labels: tuple[str, ...] = ("0", "1")
    answer: Literal["one", "several", "number"] = "one"
    dropout: float | None = None
    twice: bool = False


class TagsHead(Head):
    """hC + c: a logit for each label of each token."""

    axes = ("row", "target", "label")
    does = "labels words (headway predict)"

    def __init__(self, encoder: Encodes, config: Tags) -> None:
        super().__init__()
        self.dropout, self.labels = _dropout(encoder, config), nn.Linear(encoder.width, len(config.labels))

    def forward(self, encoded: Encoded) -> Tensor:
        return self.labels(self.dropout(encoded.x_BTD))

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        return _cross_entropy(self(encoded).flatten(0, 1), batch.labels_BT.flatten(), smoothing)

    def tags(self, encoded: Encoded, starts_BT: Tensor) -> tuple[Tensor, Tensor]:
        share_BT, label_BT = self(encoded).float().softmax(-1).max(-1)
        return label_BT, share_BT


@dataclass(frozen=True)
class Tags(HeadChoice):
    """A label of every token. `dropout`: None for that of the encoder."""

    name = "tags"
    task = "tagging"
    module: ClassVar[Any] = TagsHead
    labels: tuple[str, ...] = ("0", "1")
    dropout: float | None = None


class CrfHead(TagsHead):
    """−log p(y | x) over the words of each text; padding and the further tokens of a word are passed over."""

    def __init__(self, encoder: Encodes, config: Crf) -> None:
        super().__init__(encoder, config)
        labels = len(config.labels)
        self.before_L, self.behind_L = nn.Parameter(torch.zeros(labels)), nn.Parameter(torch.zeros(labels))
        self.between_LL = nn.Parameter(torch.zeros(labels, labels))

    def chain(self, encoded: Encoded, starts_BT: Tensor) -> tuple[Chain, Tensor]:
        """The chain of the words that begin at `starts_BT`, and the token of each."""
        e_BTL = self(encoded)
        wide = torch.promote_types(e_BTL.dtype, torch.float32)
        token_BT = (~starts_BT).long().argsort(dim=1, stable=True)  # first tokens of words to the left, in their order
        e_BTL = e_BTL.gather(1, token_BT[..., None].expand_as(e_BTL)).to(wide)
        a_L, A_LL, b_L = (weight.to(wide) for weight in (self.before_L, self.between_LL, self.behind_L))
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
    """A label of every word, chosen together with those of its neighbours."""

    name = "crf"
    module = CrfHead


HEADS: dict[str, Any] = {head.name: head for head in (Vectors, Words, WordsAndPair, Classes, Tags, Crf)}
HeadConfig: Any = Union[tuple(HEADS.values())]  # noqa: UP007


class Headed(nn.Module):
    """head(encoder(x)). In traces and in settings the parts of the encoder keep their own names (`wraps`)."""

    wraps: ClassVar[str] = "encoder"
    head: Head

    def __init__(self, encoder: Encodes, config: Any) -> None:
        super().__init__()
        self.encoder, self.head = encoder, config.module(encoder, config)
        self.config, self.tracks, self.context = encoder.config, encoder.tracks, encoder.context
        encoder.draw(self.head)

    def encode(self, inputs: Any) -> Encoded:
        return self.encoder.encode(inputs)

    def forward(self, inputs: Any) -> Any:
        answer = self.head(self.encode(inputs))
        if tap.recording() and self.head.axes:
            tap.save(self, "logits", answer[0] if isinstance(answer, tuple) else answer, self.head.axes)
        return answer

"""Heads: the last part of a model, on top of an encoder. Any encoder takes any head (`Headed`).

A head's config is a frozen dataclass with a `name`, a `task` and its `module`. The module gives logits, the loss terms
of a batch, and the answers that its task reads. First those of whole texts, then those of tokens.

B batch, T length, D width, V vocabulary, L labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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
from headway.nn.feed_forward import MapLayer, gelu
from headway.nn.pooling import FirstToken, Pooling

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "tanh": torch.tanh,
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

    def spans(self, encoded: Encoded) -> tuple[Tensor, Tensor]:
        """Logits of the token that an answer begins with, and of the one that it ends with, each (B, T)."""
        raise InputError(f"this model finds no answers in a text: it {self.does}")

    def choices(self, encoded: Encoded) -> Tensor:
        """A logit for each text, (B,): how well it fits among the choices that it is one of."""
        raise InputError(f"this model chooses among no texts: it {self.does}")


class HeadChoice:
    """Abstract. A head's config."""

    name: ClassVar[str]
    task: ClassVar[str]
    module: ClassVar[Any]  # a `Head`, made of an encoder and this config


def cross_entropy(logits_NL: Tensor, labels_N: Tensor, smoothing: float) -> Terms:
    """Σ −log p(label), smoothed in `loss`."""
    wide_NL = logits_NL.to(torch.promote_types(logits_NL.dtype, torch.float32))
    sums = partial(F.cross_entropy, wide_NL, labels_N, ignore_index=IGNORED, reduction="sum")
    nll = sums()
    return {"loss": (sums(label_smoothing=smoothing) if smoothing else nll, 1.0), "nll": (nll, 0.0)}


def own_dropout(encoder: Encodes, config: Any) -> Dropout:
    """A head's own rate, or that of the encoder."""
    return Dropout(encoder.dropout if config.dropout is None else config.dropout)


@dataclass(frozen=True)
class Map:
    """A head's hidden layer, norm(f(xW + b)). `epsilon`: of its norm (None: it has none)."""

    activation: Literal["tanh", "gelu", "gelu-tanh", "relu"] = "tanh"
    bias: bool = True
    epsilon: float | None = None
    norm_bias: bool = True

    def build(self, width: int) -> nn.Module:
        norm = None if self.epsilon is None else nn.LayerNorm(width, self.epsilon, bias=self.norm_bias)
        return MapLayer(width, ACTIVATIONS[self.activation], norm, self.bias)


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
        self.map = nn.Linear(encoder.width, narrow, bias=config.bias)
        self.norm = nn.LayerNorm(narrow, config.epsilon, bias=config.norm_bias)
        self.output = embedding.Head(narrow, table.num_embeddings, table if config.tied else None)
        self.bias_V = nn.Parameter(torch.zeros(table.num_embeddings))

    def forward(self, encoded: Encoded) -> Any:
        return self.words(encoded.x_BTD)

    def words(self, hidden_BTD: Tensor) -> Tensor:
        return self.output(self.norm(self.activation(self.map(hidden_BTD)))) + self.bias_V


@dataclass(frozen=True)
class Words(HeadChoice):
    """A word for every position (Devlin et al. 2019, 3.1). `tied`: by the embedding's own table. `bias`, `norm_bias`:
    of the map and of its norm."""

    name = "words"
    task = "masked-words"
    module: ClassVar[Any] = WordsHead
    tied: bool = True
    activation: Literal["gelu", "gelu-tanh", "relu"] = "gelu"
    epsilon: float = 1e-12
    bias: bool = True
    norm_bias: bool = True


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


class ClassesHead(Head):
    """tanh(h₁W + b)C + c: a logit for each label of the text."""

    axes = ("row", "label")
    does = "labels texts (headway predict)"

    def __init__(self, encoder: Encodes, config: Classes) -> None:
        super().__init__()
        self.dropout, self.answer = own_dropout(encoder, config), config.answer
        before = self.dropout if config.twice else None
        self.first = FirstToken(encoder.width, config.map.build(encoder.width), config.pooling, before)
        self.labels = nn.Linear(encoder.width, len(config.labels))

    def forward(self, encoded: Encoded) -> Tensor:
        return self.labels(self.dropout(self.first(encoded.x_BTD, encoded.lengths_B)))

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        return cross_entropy(self(encoded), batch.labels_B, smoothing)

    def classes(self, encoded: Encoded) -> Tensor:
        logits_BL = self(encoded).float()
        shares = {"one": lambda: logits_BL.softmax(-1), "several": logits_BL.sigmoid, "number": lambda: logits_BL}
        return shares[self.answer]()


@dataclass(frozen=True)
class Classes(HeadChoice):
    """A label of the text. `answer`: one of them, any number of them, or a number for each. `dropout`: None for that of
    the encoder; `twice`: before the first map too. `pooling`: what stands for the text, the first token or the mean of
    all; `map`: the hidden layer."""

    name = "classes"
    task = "classification"
    module = ClassesHead
    labels: tuple[str, ...] = ("0", "1")
    answer: Literal["one", "several", "number"] = "one"
    dropout: float | None = None
    twice: bool = False
    pooling: Literal["first", "mean"] = "first"
    map: Map = field(default_factory=Map)


class NextSentenceHead(ClassesHead):
    """Whether the second text of a pair follows the first (Devlin et al. 2019, 3.1)."""

    does = "says whether a text follows another (headway predict)"


@dataclass(frozen=True)
class NextSentence(Classes):
    """Two labels of a pair of texts: the second follows the first, or comes from elsewhere."""

    name = "next-sentence"
    task = "next-sentence"
    module = NextSentenceHead
    labels: tuple[str, ...] = ("next", "other")
    dropout: float | None = 0.0


class MultipleChoiceHead(Head):
    """tanh(h₁W + b)c + d: a logit for each text, and a softmax over those of one question (Devlin et al. 2019, 4.4).
    The rows of a batch are the choices."""

    axes = ("row", "label")
    does = "chooses among texts (headway predict)"

    def __init__(self, encoder: Encodes, config: MultipleChoice) -> None:
        super().__init__()
        self.first = FirstToken(encoder.width, config.map.build(encoder.width), config.pooling)
        self.dropout, self.score = own_dropout(encoder, config), nn.Linear(encoder.width, 1)

    def forward(self, encoded: Encoded) -> Tensor:
        return self.score(self.dropout(self.first(encoded.x_BTD, encoded.lengths_B)))

    def choices(self, encoded: Encoded) -> Tensor:
        logits_B1: Tensor = self(encoded)
        return logits_B1[:, 0]


@dataclass(frozen=True)
class MultipleChoice(HeadChoice):
    """One of several texts. `dropout`: None for that of the encoder; `pooling`, `map`: as of `Classes`."""

    name = "multiple-choice"
    task = "multiple-choice"
    module = MultipleChoiceHead
    dropout: float | None = None
    pooling: Literal["first", "mean"] = "first"
    map: Map = field(default_factory=Map)


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
    """hS + s: logits of the first and of the last token of an answer (Devlin et al. 2019, 4.2)."""

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


EVERY = (Vectors, Words, WordsAndPair, Classes, NextSentence, MultipleChoice, Tags, Replaced, Spans, Crf)
HEADS: dict[str, Any] = {head.name: head for head in EVERY}
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

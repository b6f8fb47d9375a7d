"""Heads: the last part of a model, on top of an encoder. Any encoder takes any head (`Headed`).

A head's config is a frozen dataclass with a `name`, a `task` and its `module`. The module gives logits, the loss terms
of a batch, and the answers that its task reads. Here are those of vectors, words and choices; `label_heads.py` has
those that label the whole, `token_heads.py` those that label every token, `picture_heads.py` those of what is in a
picture, `head.py` what all share.

B batch, T length, D width, V vocabulary, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import InputError, refuse
from headway.models.action_heads import Actions, ActorCritic
from headway.models.box_head import Boxes
from headway.models.chunk_head import ActionChunks
from headway.models.head import (
    ACTIVATIONS,
    Head,
    HeadChoice,
    Map,
    cross_entropy,
    own_dropout,
    right,
)
from headway.models.label_heads import (
    Classes,
    ClassesHead,
    DistilledClasses,
    LabelsHead,
    LinearClasses,
    TwoTokens,
)
from headway.models.mask_head import BoxesAndMasks
from headway.models.picture_heads import Pixels
from headway.models.protocols import Encoded, Encodes, Terms
from headway.models.token_heads import Crf, Replaced, Spans, Tags
from headway.nn import embedding, tap
from headway.nn.pooling import FirstToken, Pooling


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
    whole = True
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

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        """Of the places that the batch has gaps at: the product with the vocabulary is computed for those alone."""
        at_BPD = batch.places_BP[..., None].expand(-1, -1, encoded.x_BTD.shape[-1])
        logits_NV = self.words(encoded.x_BTD.gather(1, at_BPD).flatten(0, 1))
        labels_N = batch.labels_BP.flatten()
        terms = cross_entropy(logits_NV, labels_N, smoothing)
        return terms if self.training else terms | {"right": (right(logits_NV, labels_N), 0.0)}

    def words(self, hidden_BTD: Tensor) -> Tensor:
        return self.output(self.norm(self.activation(self.map(hidden_BTD)))) + self.bias_V


@dataclass(frozen=True)
class Words(HeadChoice):
    """A word for every position (Devlin et al. 2019, 3.1). `tied`: by the embedding's own table. `bias`, `norm_bias`:
    of the map and of its norm."""

    name = "words"
    task = "masked-words"
    shared = ("head.first.", "head.map.", "head.norm.", "head.output.", "head.bias_V")
    pairs: ClassVar[bool] = False  # whether it learns from pairs of texts too
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

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        """The sum of both: that of the words, and as `pair` that of the order."""
        terms, logits_B2 = super().losses(encoded, batch, smoothing), self.pair(self.first(encoded.x_BTD))
        terms["pair"] = (cross_entropy(logits_B2, batch.pairs_B, 0.0)["nll"][0], 1.0)
        return terms if self.training else terms | {"pair_right": (right(logits_B2, batch.pairs_B), 0.0)}


@dataclass(frozen=True)
class WordsAndPair(Words):
    """Pre-training's two tasks: words, and whether the texts of a pair are in their order."""

    name = "words-and-pair"
    module = WordsAndPairHead
    pairs = True


class TableRows(nn.Module):
    """Eu, of the rows of a table that belong to some words."""

    words_L: Tensor

    def __init__(self, table: nn.Embedding, words: Sequence[int]) -> None:
        super().__init__()
        if not 0 <= min(words) <= max(words) < table.num_embeddings:
            raise InputError(f"head.words must lie between 0 and {table.num_embeddings - 1}")
        self.table = table
        self.register_buffer("words_L", torch.tensor(words), persistent=False)

    def forward(self, u_BD: Tensor) -> Tensor:
        return u_BD @ self.table(self.words_L).mT


class AnswersHead(LabelsHead):
    """Wu, u the query behind the last hop (Sukhbaatar et al. 2015, eq. 3)."""

    does = "answers questions about stories (headway predict)"

    def __init__(self, encoder: Encodes, config: Answers) -> None:
        super().__init__()
        labels = len(config.labels)
        words = config.words or tuple(range(labels))  # before the words are known: any
        untied = partial(nn.Linear, encoder.width, labels, bias=False)
        self.labels = TableRows(encoder.table, words) if config.tied else untied()

    def forward(self, encoded: Encoded) -> Tensor:
        logits_BL: Tensor = self.labels(encoded.x_BTD[:, 0])
        return logits_BL


@dataclass(frozen=True)
class Answers(HeadChoice):
    """An answer to the question. `tied`: W has the rows of the encoder's last table that belong to the answers; each is
    one word then. `words`: their ids."""

    name = "answers"
    task = "story-answering"
    module = AnswersHead
    labels: tuple[str, ...] = ("yes", "no")
    tied: bool = False
    words: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        refuse(not self.labels, "head.labels must have at least one answer")
        refuse(
            self.words and len(self.words) != len(self.labels), "head.words must have a word for each of head.labels"
        )

    def of_labels(self, labels: tuple[str, ...], ids: Sequence[Sequence[int]]) -> Answers:
        long = [label for label, written in zip(labels, ids, strict=True) if len(written) != 1]
        refuse(self.tied and long, f"head.tied=true needs answers of one word, not {long[:1]}: set head.tied=false")
        return replace(self, labels=labels, words=tuple(written[0] for written in ids) if self.tied else ())


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

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        """Of pairs, all chosen texts above all rejected ones: −log σ(r − r'), r the logits."""
        chosen_B, rejected_B = self.choices(encoded).float().chunk(2)
        more_B = chosen_B - rejected_B
        right, wrong = F.logsigmoid(more_B), F.logsigmoid(-more_B)
        loss_B = -(1 - smoothing) * right - smoothing * wrong
        return {
            "loss": ((loss_B * batch.real_B).sum(), 1.0),
            "nll": (-(right.detach() * batch.real_B).sum(), 0.0),
            "accuracy": (((more_B.detach() > 0) * batch.real_B).sum(), 0.0),
        }


@dataclass(frozen=True)
class MultipleChoice(HeadChoice):
    """One of several texts. `dropout`: None for that of the encoder; `pooling`, `map`: as of `Classes`."""

    name = "multiple-choice"
    task = "multiple-choice"
    whole = True
    module = MultipleChoiceHead
    dropout: float | None = None
    pooling: Literal["first", "mean"] = "first"
    map: Map = field(default_factory=Map)


EVERY = (
    Vectors, Words, WordsAndPair, Classes, LinearClasses, DistilledClasses, TwoTokens, Answers, NextSentence,
    MultipleChoice, Tags, Replaced, Spans, Crf, Pixels, Boxes,
    BoxesAndMasks, Actions, ActionChunks, ActorCritic,
)  # fmt: skip
HEADS: dict[str, Any] = {head.name: head for head in EVERY}
HeadConfig: Any = Union[tuple(HEADS.values())]  # noqa: UP007


class Headed(nn.Module):
    """head(encoder(x)). In traces and in settings the parts of the encoder keep their own names (`wraps`)."""

    wraps: ClassVar[str] = "encoder"
    head: Head

    def __init__(self, encoder: Encodes, config: Any) -> None:
        super().__init__()
        if not (encoder.per_token or config.whole):
            family = encoder.config.name
            raise InputError(f"head={config.name} reads every token, a model of the family '{family}' gives one vector "
                             "for a whole text: take another family")  # fmt: skip
        self.encoder, self.head = encoder, config.module(encoder, config)
        self.config, self.tracks, self.context = encoder.config, encoder.tracks, encoder.context
        encoder.draw(self.head)

    def encode(self, inputs: Any) -> Encoded:
        return self.encoder.encode(inputs)

    def fit(self, weights: dict[str, Tensor], earlier: Any) -> dict[str, Tensor]:
        """As that of the encoder."""
        below = f"{self.wraps}."
        inner = {name.removeprefix(below): weight for name, weight in weights.items() if name.startswith(below)}
        return weights | {below + name: weight for name, weight in self.encoder.fit(inner, earlier).items()}

    def forward(self, inputs: Any) -> Any:
        answer = self.head(self.encode(inputs))
        if tap.recording() and self.head.axes:
            tap.save(self, "logits", answer[0] if isinstance(answer, tuple) else answer, self.head.axes)
        return answer

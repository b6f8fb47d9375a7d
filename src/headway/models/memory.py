"""Memory networks: hops of attention over the sentences of a story (Sukhbaatar et al. 2015, "End-to-end memory
networks"; Weston et al. 2015).

The question u looks at the memories m, reads what stands beside them (c), and looks again:

    pᵢ = softmax(uᵀmᵢ)    o = Σᵢ pᵢcᵢ    u ← u + o       for each hop
    answer = softmax(Wu)                                 by the head

B batch, S sentences, W words of a sentence, Q words of the question, D width, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import refuse
from headway.models.protocols import Encoded, Encodes
from headway.nn.block import draw_normal
from headway.nn.memory import (
    AddedQuery,
    Hop,
    Hops,
    MappedQuery,
    ReplacedQuery,
    SentenceEmbedding,
    bag_weights,
    position_joined,
    position_weights,
)

STD = 0.1  # of every matrix at the start
WORDS = 8  # of a sentence, in a count of what a pass costs


@dataclass(frozen=True)
class BagOfWords:
    """The sum of a sentence's words."""

    name: ClassVar[str] = "bag-of-words"

    def weights(self, there_NW: Tensor) -> Tensor:
        return bag_weights(there_NW)

    def join(self, x_N1D: Tensor) -> Tensor:
        return x_N1D.squeeze(-2)


@dataclass(frozen=True)
class PositionEncoding:
    """A sum whose weights depend on the place of each word, among as many as its sentence has, or among `words`.
    `scale`: of the weights, which are 1/2 on average."""

    name: ClassVar[str] = "position"
    words: int = 0
    scale: float = 1.0

    def weights(self, there_NW: Tensor) -> Tensor:
        return self.scale * position_weights(there_NW, self.words)

    def join(self, x_N2D: Tensor) -> Tensor:
        return position_joined(x_N2D)


@dataclass(frozen=True)
class Added:
    """u + o."""

    name: ClassVar[str] = "added"

    def build(self, width: int) -> nn.Module:
        return AddedQuery()


@dataclass(frozen=True)
class Mapped:
    """Hu + o."""

    name: ClassVar[str] = "mapped"

    def build(self, width: int) -> nn.Module:
        return MappedQuery(width)


@dataclass(frozen=True)
class Replaced:
    """o alone, as deck C has it."""

    name: ClassVar[str] = "replaced"

    def build(self, width: int) -> nn.Module:
        return ReplacedQuery()


@dataclass(frozen=True)
class Ties:
    """The numbers of the tables that the hops read: m, c of each hop, and the question's."""

    keys: tuple[int, ...]
    values: tuple[int, ...]
    question: int
    shared: bool  # whether all hops are one part

    @property
    def count(self) -> int:
        return max(*self.keys, *self.values, self.question) + 1


@dataclass(frozen=True)
class LayerWise:
    """All hops have one A, one C and one way to the next query, as the steps of an RNN; B is the question's."""

    name: ClassVar[str] = "layer-wise"

    def ties(self, hops: int) -> Ties:
        return Ties((0,) * hops, (1,) * hops, 2, shared=True)


@dataclass(frozen=True)
class Adjacent:
    """C of a hop is A of the next, and B is A of the first. The head's W is C of the last with `head.tied=true`."""

    name: ClassVar[str] = "adjacent"

    def ties(self, hops: int) -> Ties:
        return Ties(tuple(range(hops)), tuple(range(1, hops + 1)), 0, shared=False)


@dataclass(frozen=True)
class MemoryConfig:
    """`memory`: the most sentences that are kept, the last ones. `temporal`: whether each has a vector of its time
    beside its words. `query`: how a hop makes the next query. `empty`: whether a hop sees the places of the memory that
    no sentence fills, as vectors of 0."""

    name: ClassVar[str] = "memory"
    hops: int = 3
    width: int = 20
    memory: int = 50
    sentence: BagOfWords | PositionEncoding = field(default_factory=PositionEncoding)
    temporal: bool = True
    tying: LayerWise | Adjacent = field(default_factory=LayerWise)
    query: Added | Mapped | Replaced = field(default_factory=Mapped)
    empty: Literal["hidden", "seen"] = "hidden"

    def __post_init__(self) -> None:
        refuse(self.hops < 1, f"model.hops must be at least 1, not {self.hops}")
        refuse(self.memory < 1, f"model.memory must be at least 1, not {self.memory}")

    @property
    def layers(self) -> int:
        return self.hops


SIZES = {"small": MemoryConfig(), "joint": MemoryConfig(width=50), "deck-c": MemoryConfig(query=Replaced())}


def blank(config: MemoryConfig, sizes: Sequence[int], batch: int, *lengths: int) -> tuple[Any, ...]:
    """Stories of so many sentences."""
    words_BSW = torch.zeros(batch, *(lengths or (config.memory,)), WORDS, dtype=torch.long)
    return (SimpleNamespace(words_BSW=words_BSW, times_BS=words_BSW[..., 0] + 1, question_BQ=words_BSW[:, 0]),)


@final
class MemoryNetwork(Encodes):
    """The query behind the last hop, as the one vector of each row.

    `linear`: while it is true, the hops have no softmax (linear start: Sukhbaatar et al. 2015, 4.2).
    """

    tracks = {"": ("question", "sentences")}
    dropout = 0.0
    linear: Tensor

    def __init__(self, config: MemoryConfig, vocabulary: int) -> None:
        super().__init__()
        self.config, self.width, self.context = config, config.width, config.memory
        self.ties = config.tying.ties(config.hops)
        remembered = {*self.ties.keys, *self.ties.values}
        times = config.memory if config.temporal else 0
        self.embeddings = nn.ModuleList(
            SentenceEmbedding(vocabulary, config.width, config.sentence, times if at in remembered else 0)
            for at in range(self.ties.count)
        )
        own = 1 if self.ties.shared else config.hops
        layers = [Hop(config.query.build(config.width)) for _ in range(own)]
        self.hops = Hops([layers[at % own] for at in range(config.hops)])
        self.register_buffer("linear", torch.zeros((), dtype=torch.bool))
        self.draw(self)

    @property
    def table(self) -> nn.Embedding:
        """C of the last hop."""
        last: Any = self.embeddings[self.ties.values[-1]]
        table: nn.Embedding = last.table
        return table

    def draw(self, part: nn.Module) -> None:
        draw_normal(part, STD)

    def encode(self, inputs: Any) -> Encoded:
        """`inputs`: `words_BSW`, `times_BS` (1 for the last sentence, 0 for none), `question_BQ`."""
        words_BSW, times_BS = inputs.words_BSW, inputs.times_BS
        found = {at: self.embeddings[at](words_BSW, times_BS) for at in {*self.ties.keys, *self.ties.values}}
        visible_BS: Tensor | None = times_BS > 0
        if self.config.empty == "seen":
            room = self.config.memory - words_BSW.shape[1]
            found, visible_BS = {at: F.pad(m_BSD, (0, 0, 0, room)) for at, m_BSD in found.items()}, None
        memories = [(found[m], found[c]) for m, c in zip(self.ties.keys, self.ties.values, strict=True)]
        u_BD = self.embeddings[self.ties.question](inputs.question_BQ)
        return Encoded(self.hops(u_BD, memories, visible_BS, self.linear)[:, None])

"""The encoder alone (Devlin et al. 2019, "BERT"): every token from those on both its sides.

RoBERTa (Liu et al. 2019) counts positions from another row and has one type; ALBERT (Lan et al. 2020) has a narrow
embedding and uses few layers many times over. All three are sizes of one config; what the last layer is asked for is a
part of its own, the task.

B batch, T length, D width, V vocabulary, L labels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, final

from torch import Tensor, nn

from headway.models import parts
from headway.nn import tap, text_head
from headway.nn.attention import SelfAttention
from headway.nn.block import Block, Stack
from headway.nn.embedding import TypedEmbedding, token_table
from headway.nn.mask import Padding, Scene
from headway.nn.position import Learned
from headway.nn.text_head import Pooling

STD = 0.02  # of every weight at the start (Devlin et al. 2019, as released)


@dataclass(frozen=True)
class Vectors:
    """The last layer. `first`: beside it, what the first token says of the text. `pooling`: how a text's vector is made
    of its tokens' (None: nobody has said), `unit`: of length 1, `longest`: of at most so many tokens (0: as the model).
    """

    name: ClassVar[str] = "vectors"
    axes: ClassVar[tuple[str, ...]] = ()  # of its logits: it has none
    first: bool = False
    pooling: Pooling | None = None
    unit: bool = False
    longest: int = 0

    def build(self, config: BertConfig, table: nn.Embedding) -> nn.Module:
        return text_head.HiddenAndFirst(config.width) if self.first else nn.Identity()


@dataclass(frozen=True)
class MaskedWords:
    """A word for every place. `tied`: by the embedding's own table. `activation`: None for that of the layers."""

    name: ClassVar[str] = "words"
    axes: ClassVar[tuple[str, ...]] = ("row", "target", "vocabulary")
    tied: bool = True
    activation: Literal["gelu"] | None = None

    def build(self, config: BertConfig, table: nn.Embedding) -> text_head.WordHead:
        activation = parts.Gelu() if self.activation == "gelu" else config.feed_forward
        return text_head.WordHead(config.width, table, activation.function, config.norm.epsilon, self.tied)


@dataclass(frozen=True)
class WordsAndPair:
    """Pre-training's two tasks: words, and whether the texts of a pair are in their order."""

    name: ClassVar[str] = "words-and-pair"
    axes: ClassVar[tuple[str, ...]] = ("row", "target", "vocabulary")  # of the words; the pair's are told by the model
    tied: bool = True

    def build(self, config: BertConfig, table: nn.Embedding) -> nn.Module:
        return text_head.WordsAndPair(MaskedWords(self.tied).build(config, table), config.width)


@dataclass(frozen=True)
class TextLabels:
    """A label of the text. `answer`: one of them, any number of them, or a number for each. `dropout`: None for that of
    the layers; `twice`: before the first map too."""

    name: ClassVar[str] = "text-labels"
    axes: ClassVar[tuple[str, ...]] = ("row", "label")
    labels: tuple[str, ...] = ("0", "1")
    answer: Literal["one", "several", "number"] = "one"
    dropout: float | None = None
    twice: bool = False

    def build(self, config: BertConfig, table: nn.Embedding) -> nn.Module:
        dropout = config.dropout if self.dropout is None else self.dropout
        return text_head.TextLabels(config.width, len(self.labels), dropout, self.twice)


@dataclass(frozen=True)
class TokenLabels:
    """A label of every token."""

    name: ClassVar[str] = "token-labels"
    axes: ClassVar[tuple[str, ...]] = ("row", "target", "label")
    labels: tuple[str, ...] = ("0", "1")
    dropout: float | None = None

    def build(self, config: BertConfig, table: nn.Embedding) -> nn.Module:
        dropout = config.dropout if self.dropout is None else self.dropout
        return text_head.TokenLabels(config.width, len(self.labels), dropout)


Task = Vectors | MaskedWords | WordsAndPair | TextLabels | TokenLabels


@dataclass(frozen=True)
class BertConfig:
    """`types`: of token (0: none). `first_position`: the row of the first token in the table of positions, which has
    `max_length` rows from there on. `narrow`: the embedding's width (0: the layers').

    groups, group_layers: only so many groups of so many layers are there, each used as often as it takes to be passed
    `layers` groups (0: every layer is its own).
    """

    name: ClassVar[str] = "bert"
    layers: int = 12
    width: int = 768
    inner: int = 3072
    heads: int = 12
    narrow: int = 0
    groups: int = 0
    group_layers: int = 1
    types: int = 2
    first_position: int = 0
    max_length: int = 512
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm: parts.PostNorm = field(default_factory=lambda: parts.PostNorm(1e-12))
    feed_forward: parts.Gelu | parts.Relu = field(default_factory=parts.Gelu)
    task: Task = field(default_factory=MaskedWords)


SIZES = {
    "mini": BertConfig(4, 256, 1024, 4),
    "minilm": BertConfig(6, 384, 1536, 12),
    "base": BertConfig(),
    "large": BertConfig(24, 1024, 4096, 16),
}


@final
class Bert(nn.Module):
    """task(encoder(x))."""

    def __init__(self, config: BertConfig, vocabulary: int) -> None:
        super().__init__()
        self.config, self.vocabulary, self.context = config, vocabulary, config.max_length
        if config.width % config.heads:
            raise ValueError(f"width {config.width} is not a multiple of {config.heads} heads")
        if config.groups and config.layers % config.groups:
            raise ValueError(f"{config.layers} layers cannot share {config.groups} groups evenly")
        narrow, norm = config.narrow or config.width, config.norm
        table = token_table(vocabulary, narrow, STD)
        self.embed = TypedEmbedding(
            table, Learned(narrow, config.first_position + config.max_length), config.types,
            nn.LayerNorm(narrow, norm.epsilon), config.dropout,
            nn.Linear(narrow, config.width) if config.narrow else None, config.first_position,
        )  # fmt: skip
        residual = norm.residual(config.width, config.dropout)

        def block() -> Block:
            attention = SelfAttention(config.width, config.heads, config.attention_dropout)
            return Block(attention, config.feed_forward.build(config.width, config.inner), residual)

        groups = config.groups or config.layers
        self.encoder = Stack(groups * config.group_layers, block, norm.final(config.width))
        self.task = config.task.build(config, table)
        self._draw()

    def _draw(self) -> None:
        for weight in self.parameters():
            if weight.dim() >= 2:
                nn.init.normal_(weight, std=STD)

    def encode(self, ids_BT: Tensor, lengths_B: Tensor | None = None, types_BT: Tensor | None = None) -> Tensor:
        """The last layer. Rows are padded on the right."""
        scene = Scene(ids_BT.shape[1], ids_BT.shape[1], ids_BT.device, key_lengths_B=lengths_B)
        view = Padding().view(scene)
        x_BTD: Tensor = self.embed(ids_BT, types_BT)
        order = self._order()
        return self.encoder.walk(x_BTD, [(view,)] * len(order), order)

    def _order(self) -> list[int]:
        """Which layer comes when: every group stands for as many in a row."""
        groups, size = self.config.groups or self.config.layers, self.config.group_layers
        at = [layer * groups // self.config.layers for layer in range(self.config.layers)]
        return [group * size + inner for group in at for inner in range(size)]

    def forward(self, ids_BT: Tensor, lengths_B: Tensor | None = None, types_BT: Tensor | None = None) -> Any:
        answer = self.task(self.encode(ids_BT, lengths_B, types_BT))
        if tap.recording() and self.config.task.axes:
            logits = answer[0] if isinstance(answer, tuple) else answer
            tap.save(self, "logits", logits, self.config.task.axes)
        return answer

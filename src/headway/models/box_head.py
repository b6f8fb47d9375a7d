"""The detector's head: a decoder whose learned queries each find one object, or none (Carion et al. 2020).

B batch, N layers of the decoder, Q queries, M the most boxes of a picture, L labels (and one more for "nothing"),
D width.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.batch import IGNORED
from headway.errors import refuse
from headway.models.detr import placed_blocks
from headway.models.head import Head, HeadChoice
from headway.models.protocols import Encoded, Encodes, Terms
from headway.nn import tap
from headway.nn.assignment import assigned
from headway.nn.boxes import corners, middles, overlap
from headway.nn.placed import AnchorQueries, LearnedQueries


class DecodedBoxes(NamedTuple):
    """Of every layer and query the logits of its label, and its box: middle, width and height as shares of the
    picture."""

    logits_NBQL: Tensor
    boxes_NBQ4: Tensor


class BoxNetwork(nn.Module):
    """Three linear maps with ReLU between them, to the logits of a box."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 4)])

    def forward(self, x_BQD: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            x_BQD = layer(F.relu(x_BQD) if number else x_BQD)
        return x_BQD


class BoxesHead(Head):
    """softmax(yW + c) and σ(mlp(y)) for each query's vector y behind the decoder."""

    does = "finds objects in a picture (headway predict)"

    def __init__(self, encoder: Encodes, config: Boxes) -> None:
        super().__init__()
        shape: Any = replace(encoder.config, dropout=encoder.dropout)
        width, self.config = encoder.width, config
        self.queries: Any = config.start.build(config.queries, width, shape.sides)
        self.layers = placed_blocks(shape, config.layers, cross=True)
        self.norm = nn.LayerNorm(width)
        self.labels = nn.Linear(width, len(config.labels) + 1)
        self.box = BoxNetwork(width)

    def forward(self, encoded: Encoded) -> tuple[Tensor, Tensor]:
        """The logits and boxes of the last layer."""
        found = self.found(encoded)
        return found.logits_NBQL[-1], found.boxes_NBQ4[-1]

    def found(self, encoded: Encoded) -> DecodedBoxes:
        return self.decoded(encoded)[0]

    def decoded(self, encoded: Encoded) -> tuple[DecodedBoxes, Tensor, Tensor]:
        """What every layer finds, and behind the last the queries' vectors and where they are, each (B, Q, D)."""
        source_BSD = encoded.x_BTD
        from_SD = source_BSD.new_zeros(()) if encoded.at_TD is None else encoded.at_TD
        start_BQ4 = self.queries.start(len(source_BSD))
        x_BQD = source_BSD.new_zeros(*start_BQ4.shape[:2], source_BSD.shape[-1])
        normed_BQD, every = x_BQD, []
        for number, layer in enumerate(self.layers):
            tap.at_layer(number)
            x_BQD = layer(x_BQD, self.queries.at(start_BQ4), source_BSD, from_SD)
            normed_BQD = self.norm(x_BQD)
            boxes_BQ4 = self.box(normed_BQD) + start_BQ4
            every.append((self.labels(normed_BQD), boxes_BQ4))
            start_BQ4 = self.queries.follow(start_BQ4, boxes_BQ4)
        tap.at_layer(None)
        at_BQD = self.queries.at(start_BQ4)
        logits, boxes = zip(*every, strict=True)
        return DecodedBoxes(torch.stack(logits), torch.stack(boxes).sigmoid()), normed_BQD, at_BQD.expand_as(normed_BQD)

    def boxes(self, encoded: Encoded) -> tuple[Tensor, Tensor]:
        found = self.found(encoded)
        return found.logits_NBQL[-1].float().softmax(-1), corners(found.boxes_NBQ4[-1].float())

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        return self.matched(self.found(encoded), batch, smoothing)[0]

    def matched(self, found: DecodedBoxes, batch: Any, smoothing: float) -> tuple[Terms, Tensor]:
        """The losses, and the query of each true box behind the last layer, (B, M), as `match` gives them.

        The sum over all layers of the labels' cross-entropy, the boxes' distance |b − b'|₁ and 1 − GIoU, of the
        matching that costs least (Carion et al. 2020, eq. 1 and 2); "nothing" counts less than a label."""
        config, found = self.config, DecodedBoxes(*(part.float() for part in found))
        pairs_NBM = match(found, batch.boxes_BM4, batch.labels_BM, config)
        there_BM = batch.labels_BM != IGNORED
        nothing, labels_BM = len(config.labels), batch.labels_BM
        wanted_NBQ = torch.full(found.logits_NBQL.shape[:3], nothing, device=labels_BM.device)
        # A box that no query was left for has the pair Q, a column that is cut off again.
        wanted_NBQ = F.pad(wanted_NBQ, (0, 1)).scatter(2, pairs_NBM, labels_BM.expand_as(pairs_NBM))[..., :-1]
        weight_L = found.logits_NBQL.new_ones(nothing + 1)
        weight_L[nothing:].fill_(config.nothing)  # not by an index: that copies from the host
        each_NBQ = F.cross_entropy(
            found.logits_NBQL.movedim(-1, 1), wanted_NBQ, weight_L, reduction="none", label_smoothing=smoothing
        )
        labels_N = (each_NBQ * batch.there_B[:, None]).sum((1, 2))
        matched_NBM = there_BM & (pairs_NBM < self.config.queries)
        at_NBM4 = pairs_NBM.clamp(max=self.config.queries - 1)[..., None].expand(-1, -1, -1, 4)
        boxes_NBM4 = found.boxes_NBQ4.gather(2, at_NBM4)
        far_N = ((boxes_NBM4 - middles(batch.boxes_BM4)).abs().sum(-1) * matched_NBM).sum((1, 2))
        _, giou_NBM = overlap(corners(boxes_NBM4), batch.boxes_BM4)
        apart_N = ((1 - giou_NBM) * matched_NBM).sum((1, 2))
        loss = (labels_N + config.distance * far_N + config.overlap * apart_N).sum()
        shown = {"nll": labels_N[-1], "distance": far_N[-1], "overlap": apart_N[-1]}
        terms = {"loss": (loss, 1.0)} | {name: (term.detach(), 0.0) for name, term in shown.items()}
        return terms, pairs_NBM[-1]


@torch.no_grad()
def match(found: DecodedBoxes, boxes_BM4: Tensor, labels_BM: Tensor, config: Boxes) -> Tensor:
    """(N, B, M): the query of each box, by the matching of least total cost −p(label) + distance + overlap (Kuhn 1955);
    Q for padding, and for boxes beyond the number of queries."""
    there_BM = labels_BM != IGNORED
    at_NBQM = labels_BM.clamp(min=0)[None, :, None].expand(*found.logits_NBQL.shape[:3], -1)
    label_NBQM = found.logits_NBQL.softmax(-1).gather(3, at_NBQM)
    boxes_NBQ14 = found.boxes_NBQ4[..., None, :]
    far_NBQM = (boxes_NBQ14 - middles(boxes_BM4)[:, None]).abs().sum(-1)
    _, giou_NBQM = overlap(corners(boxes_NBQ14), boxes_BM4[:, None])
    cost_NBQM = config.distance * far_NBQM - config.overlap * giou_NBQM - label_NBQM
    there_NBM = there_BM.expand(len(cost_NBQM), -1, -1)
    return assigned(cost_NBQM.mT.flatten(0, 1), there_NBM.flatten(0, 1)).view_as(there_NBM)


@dataclass(frozen=True)
class Learned:
    """A learned vector for each query."""

    name: ClassVar[str] = "learned"

    def build(self, queries: int, width: int, sides: tuple[int, int]) -> nn.Module:
        return LearnedQueries(queries, width)


@dataclass(frozen=True)
class Anchors:
    """A learned box for each query, moved by every layer. `turns`, `base`: as those of the encoder's places."""

    name: ClassVar[str] = "anchors"
    turns: float = 4.0
    base: float = 100.0

    def build(self, queries: int, width: int, sides: tuple[int, int]) -> nn.Module:
        return AnchorQueries(queries, width, sides, self.turns, self.base)


@dataclass(frozen=True)
class Boxes(HeadChoice):
    """Objects with their boxes. `start`: what a query is. `queries`: the most that are found. `layers`: of the decoder,
    whose other sizes are the encoder's. `distance`, `overlap`: how much boxes count beside labels, in the loss and in
    the matching. `nothing`: how much a query counts that should find nothing."""

    name = "boxes"
    task = "detection"
    module: ClassVar[Any] = BoxesHead
    shared: ClassVar[tuple[str, ...]] = ("head.queries.", "head.layers.", "head.norm.", "head.box.")
    labels: tuple[str, ...] = ("object",)
    start: Learned | Anchors = field(default_factory=Learned)
    queries: int = 100
    layers: int = 6
    distance: float = 5.0
    overlap: float = 2.0
    nothing: float = 0.1

    def __post_init__(self) -> None:
        refuse(not self.labels, "head.labels must have at least one label")
        for name in ("queries", "layers"):
            value = getattr(self, name)
            refuse(not 1 <= value <= 10_000, f"head.{name} must be from 1 to 10,000, not {value}")
        for name in ("distance", "overlap", "nothing"):
            value = getattr(self, name)
            refuse(not 0 <= value < float("inf"), f"head.{name} must be 0 or more, not {value}")

"""The detector's head that draws too: each query finds one object, or none, its box and its mask (Carion et al. 2020,
4.4).

B batch, Q queries, M the most boxes of a picture, P pairs of a query and an object, L labels, S places, D width, H
height and W width of a picture, R rows and C columns of a mask.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.batch import IGNORED
from headway.errors import refuse
from headway.models.box_head import Boxes, BoxesHead
from headway.models.head import ACTIVATIONS
from headway.models.protocols import Encoded, Encodes, Terms
from headway.nn.boxes import corners
from headway.nn.object_masks import AttentionMap, MaskConvolutions, PlacedAttentionMap

ALPHA, GAMMA = 0.25, 2.0  # of the focal loss


def focal(logits_PN: Tensor, target_PN: Tensor) -> Tensor:
    """(P,): the mean over pixels of −α_t (1 − p_t)^γ log p_t, p_t the probability of what is true (Lin et al. 2017,
    "Focal loss", eq. 5)."""
    share_PN = logits_PN.sigmoid()
    nll_PN = F.binary_cross_entropy_with_logits(logits_PN, target_PN, reduction="none")
    wrong_PN = share_PN + target_PN - 2 * share_PN * target_PN
    weight_PN = ALPHA * target_PN + (1 - ALPHA) * (1 - target_PN)
    return (weight_PN * wrong_PN**GAMMA * nll_PN).mean(1)


def dice(logits_PN: Tensor, target_PN: Tensor) -> Tensor:
    """(P,): 1 − (2·Σ p·t + 1)/(Σ p + Σ t + 1) (Milletari et al. 2016, eq. 3; smoothed by 1)."""
    share_PN = logits_PN.sigmoid()
    return 1 - (2 * (share_PN * target_PN).sum(1) + 1) / (share_PN.sum(1) + target_PN.sum(1) + 1)


class BoxesAndMasksHead(BoxesHead):
    """Beside label and box, σ(convolutions([x; attention(y, x)])) for each query's vector y and the picture's x."""

    capturable = False  # masks are drawn of the objects that are there, and their number is asked of the device
    does = "finds objects in a picture and their masks (headway predict)"
    config: BoxesAndMasks

    def __init__(self, encoder: Encodes, config: BoxesAndMasks) -> None:
        super().__init__(encoder, config)
        shape: Any = encoder.config
        self.sides, self.before = shape.sides, shape.before
        self.attention = config.look.build(encoder.width, shape.heads)
        self.masks = MaskConvolutions(
            encoder.width, shape.heads, encoder.channels[-2::-1], ACTIVATIONS[config.activation]
        )

    def forward(self, encoded: Encoded) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        """The logits and boxes of the last layer, and the logits of masks, (B, Q, R, C)."""
        found, y_BQD, at_BQD = self.decoded(encoded)
        row_P = torch.arange(len(y_BQD), device=y_BQD.device).repeat_interleave(y_BQD.shape[1])
        masks_PRC = self.drawn(encoded, y_BQD.flatten(0, 1), at_BQD.flatten(0, 1), row_P)
        return found.logits_NBQL[-1], found.boxes_NBQ4[-1], masks_PRC.unflatten(0, y_BQD.shape[:2])

    def drawn(self, encoded: Encoded, y_PD: Tensor, at_PD: Tensor, row_P: Tensor) -> Tensor:
        """(P, R, C): the logits of the masks of some queries. at_PD: where each is, row_P: its picture."""
        x_BSD = encoded.x_BTD[:, self.before :]
        from_SD = x_BSD.new_zeros(()) if encoded.at_TD is None else encoded.at_TD[self.before :]
        weights_PHS = self.attention(y_PD, at_PD, x_BSD, from_SD, row_P)
        *finer, x_BDRC = encoded.maps or (x_BSD.mT.unflatten(2, self.sides),)
        return self.masks(x_BDRC, weights_PHS.unflatten(2, self.sides), finer[::-1], row_P)

    def objects(self, encoded: Encoded) -> tuple[Tensor, Tensor, Tensor]:
        logits_BQL, boxes_BQ4, masks_BQRC = self(encoded)
        return logits_BQL.float().softmax(-1), corners(boxes_BQ4.float()), masks_BQRC.float()

    def losses(self, encoded: Encoded, batch: Any, smoothing: float = 0.0) -> Terms:
        """Those of `BoxesHead`, and of the last layer's pairs the focal and the dice loss of masks, which are scaled to
        the picture's size."""
        found, y_BQD, at_BQD = self.decoded(encoded)
        terms, query_BM = self.matched(found, batch, smoothing)
        row_P, at_P = ((batch.labels_BM != IGNORED) & (query_BM < self.config.queries)).nonzero(as_tuple=True)
        query_P = query_BM[row_P, at_P]
        masks_PRC = self.drawn(encoded, y_BQD[row_P, query_P], at_BQD[row_P, query_P], row_P)
        objects_PHW = batch.objects_BHW[row_P]
        target_PHW = (objects_PHW == at_P[:, None, None] + 1).float()
        large_PHW = scaled(masks_PRC.float(), target_PHW.shape[1:])
        pairs = large_PHW.flatten(1), target_PHW.flatten(1)
        focal_loss, dice_loss = focal(*pairs).sum(), dice(*pairs).sum()
        loss = terms["loss"][0] + self.config.focal * focal_loss + self.config.dice * dice_loss
        return terms | {
            "loss": (loss, 1.0), "focal": (focal_loss.detach(), 0.0), "dice": (dice_loss.detach(), 0.0),
        }  # fmt: skip


def scaled(masks_PRC: Tensor, size: tuple[int, ...]) -> Tensor:
    """The logits of masks at the size of a picture, between their places by bilinear interpolation."""
    return F.interpolate(masks_PRC[:, None], size=size, mode="bilinear", align_corners=False)[:, 0]


@dataclass(frozen=True)
class Content:
    """By what queries and places hold, as DETR."""

    name: ClassVar[str] = "content"

    def build(self, width: int, heads: int) -> AttentionMap:
        return AttentionMap(width, heads)


@dataclass(frozen=True)
class Placed:
    """By where they are, too."""

    name: ClassVar[str] = "placed"

    def build(self, width: int, heads: int) -> AttentionMap:
        return PlacedAttentionMap(width, heads)


@dataclass(frozen=True)
class BoxesAndMasks(Boxes):
    """Objects with their boxes and masks. `look`: how a query finds the places of its mask. `focal`, `dice`: how much
    the losses of masks count. `activation`: between the convolutions that draw them. The rest: as of `Boxes`."""

    name = "boxes-and-masks"
    task = "instance-segmentation"
    module = BoxesAndMasksHead
    shared = (*Boxes.shared, "head.attention.", "head.masks.")
    look: Content | Placed = field(default_factory=Content)
    focal: float = 1.0
    dice: float = 1.0
    activation: Literal["relu", "gelu", "gelu-tanh"] = "relu"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("focal", "dice"):
            value = getattr(self, name)
            refuse(not 0 <= value < float("inf"), f"head.{name} must be 0 or more, not {value}")

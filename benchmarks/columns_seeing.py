"""Columns of the tables about what is in pictures."""

from __future__ import annotations

from formats import Column, code, count, number, one_digit


def three(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


VIT: list[Column] = [
    ("case", "model", str), ("who", "", str), ("pictures_per_second", "pictures/s", count),
    ("milliseconds", "ms a step", number), ("times_peer", "beside timm", lambda value: f"{value:.2f} ×"),
]  # fmt: skip


SCENES: list[Column] = [
    ("recipe", "recipe", code),
    ("who", "who", str),
    ("mean_iou", "mean IoU", three),
    ("map", "mAP", three),
    ("ap50", "AP50", three),
    ("mask_map", "mAP of masks", three),
    ("mask_ap50", "AP50 of masks", three),
    ("exact", "exactly right", three),
    ("cider", "CIDEr", three),
    ("bleu", "BLEU-4", one_digit),
    ("parameters", "weights", count),
    ("steps", "steps", count),
    ("training seconds", "s", number),
]
FLICKR8K: list[Column] = [
    ("who", "who", str),
    ("cider", "CIDEr", three),
    ("bleu", "BLEU-4", one_digit),
    ("parameters", "weights", count),
    ("steps", "steps", count),
    ("training seconds", "s", number),
]
PENNFUDAN: list[Column] = [
    ("fold", "fold", str),
    ("ap50", "AP50 of boxes", three),
    ("fixed_ap50", "fixed boxes", three),
    ("map", "mAP of boxes", three),
    ("iou", "IoU of masks", three),
    ("fixed_iou", "a fixed mask", three),
]

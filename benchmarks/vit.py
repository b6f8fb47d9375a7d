"""Training speed of the Vision Transformer: headway beside timm (where it is installed) and transformers' ViT.

Same shapes, AdamW, cross-entropy, one process, repeats interleaved, medians. On a GPU: ViT-S/16 at 224 pixels, 256
pictures, and ViT-Ti with patches of 4 at 32 pixels, 1,024 pictures, bfloat16, all compiled; headway's and timm's steps
with CUDA graphs too (timm's by torch.compile's reduce-overhead). `times_peer`: relative to the fastest
of the others. On a CPU: ViT-Ti with patches of 4 at 32 pixels, 16 pictures, float32, none compiled.

    PYTHONPATH=src python benchmarks/vit.py --device cuda
"""

from __future__ import annotations

from measure import arguments, interleaved, write

# isort: split
import gc
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from training import peer_step
from training_steps import objective_step, speed_rows

from headway.data.augment import ImageInputs
from headway.data.labelled import LabelBatch
from headway.models import build
from headway.models.heads import LinearClasses
from headway.models.vit import SIZES, ViTConfig
from headway.tasks.objective import Labels
from headway.train.optimiser import AdamW

SMALL, TINY = "ViT-S/16, 224 pixels", "ViT-Ti/4, 32 pixels"
CONFIGS = {
    SMALL: replace(SIZES["small"], dropout=0.0),
    TINY: replace(SIZES["tiny"], image=32, patch=4, dropout=0.0),
}
CASES = {"cuda": {SMALL: 256, TINY: 1024}, "cpu": {TINY: 16}}


def timm_step(config: ViTConfig, classes: int, x: torch.Tensor, y: torch.Tensor, how: str = "") -> Callable[[], None]:
    import timm

    model = timm.models.vision_transformer.VisionTransformer(
        img_size=config.image, patch_size=config.patch, embed_dim=config.width, depth=config.layers,
        num_heads=config.heads, mlp_ratio=config.inner / config.width, num_classes=classes,
    )  # fmt: skip
    return _peer(model, lambda run: F.cross_entropy(run(x), y), x.device.type, how)


def transformers_step(config: ViTConfig, classes: int, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    from transformers import ViTConfig as TheirConfig
    from transformers import ViTForImageClassification

    theirs = TheirConfig(
        hidden_size=config.width, num_hidden_layers=config.layers, num_attention_heads=config.heads,
        intermediate_size=config.inner, image_size=config.image, patch_size=config.patch, num_labels=classes,
    )  # fmt: skip
    model = ViTForImageClassification._from_config(theirs, attn_implementation="sdpa")
    return _peer(model, lambda run: F.cross_entropy(run(x).logits, y), x.device.type)


def _peer(model: nn.Module, loss: Callable[[Any], torch.Tensor], device: str, how: str = "") -> Callable[[], None]:
    model = model.to(device)
    run = torch.compile(model, mode=how or None) if device == "cuda" else model
    return peer_step(model, lambda: loss(run), device)


def headway_vit(config: ViTConfig, classes: int, x: torch.Tensor, y: torch.Tensor, how: str) -> Callable[[], Any]:
    head = LinearClasses(tuple(map(str, range(classes))))
    dtype = torch.bfloat16 if x.device.type == "cuda" else torch.float32
    model = build("vit", config, (3,), head).to(x.device, dtype)
    return objective_step(Labels().build(model), LabelBatch(ImageInputs(x), y), how, AdamW())


def main() -> None:
    options = arguments(__doc__).parse_args()
    device, rows = options.device, []
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    for name, count in CASES[device].items():
        config = CONFIGS[name]
        x = torch.randn(count, 3, config.image, config.image, device=device)
        y = torch.randint(10, (count,), device=device)
        works: dict[str, Any] = {"transformers ViT": transformers_step(config, 10, x, y)}
        if find_spec("timm"):
            works = {"timm": timm_step(config, 10, x, y)} | works
            if device == "cuda":
                works["timm, graphs"] = timm_step(config, 10, x, y, "reduce-overhead")
        for how in ["eager"] if device == "cpu" else ["compile", "compile+graphs"]:
            works[f"headway {how}"] = headway_vit(config, 10, x, y, how)
        repeats = (8, options.repeats or 20) if device == "cuda" else (2, options.repeats or 7)
        times = interleaved(works, device, *repeats)
        peer = min((who for who in works if not who.startswith("headway")), key=lambda who: median(times[who]))
        found = speed_rows(times, peer, count, "pictures_per_second", case=name)
        rows += [
            {key if key != "times_torch_nn" else "times_peer": value for key, value in row.items()} for row in found
        ]
        del works
        gc.collect()
    write(f"vit-{device}", device, rows, options.out, case=dict(CASES[device]))


if __name__ == "__main__":
    main()

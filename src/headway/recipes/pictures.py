"""Recipes for labels of pictures."""

from __future__ import annotations

from headway.models.heads import Classes
from headway.models.vit import SIZES, ViTConfig
from headway.recipes.recipe import recipe, varied
from headway.tasks.objective import Labels
from headway.tasks.pictures import LabelledImages
from headway.train.optimiser import AdamW
from headway.train.run import Engine, Run, Validation
from headway.train.schedule import Cosine

CLOTHES = (
    "T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip


def pictures_run(name: str, data: LabelledImages, model: ViTConfig, batch: int) -> Run:
    """AdamW up over the first steps and down along a cosine, as small Vision Transformers are trained (Touvron et al.
    2021)."""
    return Run(
        name, data, model, Labels(smoothing=0.1), AdamW(beta2=0.99, decay=0.05), Cosine(peak=1e-3, warmup=200),
        head=Classes(), validation=Validation(every=200, score_every=200),
        engine=Engine(steps=4000, batch=batch, clip=1.0, average=0),
    )  # fmt: skip


@recipe(
    "fashion-mnist-vit", "labels of clothes, a small Vision Transformer",
    "accuracy 0.848 (validation 0.896) with 7,200 pictures; one H200, 20 s",
)  # fmt: skip
def fashion_mnist(name: str) -> Run:
    """Grey pictures of clothes, 28 × 28 (Xiao et al. 2017): 8,000 for training and 2,000 for the test."""
    train, test = ((f"fashion_mnist/{part}-images-idx3-ubyte.gz",) for part in ("train8k", "heldout2k"))
    data = LabelledImages(train, test=test, names=CLOTHES, channels=1, shift=2, flip=True)
    run = pictures_run(name, data, SIZES["mnist"], batch=128)
    return varied(run, model={"width": 128, "inner": 256, "dropout": 0.1}, engine={"steps": 8000})


@recipe("classify-pictures", "labels of your own pictures: --data FOLDER")
def own_pictures(name: str) -> Run:
    """Defaults for anybody's pictures, in colour, scaled to 64 × 64."""
    return pictures_run(name, LabelledImages(shift=4, flip=True), ViTConfig(64, 8, 6, 192, 384, 6), batch=64)

"""DETR (Carion et al. 2020) in the Hugging Face format ↔ `headway.models.detr` with the head `boxes`, or
`boxes-and-masks`."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.errors import InputError, refuse
from headway.hub.config_keys import Field, Keys, NoCounterpart, choice, number, size
from headway.hub.families.encoder import Kin, Row, activation_of, foreign, labels_in, names
from headway.hub.families.foreign import ACTIVATIONS, Usual
from headway.hub.hf_folder import optional_json
from headway.hub.image_processor import FILE, image_config, processor_facts
from headway.hub.names import Table, below
from headway.models.box_head import Boxes, Learned
from headway.models.detr import DetrConfig, ResNet
from headway.models.mask_head import BoxesAndMasks
from headway.nn.object_masks import GROUPS

THEIRS = "model.backbone.conv_encoder.model."
# Weights of timm's residual networks: the first convolution, and those of stage, layer and number.
FIRST = re.compile(rf"{re.escape(THEIRS)}(conv|bn)1\.(\w+)")
LAYER = re.compile(rf"{re.escape(THEIRS)}layer(\d)\.(\d+)\.(conv|bn|downsample\.)(\d)\.(\w+)")
PARTS = {"conv": "convolution", "bn": "normalization"}
OUTER = {Boxes: "", BoxesAndMasks: "detr."}  # what stands before the names of all but the masks' weights
STAGES = 4  # of the residual network whose maps their masks are drawn with
USUAL_SIZE = 800  # of pictures, where the folder does not say it
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]  # of ImageNet's
BACKBONE = "backbone_config"
# Residual networks by timm's names.
BASIC = (64, 128, 256, 512)
TIMM = {
    "resnet18": ResNet(widths=BASIC, depths=(2, 2, 2, 2), layer="basic"),
    "resnet34": ResNet(widths=BASIC, layer="basic"),
    "resnet50": ResNet(),
    "resnet101": ResNet(depths=(3, 4, 23, 3)),
    "resnet152": ResNet(depths=(3, 8, 36, 3)),
}
# Keys of a backbone that change nothing in what it computes.
PLAIN = {
    "model_type", "hidden_act", "num_channels", "downsample_in_first_stage", "downsample_in_bottleneck", "out_features",
    "out_indices", "stage_names", "embedding_size", "hidden_sizes", "depths", "layer_type",
}  # fmt: skip


def _backbone(keys: Keys) -> ResNet:
    facts = keys.take(BACKBONE, None, dict) or {"model_type": "timm_backbone", "backbone": "resnet50"}
    older = keys.take("backbone")  # how configs named it before they described it
    if facts.get("model_type") == "timm_backbone":
        name = older or facts.get("backbone")
        if name not in TIMM or facts.get("output_stride"):
            raise InputError(f"{keys.where}: headway has no backbone '{name}' for DETR (it has {', '.join(TIMM)})")
        return TIMM[name]
    if facts.get("model_type") != "resnet":
        raise InputError(f"{keys.where}: {BACKBONE} must be a resnet: headway has no other for DETR")
    inner = Keys(facts, f"{keys.where}, {BACKBONE}")
    inner.used |= PLAIN
    for key, value in (("hidden_act", "relu"), ("downsample_in_first_stage", False),
                       ("downsample_in_bottleneck", False)):  # fmt: skip
        inner.must(key, value)
    widths = tuple(inner.take("hidden_sizes", [256, 512, 1024, 2048], list))
    last = inner.take("out_features", [f"stage{len(widths)}"], list)
    if last[-1:] != [f"stage{len(widths)}"]:
        raise InputError(f"{inner.where}: out_features is {last}, headway reads the last stage")
    kind = inner.choice("layer_type", "bottleneck", {"bottleneck": "bottleneck", "basic": "basic"})
    depths = tuple(inner.take("depths", [3, 4, 6, 3], list))
    if not all(type(value) is int for value in (*widths, *depths)):
        raise InputError(f"{inner.where}: hidden_sizes and depths must be whole numbers")
    return ResNet(inner.size("embedding_size", 64), widths, depths, kind)


def _backbone_keys(stem: Any, config: Any) -> dict[str, Any]:
    if not isinstance(stem, ResNet):
        raise NoCounterpart
    stages = [f"stage{number + 1}" for number in range(len(stem.widths))]  # masks need all, boxes the last
    facts = {
        "model_type": "resnet", "embedding_size": stem.first, "hidden_sizes": list(stem.widths),
        "depths": list(stem.depths), "layer_type": stem.layer, "hidden_act": "relu", "out_features": stages,
        "downsample_in_first_stage": False, "downsample_in_bottleneck": False,
    }  # fmt: skip
    return {BACKBONE: facts, "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}


FIELDS = {
    "layers": size("encoder_layers", 6),
    "width": size("d_model", 256),
    "inner": size("encoder_ffn_dim", 2048, twin="decoder_ffn_dim"),
    "heads": size("encoder_attention_heads", 8, twin="decoder_attention_heads"),
    "dropout": number("dropout", 0.1),
    "attention_dropout": number("attention_dropout", 0.0),
    "feed_forward": choice("activation_function", "relu", ACTIVATIONS),
    "stem": Field(_backbone, _backbone_keys),
    # In other files of the folder, or no part of the weights.
    "image": Field(lambda keys: USUAL_SIZE, lambda value, config: {}),
    "across": Field(lambda keys: 0, lambda value, config: {}),
}
MUST = {"position_embedding_type": "sine", "dilation": False, "auxiliary_loss": False}
IGNORED = (
    "init_std", "init_xavier_std", "class_cost", "bbox_cost", "giou_cost", "mask_loss_coefficient",
    "dice_loss_coefficient", "encoder_layerdrop", "decoder_layerdrop", "activation_dropout", "backbone",
    "use_pretrained_backbone", "use_timm_backbone", "backbone_kwargs", "num_channels", "scale_embedding",
    "num_hidden_layers", "tie_word_embeddings", "hidden_size", "num_attention_heads",
)  # fmt: skip
BLOCK = {
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.out_proj",
    "around_attention.outside": "self_attn_layer_norm",
    "feed_forward.expand": "fc1",
    "feed_forward.contract": "fc2",
    "around_feed_forward.outside": "final_layer_norm",
}
CROSS = {
    "cross.query": "encoder_attn.q_proj",
    "cross.key": "encoder_attn.k_proj",
    "cross.value": "encoder_attn.v_proj",
    "cross.output": "encoder_attn.out_proj",
    "around_cross.outside": "encoder_attn_layer_norm",
}
HEAD = {
    **below("head.layers.*.", "model.decoder.layers.*.", BLOCK | CROSS),
    "head.norm": "model.decoder.layernorm",
    "head.labels": "class_labels_classifier",
    "head.box.layers.*": "bbox_predictor.layers.*",
    "head.queries.queries_QD": "model.query_position_embeddings.weight",
}


# In the order of `MaskConvolutions`: adapters join the maps of the residual network.
MASKS = {
    **{name: f"detr.{theirs}" for name, theirs in HEAD.items()},
    "head.attention.query": "bbox_attention.q_linear",
    "head.attention.key": "bbox_attention.k_linear",
    "head.masks.first.convolution": "mask_head.lay1",
    "head.masks.first.norm": "mask_head.gn1",
    "head.masks.second.convolution": "mask_head.lay2",
    "head.masks.second.norm": "mask_head.gn2",
    **{f"head.masks.steps.step{step + 1}.join": f"mask_head.adapter{step + 1}" for step in range(STAGES - 1)},
    **{f"head.masks.steps.step{step + 1}.refine.convolution": f"mask_head.lay{step + 3}" for step in range(STAGES - 1)},
    **{f"head.masks.steps.step{step + 1}.refine.norm": f"mask_head.gn{step + 3}" for step in range(STAGES - 1)},
    "head.masks.output": "mask_head.out_lay",
}


def _convolution(ours: str, theirs: str) -> dict[str, str]:
    return {f"{ours}.convolution": f"{theirs}.convolution", f"{ours}.norm": f"{theirs}.normalization"}


def _names(stem: Any) -> dict[str, str]:
    """Of the residual network: `*` is the number of a layer in its stage."""
    found = _convolution("encoder.embed.first", f"{THEIRS}embedder.embedder")
    parts = {"bottleneck": 3, "basic": 2}[stem.layer]
    for stage in range(len(stem.widths)):
        ours, layers = f"encoder.embed.stages.stage{stage + 1}.*", f"{THEIRS}encoder.stages.{stage}.layers.*"
        found |= _convolution(f"{ours}.shortcut", f"{layers}.shortcut")
        for part in range(parts):
            found |= _convolution(f"{ours}.parts.{part}", f"{layers}.layer.{part}")
    return found


def _head(keys: Keys, config: Any) -> Boxes:
    return Boxes(
        labels_in(keys), Learned(), keys.size("num_queries", 100), keys.size("decoder_layers", 6),
        *(keys.number(key, usual) for key, usual in
          (("bbox_loss_coefficient", 5), ("giou_loss_coefficient", 2), ("eos_coefficient", 0.1))),
    )  # fmt: skip


def _whole(value: float) -> float:
    """As their configs write it."""
    return int(value) if value == int(value) else value


def _head_keys(head: Boxes) -> dict[str, Any]:
    if head.start != Learned():
        raise NoCounterpart("head.start")
    numbered = dict(enumerate(head.labels))
    far, over = map(_whole, (head.distance, head.overlap))
    return {
        "num_queries": head.queries, "decoder_layers": head.layers, "bbox_loss_coefficient": far,
        "giou_loss_coefficient": over, "eos_coefficient": head.nothing, "is_encoder_decoder": True,
        "id2label": {str(number): label for number, label in numbered.items()},
        "label2id": {label: number for number, label in numbered.items()},
    }  # fmt: skip


def _masks_head(keys: Keys, config: Any) -> BoxesAndMasks:
    maps = (keys.take(BACKBONE, None, dict) or {}).get("out_features")
    refuse(len(config.stem.widths) != STAGES or (maps is not None and len(maps) != STAGES),
           f"{keys.where}: masks need the maps of all {STAGES} stages of a residual network")  # fmt: skip
    widths = (config.width + config.heads, *(config.width >> step for step in range(1, STAGES + 1)))
    refuse(any(width >= GROUPS and width % GROUPS for width in widths) or config.width < 1 << STAGES,
           f"{keys.where}: d_model {config.width} with {config.heads} heads has no groups of {GROUPS} for the masks' "
           "norms")  # fmt: skip
    weights = (keys.number(key, 1) for key in ("mask_loss_coefficient", "dice_loss_coefficient"))
    return BoxesAndMasks(**vars(_head(keys, config)), **dict(zip(("focal", "dice"), weights, strict=True)),
                         activation=activation_of(config))  # fmt: skip


def _masks_head_keys(head: BoxesAndMasks) -> dict[str, Any]:
    return _head_keys(head) | {
        "mask_loss_coefficient": _whole(head.focal), "dice_loss_coefficient": _whole(head.dice),
    }  # fmt: skip


KIN = Kin(
    "detr", "Detr", "model.", {
        **below("encoder.encoder.layers.*.", "model.encoder.layers.*.", BLOCK),
        "encoder.embed.map": "model.input_projection",
    },
    {
        "ForObjectDetection": Row(Boxes, _head, HEAD, write=_head_keys),
        "ForSegmentation": Row(BoxesAndMasks, _masks_head, MASKS, write=_masks_head_keys),
    },
    (r"num_batches_tracked$",),
)  # fmt: skip


def _table(config: DetrConfig, head: Any) -> Table:
    found, outer = names(KIN, config, head), OUTER[type(head)]
    below_head = {ours: outer + theirs for ours, theirs in {**KIN.names, **_names(config.stem)}.items()}
    return replace(found, names={**found.names, **below_head}, spelled=_spelled, prefix=outer + KIN.prefix)


def _spelled(name: str) -> str:
    """The name of a weight of timm's residual network, as transformers' own has it."""
    outer = OUTER[BoxesAndMasks]
    return outer + _spelled(name.removeprefix(outer)) if name.startswith(outer) else _own_name(name)


def _own_name(name: str) -> str:
    if (first := FIRST.fullmatch(name)) is not None:
        return f"{THEIRS}embedder.embedder.{PARTS[first[1]]}.{first[2]}"
    if (found := LAYER.fullmatch(name)) is None:
        return name
    stage, layer, part, number, end = found.groups()
    place = f"{THEIRS}encoder.stages.{int(stage) - 1}.layers.{layer}"
    if part == "downsample.":
        return f"{place}.shortcut.{('convolution', 'normalization')[int(number)]}.{end}"
    return f"{place}.layer.{int(number) - 1}.{PARTS[part]}.{end}"


def _settle(config: Any, head: Any, folder: Path, names: Collection[str]) -> tuple[Any, Any]:
    """The size of pictures, of the folder's preprocessor_config.json. They scale the shorter side and keep the shape of
    a picture; headway scales every picture to a square of that size, unless both sides are given."""
    said = optional_json(folder / FILE).get("size", {})
    if isinstance(said, dict) and isinstance(said.get("height"), int) and isinstance(said.get("width"), int):
        high, wide = said["height"], said["width"]
        return replace(config, image=high, across=0 if wide == high else wide), head
    side = said.get("shortest_edge", USUAL_SIZE) if isinstance(said, dict) else said
    return replace(config, image=side if isinstance(side, int) else USUAL_SIZE), head


def _processors(folder: Path | None, config: DetrConfig, channels: int) -> dict[str, Any]:
    """As `_settle` says; without a file normalised as ImageNet's pictures are."""
    facts = {"image_mean": MEAN, "image_std": STD} | processor_facts(folder)
    facts |= {"size": dict(zip(("height", "width"), config.size, strict=True))}
    return {"image": image_config(facts, str(folder and folder / FILE), config, channels)}


DETR = replace(
    foreign(KIN, DetrConfig(stem=ResNet()), FIELDS, Usual(), must=MUST, ignored=IGNORED),
    names=_table, size_key="num_channels", settle=_settle, processors=_processors, task=lambda head: str(head.task),
)  # fmt: skip

"""Weights out of an ONNX graph beside a config.json: float, or int8 with a scale and a zero point, as float32.

An exporter names a weight, or the node that multiplies with it, by its module: `/model/layers.0/mlp/up_proj/MatMul`.
The graph itself is not run: config.json says what is computed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.errors import InputError, of_library
from headway.extras import wanted
from headway.hub.checkpoint import Checkpoint
from headway.hub.hf_folder import CONFIG, InMemory
from headway.hub.model_type import with_model_type
from headway.hub.names import listed
from headway.hub.vocabularies import read_tokenizers
from headway.outside import read_object

PRODUCTS = ("MatMul", "MatMulInteger", "Gemm")
ANONYMOUS = "onnx::"  # weights that an optimiser has changed, such as transposed ones
BEST = ("model.onnx", "model_fp16.onnx", "model_quantized.onnx")


def onnx_file(folder: Path) -> Path | None:
    """The graph of a folder: the most exact of several."""
    files = sorted((*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx")))
    known = [file for name in BEST for file in files if file.name == name]
    return known[0] if known else files[0] if len(files) == 1 else None


def onnx_folder(folder: Path) -> Checkpoint:
    path, file = folder / CONFIG, onnx_file(folder)
    if file is None:
        raise InputError(f"{folder} has several ONNX graphs: expected one of {', '.join(BEST)}")
    weights = OnnxWeights(file)
    facts = with_model_type(read_object(path), lambda: weights, str(path))
    if "lm_head.weight" in weights.tensors:  # quantised apart from the embedding, so no longer the same numbers
        facts = facts | {"tie_word_embeddings": False}
    return Checkpoint(str(path), facts, lambda: weights, lambda: read_tokenizers(folder, facts), folder)


class OnnxWeights(InMemory):
    """Tensors by the names of their modules."""

    def __init__(self, path: Path) -> None:
        self.where = path
        library = wanted("onnx", "onnx")
        try:
            graph = library.load(path).graph
            stored = {one.name: library.numpy_helper.to_array(one) for one in graph.initializer}
        except Exception as error:  # the library raises many kinds for a broken file
            raise InputError(
                f"{path} is no ONNX graph, or it is broken ({of_library(error)}): copy it again"
            ) from error
        self.tensors = {}
        unnamed = {name for name in map(_whole, stored) if name.startswith(ANONYMOUS) and _is_matrix(stored, name)}
        for name in dict.fromkeys(map(_whole, stored)):
            if not name.startswith(ANONYMOUS) and "/" not in name and "." in name:
                self.tensors[name] = _dequantised(stored, name)
        for node in graph.node:
            if node.op_type in PRODUCTS and len(node.input) > 1 and (name := _whole(node.input[1])) in unnamed:
                turned = any(one.name == "transB" and one.i for one in node.attribute)
                weight = _dequantised(stored, name)
                self.tensors[f"{_module(node.name)}.weight"] = weight if turned else weight.mT.contiguous()
                unnamed.discard(name)
        if unnamed:
            raise InputError(f"{path} has {listed(sorted(unnamed))}, which no node of a module multiplies with")


def _whole(name: str) -> str:
    """A quantised weight is three tensors."""
    for end in ("_quantized", "_scale", "_zero_point"):
        name = name.removesuffix(end)
    return name


def _is_matrix(stored: dict[str, Any], name: str) -> bool:
    found = stored.get(name, stored.get(f"{name}_quantized"))
    return found is not None and found.ndim == 2


def _dequantised(stored: dict[str, Any], name: str) -> Tensor:
    """(q − zero point) · scale, for the whole matrix or for each of its columns."""
    if name in stored:
        return torch.from_numpy(np.array(stored[name], np.float32))
    values, scale, zero = (stored[f"{name}_{end}"] for end in ("quantized", "scale", "zero_point"))
    return torch.from_numpy((values.astype(np.float32) - zero.astype(np.float32)) * scale.astype(np.float32))


def _module(node: str) -> str:
    return ".".join(node.strip("/").split("/")[:-1])

"""A Whisper whose weights lie in two ONNX graphs of int8, encoder_model_quantized and decoder_model_merged_quantized,
as a Hugging Face folder of float32, which headway and transformers open.

    python benchmarks/whisper_onnx.py FOLDER OUT

The weights are those that the int8 numbers stand for: (q − zero point) · scale. Needs `onnx`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from safetensors.torch import save_file

MERGED = "_merged_0"
TABLE = "model.decoder.embed_tokens.weight"


def nodes(graph: Any) -> Iterator[Any]:
    """Those of the first branch, which reads a text from its start, too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.name in ("then_branch", "else_branch"):
                yield from nodes(attribute.g)


def stored(graph: Any) -> dict[str, Any]:
    found = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("then_branch", "else_branch"):
                found |= stored(attribute.g)
    return found


def weights(path: Path, prefix: str) -> dict[str, torch.Tensor]:
    graph = onnx.load(path).graph
    arrays = stored(graph)

    def whole(name: str) -> np.ndarray:
        if name in arrays:
            return arrays[name].astype(np.float32)
        values, scale, zero = (
            arrays[f"{name}_{end}"].astype(np.float32) for end in ("quantized", "scale", "zero_point")
        )
        return (values - zero) * scale

    names = {name.removesuffix("_quantized").removesuffix("_scale").removesuffix("_zero_point") for name in arrays}
    found = {}
    for name in names:
        if not name.startswith(("onnx::", "/")) and name.removesuffix(MERGED).endswith((".weight", ".bias")):
            found[prefix + name.removesuffix(MERGED)] = whole(name)
    for node in nodes(graph):
        if node.op_type.startswith("MatMul") and len(node.input) > 1:
            name = node.input[1].removesuffix("_quantized")
            if name.startswith("onnx::") and name in names:
                module = ".".join(node.name.strip("/").split("/")[:-1])
                found[f"{prefix}{module}.weight"] = np.ascontiguousarray(whole(name).T)
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in found.items()}


def main() -> None:
    folder, out = map(Path, sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    found = weights(folder / "onnx/encoder_model_quantized.onnx", "model.encoder.")
    found |= weights(folder / "onnx/decoder_model_merged_quantized.onnx", "")
    found = {name: weight for name, weight in found.items() if not name.startswith("proj_out")}
    save_file(found, out / "model.safetensors", metadata={"format": "pt"})
    for path in folder.glob("*.json"):
        shutil.copy(path, out / path.name)
    print(f"{out}: {len(found)} weights, {sum(weight.numel() for weight in found.values()):,} numbers")


if __name__ == "__main__":
    main()

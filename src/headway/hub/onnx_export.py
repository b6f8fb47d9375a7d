"""Models as ONNX graphs in the layout that programs around ONNX Runtime look for. Batch and lengths are free."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from headway.atomic import replaced_folder
from headway.errors import InputError
from headway.extras import wanted
from headway.folder import read_model
from headway.hub.families.exports import EXPORTS, export_of
from headway.hub.hf_export import held
from headway.hub.hf_folder import CONFIG, write_json
from headway.hub.onnx_graphs import CACHED, ENCODER, MODEL
from headway.hub.tokenizer_export import write_tokenizer

OPSET = 18


def export_onnx(model: str | Path, folder: str | Path) -> list[str]:
    """Write the graphs and the tokenizer; returns the names of the graphs."""
    for module in ("onnx", "onnxscript"):
        wanted(module, "onnx")
    loaded = read_model(model)
    export = export_of(loaded.card.family, "ONNX")
    if export.onnx is None:
        held_there = ", ".join(name for name, one in EXPORTS.items() if one.onnx)
        raise InputError(f"headway writes the families {held_there} as ONNX, not a {loaded.card.family}")
    graphs, length = export.onnx(loaded), int(loaded.card.config.max_length)
    with replaced_folder(Path(folder)) as place:
        for name, graph in graphs.items():
            _write(place / name, *graph, length)
        write_tokenizer(place, loaded, export.layout)  # type: ignore[arg-type]  # no model of pictures has graphs
        # config.json, where a Hugging Face family holds the model: other programs take shapes and ids from it.
        with suppress(InputError):
            write_json(place / CONFIG, held(loaded)[1])
    return list(graphs)


B, T, S, P, C = "batch", "target", "source", "past", "choices"


def _write(
    path: Path, module: nn.Module, example: tuple[Any, ...], inputs: list[str], outputs: list[str], length: int
) -> None:
    dims = {B: Dim(B), T: Dim(T, max=length), S: Dim(S, max=length), P: Dim(P, max=length - 1), C: Dim(C)}
    of_source = {0: dims[B], 1: dims[S]}
    if example[0].dim() == 3:
        of_source = {0: dims[B], 1: dims[C], 2: dims[S]}
    read = {MODEL: of_source, ENCODER: of_source, CACHED: {0: dims[B]}}  # with a cache one token at a time
    of_texts = ("attention_mask", "token_type_ids", "encoder_attention_mask", "encoder_hidden_states")
    free = dict.fromkeys(of_texts, of_source)
    free["input_ids"] = read.get(path.name, {0: dims[B], 1: dims[T]})
    names = iter(inputs)
    shapes = tuple(_shapes(part, names, free, dims) for part in example)
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            module.eval(), example, dynamo=True, dynamic_shapes=shapes, input_names=inputs, output_names=outputs,
            opset_version=OPSET, external_data=False, verbose=False,
        )  # fmt: skip
    assert program is not None
    program.save(str(path), external_data=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says of itself: deprecations, and libraries that it would also know."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def _shapes(part: Any, names: Any, free: dict[str, Any], dims: dict[str, Any]) -> Any:
    """Which axes of an input are free: of a list, those of each of its tensors."""
    if isinstance(part, Tensor):
        return free[next(names)]
    taken = [next(names) for _ in part]
    return [{0: dims[B], 2: dims[S] if ".encoder." in name else dims[P]} for name in taken]

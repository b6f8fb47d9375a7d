"""How each headway family is exported. `EXPORTS` is the one place where its name becomes its exporters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from headway.errors import refuse
from headway.folder import Loaded
from headway.hub.families import ctranslate2, ctranslate2_decoders, ctranslate2_speech, restated
from headway.hub.families.ctranslate2_parts import Engine
from headway.hub.families.onnx_encoder import encoder
from headway.hub.families.restated import Weights
from headway.hub.image_processor import image_beside
from headway.hub.layouts import Layout, Pictures, RunningText, SourceAndTarget, Speech
from headway.hub.onnx_graphs import Graph, decoder_only, encoder_decoder
from headway.hub.sound_processor import sound_beside, whisper_beside
from headway.hub.tokenizer_export import text_beside


@dataclass(frozen=True)
class Export:
    """beside: writes what a Hugging Face folder has beside config and weights. restate: an equal config with equal
    weights that more formats can express. ctranslate2: the engine that runs the model, and its specification; onnx: its
    graphs. None: the format does not hold the family."""

    layout: Layout | Pictures
    restate: Callable[[Any, tuple[int, ...], Weights], tuple[Any, Weights]] = restated.unchanged
    ctranslate2: Engine | None = None
    onnx: Callable[[Loaded], dict[str, Graph]] | None = None
    beside: Callable[[Path, Loaded, Any], None] = text_beside


EXPORTS = {
    "transformer": Export(SourceAndTarget(), restated.translator, ctranslate2.TRANSLATOR, encoder_decoder),
    "t5": Export(SourceAndTarget(), onnx=encoder_decoder),
    "gpt": Export(RunningText(), restated.gpt, ctranslate2_decoders.GPT, decoder_only),
    "llama": Export(RunningText(), ctranslate2=ctranslate2_decoders.LLAMA, onnx=decoder_only),
    "decoder": Export(RunningText(), ctranslate2=ctranslate2_decoders.DECODER, onnx=decoder_only),
    "mamba": Export(RunningText()),
    "rung": Export(RunningText(), onnx=decoder_only),
    "bert": Export(RunningText(), onnx=encoder),
    "modernbert": Export(RunningText(), onnx=encoder),
    "deberta": Export(RunningText()),
    "t5-encoder": Export(RunningText(), onnx=encoder),
    "vit": Export(Pictures(), beside=image_beside),
    "detr": Export(Pictures(), beside=partial(image_beside, kind="DetrImageProcessor")),
    "ast": Export(Pictures(), beside=sound_beside),
    "whisper": Export(Speech(), ctranslate2=ctranslate2_speech.WHISPER, beside=whisper_beside),
}


def export_of(family: str, form: str) -> Export:
    """`form`: the format's name, for the message where no format holds the family."""
    refuse(family not in EXPORTS, f"headway writes the families {', '.join(EXPORTS)} for {form}, not a {family}")
    return EXPORTS[family]

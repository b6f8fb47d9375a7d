"""Specifications of CTranslate2, an engine for fast inference on a CPU, filled from headway's own parts.

CTranslate2's own converters need `transformers` and assume the start tokens of Marian and Pegasus. This one keeps every
choice that both sides have: norm placement, positions, start token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.errors import InputError, refuse
from headway.folder import Loaded
from headway.hub.extras import wanted
from headway.models import parts
from headway.models.gpt import GPTConfig
from headway.models.transformer import TransformerConfig
from headway.nn.position import Position, Sinusoidal
from headway.text.codec import Codec


@dataclass(frozen=True)
class Engine:
    """name: CTranslate2's class that runs the model. command: headway's."""

    name: str
    command: str
    specification: Callable[[Loaded], Any]


def entries(tokenizer: Codec, size: int) -> list[str]:
    """The name of each id for CTranslate2, of ids without a token too."""
    return [tokenizer.inner.id_to_token(i) or f"<{i}>" for i in range(size)]


def _translator(loaded: Loaded) -> Any:
    specs = wanted("ctranslate2.specs", "ctranslate2")
    model: Any = loaded.model
    config: TransformerConfig = model.config
    refuse(loaded.card.symbols.first is not None, "headway writes no forced first token for CTranslate2")
    refuse(config.embedding_norm, "headway writes no norm of embeddings for CTranslate2: model.embedding_norm")
    layers = config.encoder_layers, config.decoder_layers
    spec = specs.TransformerSpec.from_config(layers, config.heads, **_choices(config))
    sides = (spec.encoder, model.embed_source, model.encoder), (spec.decoder, model.embed_target, model.decoder)
    for side, embed, stack in sides:
        table = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        table.weight = _plain(embed.table.weight)
        side.scale_embeddings = np.float32(embed.scale)
        side.position_encodings.encodings = _positions(embed.position, config.max_length, config.width)
        _stack(side, stack, config)
    weight_VD = model.head.weight
    spec.decoder.projection.weight = _plain(weight_VD[:, : config.width])
    if config.output_bias:
        spec.decoder.projection.bias = _plain(weight_VD[:, config.width])
    card = loaded.card
    target = entries(loaded.target_tokenizer, card.sizes[1])
    spec.register_source_vocabulary(entries(loaded.source_tokenizer, card.sizes[0]))
    spec.register_target_vocabulary(target)
    _describe(spec.config, config, target, loaded.target_tokenizer, card.symbols.end)
    spec.config.decoder_start_token = target[card.symbols.start]
    return spec


def _gpt(loaded: Loaded) -> Any:
    specs = wanted("ctranslate2.specs", "ctranslate2")
    model: Any = loaded.model
    config: GPTConfig = model.config
    if config.shared_heads not in (0, config.heads):
        raise InputError("headway does not write keys and values that heads share for CTranslate2: model.shared_heads")
    spec = specs.TransformerDecoderModelSpec.from_config(config.layers, config.heads, **_choices(config))
    decoder, vocabulary = spec.decoder, loaded.card.sizes[0]
    decoder.scale_embeddings = False
    decoder.embeddings.weight = _plain(model.embed.table.weight[:vocabulary])
    decoder.position_encodings.encodings = _positions(model.embed.position, config.max_length, config.width)
    decoder.projection.weight = _plain(model.output.weight[:vocabulary])
    _stack(decoder, model.decoder, config)
    names = entries(loaded.source_tokenizer, vocabulary)
    spec.register_vocabulary(names)
    _describe(spec.config, config, names, loaded.source_tokenizer, loaded.source_tokenizer.end)
    return spec


def _choices(config: TransformerConfig | GPTConfig) -> dict[str, Any]:
    """Where the norms stand, which non-linearity, and whether it is a gate."""
    kinds = wanted("ctranslate2.specs.common_spec", "ctranslate2").Activation
    names = {"silu": kinds.SWISH, "gelu": kinds.GELU, "gelu-tanh": kinds.GELUTanh, "relu": kinds.RELU}
    part, before = config.feed_forward, isinstance(config.norm, parts.PreNorm)
    if isinstance(part, parts.Gated):
        return {"pre_norm": before, "activation": names[part.activation], "ffn_glu": True}
    tanh = isinstance(part, parts.Gelu) and part.approximate == "tanh"
    return {"pre_norm": before, "activation": names["gelu-tanh" if tanh else part.name]}


def _positions(position: Position, length: int, width: int) -> np.ndarray:
    """A row for each place, to be added; what turns queries or adds to scores is no such table."""
    kind = type(position)
    if kind.rotate is not Position.rotate or kind.bias is not Position.bias:
        raise InputError(
            f"headway writes only positions that are added for CTranslate2, not model.position={kind.__name__}"
        )
    if isinstance(position, Sinusoidal):
        places = torch.arange(position.first, position.first + length)
        return _plain(position.formula(places, width, position.base).float())
    with torch.no_grad():
        first = next(position.parameters(), torch.zeros(0))
        return _plain(position.add(torch.zeros(1, length, width, dtype=first.dtype))[0])


def _stack(side: Any, stack: Any, config: TransformerConfig | GPTConfig) -> None:
    slot = "before" if isinstance(config.norm, parts.PreNorm) else "outside"
    if slot == "before":
        _norm(side.layer_norm, stack.final)
    for spec, block in zip(side.layer, stack.layers, strict=True):
        _linear(spec.self_attention.linear[0], block.attention.qkv)
        _linear(spec.self_attention.linear[1], block.attention.output)
        _norm(spec.self_attention.layer_norm, getattr(block.around_attention, slot))
        if hasattr(block, "cross"):
            maps = (block.cross.query, block.cross.key_value, block.cross.output)
            for into, layer in zip(spec.attention.linear, maps, strict=True):
                _linear(into, layer)
            _norm(spec.attention.layer_norm, getattr(block.around_cross, slot))
        _feed(spec.ffn, block.feed_forward)
        _norm(spec.ffn.layer_norm, getattr(block.around_feed_forward, slot))


def _feed(spec: Any, part: Any) -> None:
    if hasattr(spec, "linear_0_noact"):
        gate, value = part.expand.weight.chunk(2)
        spec.linear_0.weight, spec.linear_0_noact.weight = _plain(gate), _plain(value)
    else:
        _linear(spec.linear_0, part.expand)
    _linear(spec.linear_1, part.contract)


def _norm(spec: Any, norm: Any) -> None:
    if not isinstance(norm, nn.LayerNorm):
        raise InputError(f"headway writes layer norms for CTranslate2, not {type(norm).__name__}: model.norm")
    spec.gamma = _plain(norm.weight)
    spec.beta = np.zeros_like(spec.gamma) if norm.bias is None else _plain(norm.bias)


def _linear(spec: Any, layer: Any) -> None:
    spec.weight = _plain(layer.weight)
    if layer.bias is not None:
        spec.bias = _plain(layer.bias)


def _plain(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.detach().float().cpu().numpy())


def _describe(theirs: Any, ours: Any, names: list[str], tokenizer: Codec, end: int | None) -> None:
    """What the specification's own config says: special tokens by name, and what a norm adds to its variance."""
    theirs.eos_token = names[end if end is not None else 0]
    theirs.bos_token = names[tokenizer.start] if tokenizer.start is not None else theirs.eos_token
    theirs.unk_token = names[tokenizer.unknown] if tokenizer.unknown is not None else theirs.eos_token
    theirs.layer_norm_epsilon = ours.norm.epsilon


TRANSLATOR = Engine("Translator", "translate", _translator)
GENERATOR = Engine("Generator", "generate", _gpt)

"""Parts of headway's models as CTranslate2's specifications hold them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.errors import InputError, refuse
from headway.extras import wanted
from headway.folder import Loaded
from headway.models import parts
from headway.nn.norm import OneRMSNorm
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


def activation(part: parts.FeedForward) -> dict[str, Any]:
    """Which non-linearity a feed-forward network has, and whether it is a gate."""
    kinds = wanted("ctranslate2.specs.common_spec", "ctranslate2").Activation
    names = {"silu": kinds.SWISH, "gelu": kinds.GELU, "gelu-tanh": kinds.GELUTanh, "relu": kinds.RELU}
    if isinstance(part, parts.Gated):
        return {"activation": names[part.activation], "ffn_glu": True}
    tanh = isinstance(part, parts.Gelu) and part.approximate == "tanh"
    return {"activation": names["gelu-tanh" if tanh else part.name]}


def is_pre_norm(norm: parts.Norm) -> bool:
    """Whether norms stand before the sublayers, or outside of the sums; the format has no other placement."""
    known = type(norm) in (parts.PreNorm, parts.PostNorm, parts.PreRmsNorm, parts.PostRmsNorm)
    refuse(not known, f"headway writes no norms of this kind for CTranslate2: model.norm={norm.name}")
    return isinstance(norm, parts.PreNorm)


def added_positions(position: Position, length: int, width: int) -> np.ndarray:
    """A row for each place, to be added; what turns queries or adds to scores is no such table."""
    kind = type(position)
    if kind.rotate is not Position.rotate or kind.bias is not Position.bias:
        raise InputError(
            f"headway writes only positions that are added for CTranslate2, not model.position={kind.__name__}"
        )
    if isinstance(position, Sinusoidal):
        places = torch.arange(position.first, position.first + length)
        return plain(position.formula(places, width, position.base).float())
    with torch.no_grad():
        first = next(position.parameters(), torch.zeros(0))
        return plain(position.add(torch.zeros(1, length, width, dtype=first.dtype))[0])


def feed_forward(spec: Any, part: Any, factor: float = 1.0) -> None:
    """factor · f(x)."""
    if hasattr(spec, "linear_0_noact"):
        half = part.expand.out_features // 2
        for into, rows in ((spec.linear_0, slice(half)), (spec.linear_0_noact, slice(half, None))):
            into.weight = plain(part.expand.weight[rows])
            if part.expand.bias is not None:
                into.bias = plain(part.expand.bias[rows])
    else:
        linear(spec.linear_0, part.expand)
    linear(spec.linear_1, part.contract, factor)


def norm(part: Any) -> Any:
    """Its specification, filled."""
    specs = wanted("ctranslate2.specs.common_spec", "ctranslate2")
    if not isinstance(part, nn.LayerNorm | nn.RMSNorm):
        raise InputError(f"headway writes layer norms for CTranslate2, not {type(part).__name__}: model.norm")
    spec = specs.LayerNormSpec(rms_norm=isinstance(part, nn.RMSNorm))
    spec.gamma = plain(1 + part.weight if isinstance(part, OneRMSNorm) else part.weight)
    if isinstance(part, nn.LayerNorm):
        spec.beta = np.zeros_like(spec.gamma) if part.bias is None else plain(part.bias)
    return spec


def linear(spec: Any, layer: Any, factor: float = 1.0) -> None:
    spec.weight = plain(layer.weight * factor)
    if layer.bias is not None:
        spec.bias = plain(layer.bias * factor)


def plain(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.detach().float().cpu().numpy())


def describe(theirs: Any, epsilon: float, names: list[str], tokenizer: Codec, end: int | None) -> None:
    """What the specification's own config says: special tokens by name, and what a norm adds to its variance."""
    theirs.eos_token = names[end if end is not None else 0]
    theirs.bos_token = names[tokenizer.start] if tokenizer.start is not None else theirs.eos_token
    theirs.unk_token = names[tokenizer.unknown] if tokenizer.unknown is not None else theirs.eos_token
    theirs.layer_norm_epsilon = epsilon

"""Blocks in plain float64 matrix products, from the weights by their names: an oracle without any of headway's parts.

B batch, T target length, S source length, H heads, D width, K head width.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Weights = dict[str, np.ndarray]
Seen = dict[str, np.ndarray]
erf = np.vectorize(math.erf)


def weights_of(model: Any) -> Weights:
    """Every weight under every name that it has."""
    named = model.named_parameters(remove_duplicate=False)
    return {name: weight.detach().double().numpy() for name, weight in named}


def linear(w: Weights, name: str, x: np.ndarray) -> np.ndarray:
    y = x @ w[f"{name}.weight"].T
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def layer_norm(w: Weights, name: str, x: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    y = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * w[f"{name}.weight"]
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def sinusoids(length: int, width: int) -> np.ndarray:
    table = np.empty((length, width))
    for p in range(length):
        for i in range(0, width, 2):
            angle = p / 10_000 ** (i / width)
            table[p, i], table[p, i + 1] = math.sin(angle), math.cos(angle)
    return table


def heads_apart(x_BTD: np.ndarray, heads: int) -> np.ndarray:
    rows, length, width = x_BTD.shape
    return x_BTD.reshape(rows, length, heads, width // heads).transpose(0, 2, 1, 3)


def attention(
    w: Weights, name: str, x_BTD: np.ndarray, heads: int, visible_BTS: np.ndarray, *,
    source_BSD: np.ndarray | None = None, bias_HTS: np.ndarray | float = 0.0,
) -> tuple[np.ndarray, Seen]:  # fmt: skip
    """What it gives out, and all that is seen on the way."""
    if source_BSD is None:
        q, k, v = np.split(linear(w, f"{name}.qkv", x_BTD), 3, axis=-1)
    else:
        q = linear(w, f"{name}.query", x_BTD)
        k, v = np.split(linear(w, f"{name}.key_value", source_BSD), 2, axis=-1)
    q, k, v = (heads_apart(part, heads) for part in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1]) + bias_HTS
    weights = softmax(np.where(visible_BTS[:, None], scores, -1e30))
    mixed = weights @ v
    rows, _, length, _ = mixed.shape
    output = linear(w, f"{name}.output", mixed.transpose(0, 2, 1, 3).reshape(rows, length, -1))
    seen = {
        "queries": q, "keys": k, "values": v, "scores": scores, "weights": weights, "mixed": mixed, "output": output,
        "mask": visible_BTS,
    }  # fmt: skip
    return output, seen


def feed_forward(w: Weights, name: str, x: np.ndarray, activation: Any) -> np.ndarray:
    return linear(w, f"{name}.contract", activation(linear(w, f"{name}.expand", x)))


def collect(into: Seen, name: str, seen: Seen) -> None:
    into.update({f"{name}.{what}": values for what, values in seen.items()})

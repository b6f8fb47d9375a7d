"""Every part that headway.nn exports, made alone and called right away: initialised, seeded, finite."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from headway import nn
from headway.nn.position import Position
from headway.nn.view import View

WIDTH, HEADS, LENGTH = 16, 4, 5
Made = Callable[[], torch.nn.Module]


def vectors(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def X() -> torch.Tensor:
    return vectors(2, LENGTH, WIDTH)


IDS = torch.tensor([[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]])


def scene(**more: Any) -> nn.Scene:
    return nn.Scene(LENGTH, LENGTH, torch.device("cpu"), **more)


def causal() -> View:
    return nn.Causal().view(scene())


def norm() -> torch.nn.Module:
    return torch.nn.LayerNorm(WIDTH)


def attention() -> nn.SelfAttention:
    return nn.SelfAttention(WIDTH, HEADS)


def mlp() -> nn.MLP:
    return nn.MLP(WIDTH, 32)


def heads() -> torch.Tensor:
    return vectors(2, HEADS, LENGTH, WIDTH // HEADS)


def biased(part: Position, **more: Any) -> torch.Tensor:
    return part.bias(heads(), scene(**more))


def table() -> torch.nn.Embedding:
    return nn.token_table(9, WIDTH)


def cross(part: nn.CrossAttention) -> torch.Tensor:
    return part(X(), part.remember(vectors(2, 7, WIDTH)))


def stack() -> nn.Stack:
    return nn.Stack(2, norm(), attention, mlp, nn.pre_norm(norm, 0.0))


def recurrent(part: nn.RecurrentStack) -> torch.Tensor:
    return part(X(), part.start(2, X()))[0]


# How to make each part, and a first call.
PARTS: dict[str, tuple[Made, Callable[[Any], Any]]] = {
    "SelfAttention": (attention, lambda part: part(X())),
    "CrossAttention": (lambda: nn.CrossAttention(WIDTH, HEADS), cross),
    "NormedSelfAttention": (
        lambda: nn.NormedSelfAttention(WIDTH, HEADS, lambda h, k: nn.PerHead(h, torch.nn.LayerNorm(k))),
        lambda part: part(X(), causal()),
    ),
    "PerHead": (lambda: nn.PerHead(HEADS, torch.nn.LayerNorm(WIDTH // HEADS)), lambda part: part(X())),
    "HeadsLayerNorm": (lambda: nn.HeadsLayerNorm(HEADS, 4, 1e-5), lambda part: part(vectors(2, LENGTH, HEADS, 4))),
    "DisentangledAttention": (
        lambda: nn.DisentangledAttention(WIDTH, HEADS, own_maps=True),
        lambda part: part(X(), nn.Padding().view(scene()).placed(nn.DistanceVectors(WIDTH, 8, None))),
    ),
    "DistanceVectors": (lambda: nn.DistanceVectors(WIDTH, 8, 16), lambda part: part.vectors()),
    "RunningMean": (nn.RunningMean, lambda part: part(X(), causal())),
    "Additive": (lambda: nn.Additive(4, 4, 8), lambda part: part(heads(), heads())),
    "Multiplicative": (lambda: nn.Multiplicative(4, 4), lambda part: part(heads(), heads())),
    "MLP": (mlp, lambda part: part(X())),
    "GatedMLP": (lambda: nn.GatedMLP(WIDTH, 32), lambda part: part(X())),
    "TanhLayer": (lambda: nn.TanhLayer(WIDTH, 8), lambda part: part(X())),
    "MapLayer": (lambda: nn.MapLayer(WIDTH, nn.gelu), lambda part: part(X())),
    "Experts": (lambda: nn.Experts(WIDTH, 8, 4, 2), lambda part: part(X())),
    "SharedExperts": (
        lambda: nn.SharedExperts(WIDTH, 8, 4, 2, True, torch.nn.functional.silu, 8), lambda part: part(X())
    ),
    "OneRMSNorm": (lambda: nn.OneRMSNorm(WIDTH), lambda part: part(X())),
    "BatchNorm": (lambda: nn.BatchNorm(WIDTH), lambda part: part(X())),
    "Position": (nn.Position, lambda part: part.add(X())),
    "Sinusoidal": (lambda: nn.Sinusoidal(WIDTH), lambda part: part.add(X())),
    "Learned": (lambda: nn.Learned(WIDTH, 9), lambda part: part.add(X())),
    "Rotary": (lambda: nn.Rotary(4), lambda part: part.rotate(heads(), heads())[0]),
    "PartialRotary": (lambda: nn.PartialRotary(2), lambda part: part.rotate(heads(), heads())[0]),
    "LinearBias": (lambda: nn.LinearBias(HEADS), biased),
    "KeyBias": (lambda: nn.KeyBias(HEADS), biased),
    "RelativeBias": (lambda: nn.RelativeBias(HEADS), biased),
    "RelationBias": (
        lambda: nn.RelationBias(HEADS, "far", 8),
        lambda part: biased(part, relations={"far": torch.arange(50).view(2, 5, 5) % 8}),
    ),
    "FeatureBias": (
        lambda: nn.FeatureBias(HEADS, "far", 3), lambda part: biased(part, relations={"far": vectors(2, 5, 5, 3)})
    ),
    "Residual": (lambda: nn.Residual(before=norm()), lambda part: part(X(), torch.tanh)),
    "Bare": (nn.Bare, lambda part: part(X(), torch.tanh)),
    "Block": (lambda: nn.Block(attention(), mlp(), nn.pre_norm(norm, 0.0)), lambda part: part(X(), causal())),
    "ParallelBlock": (lambda: nn.ParallelBlock(attention(), mlp(), norm), lambda part: part(X(), causal())),
    "Stack": (stack, lambda part: part.encode(X())),
    "BlockStack": (lambda: nn.BlockStack(stack().layers, norm()), lambda part: part.encode(X())),
    "RNNCell": (lambda: nn.RNNCell(WIDTH, 8), lambda part: nn.RecurrentLayer(part)(X())[0]),
    "LSTMCell": (lambda: nn.LSTMCell(WIDTH, 8), lambda part: nn.RecurrentLayer(part)(X())[0]),
    "GRUCell": (lambda: nn.GRUCell(WIDTH, 8), lambda part: nn.RecurrentLayer(part)(X())[0]),
    "RecurrentLayer": (lambda: nn.RecurrentLayer(nn.LSTMCell(WIDTH, 8)), lambda part: part(X())[0]),
    "RecurrentStack": (
        lambda: nn.RecurrentStack([nn.RecurrentLayer(nn.GRUCell(WIDTH, 8))], *[torch.nn.Identity()] * 3, learned=True),
        recurrent,
    ),
    "SelectiveStates": (
        lambda: nn.SelectiveStates(WIDTH, 32, 4, 3, 2), lambda part: part(X(), part.start(2, X()))
    ),
    "StateSpaceBlock": (
        lambda: nn.StateSpaceBlock(nn.SelectiveStates(WIDTH, 32, 4, 3, 2), norm()),
        lambda part: part(X(), part.mix.start(2, X())),
    ),
    "TokenEmbedding": (lambda: nn.TokenEmbedding(table(), nn.Sinusoidal(WIDTH), 0.1), lambda part: part(IDS)),
    "TypedEmbedding": (
        lambda: nn.TypedEmbedding(table(), nn.Learned(WIDTH, 9), 2, norm(), 0.1), lambda part: part(IDS)
    ),
    "Head": (lambda: nn.Head(WIDTH, 9), lambda part: part(X())),
    "JoinedHead": (lambda: nn.JoinedHead(table(), 2), lambda part: part(vectors(2, LENGTH, WIDTH + 2))),
    "PatchEmbedding": (
        lambda: nn.PatchEmbedding(3, 4, WIDTH, nn.Learned(WIDTH, 9), 0.1), lambda part: part(vectors(2, 3, 8, 8))
    ),
    "OverlappingEmbedding": (
        lambda: nn.OverlappingEmbedding(3, 4, 2, WIDTH, nn.Learned(WIDTH, 10), 0.1),
        lambda part: part(vectors(2, 3, 8, 8)),
    ),
    "ConvolutionalEmbedding": (
        lambda: nn.ConvolutionalEmbedding(3, 2, WIDTH, nn.Learned(WIDTH, 9), 0.1),
        lambda part: part(vectors(2, 3, 8, 8)),
    ),
    "SinusoidalGrid": (lambda: nn.SinusoidalGrid(WIDTH, 1, LENGTH), lambda part: part.add(X())),
    "LayerScale": (lambda: nn.LayerScale(WIDTH, 0.1), lambda part: part(X())),
    "StochasticDepth": (lambda: nn.StochasticDepth(0.01), lambda part: part(X())),
    "AttentionPooling": (lambda: nn.AttentionPooling(WIDTH), lambda part: part(X())),
    "FirstToken": (lambda: nn.FirstToken(WIDTH), lambda part: part(X())),
    "Dropout": (lambda: nn.Dropout(0.5), lambda part: part(X())),
    "LockedDropout": (lambda: nn.LockedDropout(0.5), lambda part: part(X())),
    "WordDropout": (lambda: nn.WordDropout(0.1, 9), lambda part: part(X(), IDS)),
}  # fmt: skip
# Nothing of these is drawn: norms begin as no gain, and some have no weights at all.
UNDRAWN = {
    "PerHead", "HeadsLayerNorm", "RunningMean", "OneRMSNorm", "BatchNorm", "Position", "Sinusoidal", "Rotary",
    "PartialRotary", "LinearBias", "KeyBias", "Residual", "Bare", "Dropout", "LockedDropout", "WordDropout",
    "SinusoidalGrid", "LayerScale", "StochasticDepth",
}  # fmt: skip
every_part = pytest.mark.parametrize("name", PARTS)


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Memory that torch leaves uninitialised is full of NaN."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory and torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(before)


def made(name: str, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return PARTS[name][0]()


def test_every_exported_part_is_tested() -> None:
    exported = {name for name in nn.__all__ if inspect.isclass(kind := getattr(nn, name))
                and issubclass(kind, torch.nn.Module)}  # fmt: skip
    assert exported == PARTS.keys() and len(set(nn.__all__)) == len(nn.__all__)


@every_part
def test_a_part_made_alone_is_initialised_and_answers(name: str, poisoned: None) -> None:
    part = made(name, 0)
    for key, tensor in part.state_dict().items():
        assert torch.isfinite(tensor).all(), key
        if tensor.dim() >= 2 and name not in ("JoinedHead", "HeadsLayerNorm"):
            assert tensor.float().std() > 1e-3, key
    answer = PARTS[name][1](part)
    assert torch.isfinite(answer).all() and answer.std() > 1e-3


@every_part
def test_the_seed_decides_the_weights(name: str) -> None:
    first, same, other = (made(name, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[key], same[key]) for key in first)
    drawn = any(not torch.equal(first[key], other[key]) for key in first)
    assert drawn == (name not in UNDRAWN)

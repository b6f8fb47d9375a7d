"""The position-wise network of a block. D width, F inner width."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.fast.gelu import fused_gelu, takes
from headway.nn.dropout import Dropout

Activation = Callable[[Tensor], Tensor]


def gelu(x: Tensor) -> Tensor:
    """x·Φ(x), Φ the distribution function of the normal distribution (Hendrycks and Gimpel 2016): by a kernel where
    the tensor is so large that reading and writing it counts."""
    return fused_gelu(x) if takes(x) else F.gelu(x)


def _linear(width: int, to: int, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(width, to, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class MLP(nn.Module):
    """f(xW₁ + b₁)W₂ + b₂, with f = max(0, ·) (Vaswani et al. 2017, eq. 2) or GELU."""

    def __init__(
        self, width: int, inner: int, activation: Activation = F.relu, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.expand, self.contract = _linear(width, inner, bias), _linear(inner, width, bias)
        self.activation, self.dropout = activation, Dropout(dropout)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.contract(self.dropout(self.activation(self.expand(x_BTD))))


class TanhLayer(nn.Module):
    """tanh(xW + b): the hidden layer of the first neural language models (Bengio et al. 2003)."""

    def __init__(self, width: int, to: int) -> None:
        super().__init__()
        self.map = _linear(width, to)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return torch.tanh(self.map(x_BTD))


class BoundedLinear(nn.Linear):
    """xWᵀ + b, where a row of W that is longer than `bound` counts as one of that length (Hinton et al. 2012). 0: no
    bound."""

    def __init__(self, width: int, to: int, bound: float = 0.0) -> None:
        super().__init__(width, to)
        self.bound = bound

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.renorm(2, 0, self.bound) if self.bound else self.weight, self.bias)


class MapLayer(nn.Module):
    """norm(f(xW + b)): the hidden layer of a head (Devlin et al. 2019, as released)."""

    def __init__(self, width: int, activation: Activation, norm: nn.Module | None = None, bias: bool = True) -> None:
        super().__init__()
        self.map, self.activation, self.norm = _linear(width, width, bias), activation, norm or nn.Identity()

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.norm(self.activation(self.map(x_BTD)))


class GatedMLP(nn.Module):
    """(f(xW) ⊙ xV)W₂, as a rule without biases; f = SiLU gives SwiGLU (Shazeer 2020, eq. 6)."""

    def __init__(
        self, width: int, inner: int, activation: Activation = F.silu, dropout: float = 0.0, bias: bool = False
    ) -> None:
        super().__init__()
        # Gate and value share one product.
        self.expand, self.contract = _linear(width, 2 * inner, bias), _linear(inner, width, bias)
        self.activation, self.dropout = activation, Dropout(dropout)

    def forward(self, x_BTD: Tensor) -> Tensor:
        gate_BTF, value_BTF = self.expand(x_BTD).chunk(2, dim=-1)
        return self.contract(self.dropout(self.activation(gate_BTF) * value_BTF))

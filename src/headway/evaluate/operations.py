"""Operations of any model, counted from its own parts while it reads shapes without numbers.

A rule says for one kind of part what a call does beside the parts inside it. A kind without a rule is named, never
taken for free. To teach a new kind, give it a rule here, or list it under `ONLY_PARTS`.

B batch, T target length, S source length, H heads, D width, K head width, F inner width.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any

from torch import Tensor, nn

from headway.models.bert import Bert
from headway.models.encoder_decoder import EncoderDecoder
from headway.models.gpt import GPT
from headway.models.llama import Llama
from headway.models.neural_ngram import NeuralNGram
from headway.models.ngram import NGram, Table
from headway.models.recurrent import Recurrent
from headway.models.rung import Rung
from headway.models.skip_gram import SkipGram
from headway.nn import attention, bag, block, dropout, embedding, feed_forward, position, recurrent, residual, text_head


@dataclass(frozen=True)
class Work:
    """What one call of a part does itself.

    products: multiplications of matrix products, each with its addition (two operations); `pairs` of them are between
    two positions. elements: numbers that pass through a norm, a softmax or a non-linearity. steps: products that wait
    for one another. span: how many positions further one hop carries (0: positions stay apart), a multiple of `grid`;
    `hops` of them can follow one another.
    """

    products: int = 0
    pairs: int = 0
    elements: int = 0
    steps: int = 0
    span: int = 0
    grid: int = 1
    hops: int = 1


Rule = Callable[[Any, tuple[Any, ...], Any], Work]
RULES: dict[type[nn.Module], Rule] = {}
WHOLE: set[type[nn.Module]] = set()  # kinds whose rule counts the parts inside them too
# Kinds whose products are all made by parts inside them: lookups, sums and copies are no products.
ONLY_PARTS: tuple[type[nn.Module], ...] = (
    nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.Sequential, nn.Identity, nn.Dropout, nn.ConstantPad1d,
    nn.Embedding, position.Position, embedding.TokenEmbedding, embedding.AppendOne, embedding.TypedEmbedding,
    dropout.Dropout, residual.Residual, residual.Bare, block.Block, block.DecoderBlock, block.Stack, embedding.Scale,
    recurrent.RecurrentStack, text_head.FirstToken, text_head.TextLabels, text_head.TokenLabels,
    text_head.WordsAndPair, text_head.HiddenAndFirst, Bert, GPT, Llama, Recurrent, Rung, EncoderDecoder, Table,
)  # fmt: skip
WITH_WEIGHTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.RNNBase, nn.RNNCellBase)


def counts(*kinds: type[nn.Module], whole: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule: (part, the arguments of the call, its result) → work."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, rule))
        WHOLE.update(kinds if whole else ())
        return rule

    return register


def rule_of(part: nn.Module) -> Rule | None:
    """That of its kind, or of the nearest kind that it is derived from."""
    for kind in type(part).__mro__:
        if kind in RULES:
            return RULES[kind]
        if kind in ONLY_PARTS:
            return nothing
    return None


def nothing(part: nn.Module, given: tuple[Any, ...], result: Any) -> Work:
    return Work()


@counts(nn.Linear)
def linear(part: nn.Linear, given: tuple[Any, ...], result: Tensor) -> Work:
    """xWᵀ: every result is a sum over the width."""
    return Work(result.numel() * part.in_features, steps=1)


@counts(embedding.JoinedHead)
def joined_head(part: embedding.JoinedHead, given: tuple[Any, ...], result: Tensor) -> Work:
    return Work(result.numel() * given[0].shape[-1], steps=1)


@counts(nn.Conv1d, nn.Conv2d)
def convolution(part: nn.Conv1d | nn.Conv2d, given: tuple[Any, ...], result: Tensor) -> Work:
    """Every result is a sum over the kernel and its channels."""
    seen = part.in_channels // part.groups * math.prod(part.kernel_size)
    return Work(result.numel() * seen, steps=1, span=_looks_back(part), grid=part.dilation[-1])


def _looks_back(part: nn.Conv1d | nn.Conv2d) -> int:
    """How far before itself a position sees: as far as the padding on its left; what is not padded here is taken to be
    padded outside, on the left alone (a causal convolution)."""
    window = part.dilation[-1] * (part.kernel_size[-1] - 1)
    if part.padding == "same":
        return window // 2
    padding = 0 if isinstance(part.padding, str) else part.padding[-1]
    return min(window, padding) if padding else window


@counts(nn.LayerNorm, nn.RMSNorm, nn.BatchNorm1d, nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softmax)
def each_element(part: nn.Module, given: tuple[Any, ...], result: Tensor) -> Work:
    return Work(elements=result.numel())


@counts(feed_forward.MLP, feed_forward.GatedMLP)
def non_linearity(part: Any, given: tuple[Any, ...], result: Tensor) -> Work:
    inner = part.contract.in_features
    return Work(elements=result.numel() // part.contract.out_features * inner)


@counts(feed_forward.TanhLayer)
def tanh_layer(part: feed_forward.TanhLayer, given: tuple[Any, ...], result: Tensor) -> Work:
    return Work(elements=result.numel())


@counts(text_head.WordHead)
def word_head(part: text_head.WordHead, given: tuple[Any, ...], result: Tensor) -> Work:
    return Work(elements=result.numel() // part.output.out_features * part.map.out_features)


@counts(attention.SelfAttention)
def self_attention(part: attention.SelfAttention, given: tuple[Any, ...], result: Tensor) -> Work:
    x_BTD, view = given[:2]
    return _core(part, x_BTD, x_BTD.shape[1] if view.scene is None else view.scene.keys)


@counts(attention.CrossAttention)
def cross_attention(part: attention.CrossAttention, given: tuple[Any, ...], result: Tensor) -> Work:
    x_RTD, memory = given[:2]
    return _core(part, x_RTD, memory.k_BHSK.shape[2])


def _core(part: attention.SelfAttention | attention.CrossAttention, x_BTD: Tensor, keys: int) -> Work:
    """QKᵀ and the mix of values, each T·S·H·K, over all keys: a mask hides scores, it does not spare them."""
    batch, queries, _ = x_BTD.shape
    scores = batch * queries * keys * part.heads
    products = 2 * scores * part.head_width
    return Work(products, products, scores, steps=2, span=keys)


@counts(attention.Multiplicative)
def multiplicative(part: attention.Multiplicative, given: tuple[Any, ...], result_BHTS: Tensor) -> Work:
    products = result_BHTS.numel() * given[1].shape[-1]
    return Work(products, products, steps=1)


@counts(attention.Additive)
def additive(part: attention.Additive, given: tuple[Any, ...], result_BHTS: Tensor) -> Work:
    return Work(elements=result_BHTS.numel() * part.v.in_features)


GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}


@counts(nn.RNNBase)
def recurrence(part: nn.RNNBase, given: tuple[Any, ...], result: Any) -> Work:
    """[x_t, h_(t−1)]W for each gate, step after step; two directions run side by side, layers one after the other."""
    x = given[0]
    tokens, steps = math.prod(x.shape[:-1]), x.shape[1 if part.batch_first and x.dim() == 3 else 0]
    ways, gates = 2 if part.bidirectional else 1, GATES[part.mode]
    told = part.proj_size or part.hidden_size  # what a step hands on
    widths = [part.input_size] + [told * ways] * (part.num_layers - 1)
    products = sum(gates * part.hidden_size * (width + told) + part.proj_size * part.hidden_size for width in widths)
    elements = tokens * ways * part.num_layers * gates * part.hidden_size
    steps_in_all = steps * part.num_layers
    return Work(tokens * ways * products, elements=elements, steps=steps_in_all, span=1, hops=steps)


@counts(nn.RNNCell, nn.GRUCell, nn.LSTMCell)
def cell(part: nn.RNNCellBase, given: tuple[Any, ...], result: Any) -> Work:
    rows, gates = given[0].numel() // part.input_size, part.weight_hh.shape[0] // part.hidden_size
    elements = rows * gates * part.hidden_size
    return Work(elements * (part.input_size + part.hidden_size), elements=elements, steps=1, span=1)


@counts(recurrent.RecurrentLayer, whole=True)
def recurrent_layer(part: recurrent.RecurrentLayer, given: tuple[Any, ...], result: Any) -> Work:
    """As `recurrence`, for a cell whose weights a fused kernel takes from it."""
    batch, length, width = given[0].shape
    elements = batch * length * len(part.cell.gates) * part.cell.width
    return Work(elements * (width + part.cell.width), elements=elements, steps=length, span=1, hops=length)


@counts(bag.RunningMean)
def running_mean(part: bag.RunningMean, given: tuple[Any, ...], result: Tensor) -> Work:
    return Work(elements=result.numel(), span=given[1].scene.keys)


@counts(NGram, NeuralNGram)
def last_words(part: NGram | NeuralNGram, given: tuple[Any, ...], result: Any) -> Work:
    """A word is foretold from the `order` − 1 before it, the latest of which stands where the model is."""
    return Work(span=part.config.order - 2)


@counts(SkipGram)
def skip_gram(part: SkipGram, given: tuple[Any, ...], result: Tensor) -> Work:
    """A word's vector with those of its negatives is a product of matrices; with its neighbour's it is none."""
    noise_NK = given[2]
    return Work(noise_NK.numel() * part.config.width, elements=noise_NK.numel() + len(noise_NK), steps=1)


@dataclass(frozen=True)
class Call:
    """One call of a part: where it stands in the model, and what it did."""

    path: str
    work: Work


@dataclass
class Count:
    """All calls of one pass. `unknown` names the parts whose work could not be told, and why."""

    calls: list[Call] = field(default_factory=list)
    unknown: tuple[str, ...] = ()

    @property
    def products(self) -> int:
        return sum(call.work.products for call in self.calls)

    @property
    def elements(self) -> int:
        return sum(call.work.elements for call in self.calls)

    @property
    def steps(self) -> int:
        """Products that wait for one another, when the parts are called one after the other."""
        return sum(call.work.steps for call in self.calls)

    @property
    def pairs(self) -> int:
        """Products between two positions: those that grow with the square of the length."""
        return sum(call.work.pairs for call in self.calls)

    def path(self, length: int) -> int | None:
        """Hops on the shortest way between the two of so many positions that are hardest to join; None: for some there
        is no way."""
        left, hops = length - 1, 0
        for work in sorted((call.work for call in self.calls if call.work.span), key=lambda work: -work.span):
            if left == 0:
                break
            taken = min(work.hops, -(-left // work.span))
            # Where a hop is a multiple of the grid, less than one mesh may be left to go.
            hops, left = hops + taken, max(left - taken * work.span, work.grid - 1)
        return None if left else hops

    def parts(self) -> dict[str, tuple[int, Work]]:
        """Equal parts of all layers together: how many calls, and the sum of their work."""
        found: dict[str, tuple[int, Work]] = {}
        for call in self.calls:
            if call.work == Work():
                continue
            name = re.sub(r"\.layers\.\d+(?=\.)|\.\d+(?=\.|$)", "", call.path)
            times, sum_ = found.get(name, (0, Work()))
            fields = ("products", "pairs", "elements", "steps")
            found[name] = (times + 1, Work(*(getattr(sum_, key) + getattr(call.work, key) for key in fields)))
        return found


@contextmanager
def shapes_only(model: nn.Module) -> Iterator[None]:
    """Recurrences give results of the right shape without their steps, of which there may be thousands."""
    recurrences = [part for part in model.modules() if isinstance(part, nn.RNNBase | recurrent.RecurrentLayer)]
    for part in recurrences:
        shapes: Any = _shapes if isinstance(part, nn.RNNBase) else _layer_shapes
        part.forward = partial(shapes, part)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for part in recurrences:
            del part.forward


def _shapes(part: nn.RNNBase, x: Tensor, first: Any = None) -> tuple[Tensor, Any]:
    ways, told = 2 if part.bidirectional else 1, part.proj_size or part.hidden_size
    rows = x.shape[0 if part.batch_first else 1 : -1][:1] if x.dim() == 3 else ()
    last = x.new_empty(part.num_layers * ways, *rows, told)
    cells = x.new_empty(part.num_layers * ways, *rows, part.hidden_size)
    return x.new_empty(*x.shape[:-1], ways * told), (last, cells) if part.mode == "LSTM" else last


def _layer_shapes(part: recurrent.RecurrentLayer, x_BTD: Tensor, state: Any, *_: Any) -> tuple[Tensor, Any]:
    return x_BTD.new_empty(*x_BTD.shape[:-1], part.cell.width), state


@contextmanager
def counting(model: nn.Module) -> Iterator[Count]:
    """Count what is called of `model` inside; `unknown` is there at the end."""
    count = Count()
    called: set[nn.Module] = set()

    def note(
        path: str, rule: Rule, part: nn.Module, given: tuple[Any, ...], named: dict[str, Any], result: Any
    ) -> None:
        called.add(part)
        in_order = signature(type(part).forward).bind(part, *given, **named).args[1:]
        count.calls.append(Call(path, rule(part, in_order, result)))

    parts: dict[nn.Module, str] = {}
    for path, part in _apart(model):
        parts.setdefault(part, path)  # one that stands in two places is one part
    unknown = []
    with ExitStack() as stack:
        for part, path in parts.items():
            rule = rule_of(part)
            if rule is None:
                unknown.append(f"{path or 'the model'} ({type(part).__name__}): there is no rule for it")
            else:
                hook = part.register_forward_hook(partial(note, path, rule), with_kwargs=True)
                stack.callback(hook.remove)
        yield count
    # Weights that somebody multiplies with behind the part's back.
    unknown += [
        f"{path} ({type(part).__name__}): it was not called"
        for part, path in parts.items()
        if isinstance(part, WITH_WEIGHTS) and part not in called
    ]
    count.unknown = tuple(unknown)


def _apart(model: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Every part that is to be counted for itself, where it stands."""
    yield path, model
    if type(model) not in WHOLE:
        for name, part in model.named_children():
            yield from _apart(part, f"{path}.{name}" if path else name)


def count(model: nn.Module, *inputs: Any) -> Count:
    """One forward pass. On the `meta` device nothing is computed, so any size can be asked for."""
    with counting(model) as found, shapes_only(model):
        model(*inputs)
    return found

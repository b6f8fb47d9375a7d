"""Ablation from outside: a silenced head, and a stack that ends early. The parts themselves have no code for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from headway.errors import refuse
from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Stack
from headway.nn.tap import IN_LAYER, named_parts

Attends = SelfAttention | CrossAttention
Site = tuple[str, int]  # `decoder.cross`, and the layer


def attending(model: nn.Module) -> dict[Site, Attends]:
    """The attention parts of a model by where they stand, in the order of its forward. A block that stands for
    several layers is there once, by the number of the first."""
    found: dict[Site, Attends] = {}
    for path, part in named_parts(model):
        place = IN_LAYER.match(path)
        if place and isinstance(part, SelfAttention | CrossAttention):
            found[f"{place[1]}{place[3]}", int(place[2])] = part
    refuse(not found, f"this model ({type(model).__name__}) has no heads to silence: it has no attention")
    return dict(sorted(found.items(), key=lambda one: (not one[0][0].startswith("encoder"), *one[0])))


@contextmanager
def silenced(part: Attends, head: int) -> Iterator[None]:
    """Concat(head₁ … 0 … head_H)Wᴼ: what this head adds to the sum is left out (Michel et al. 2019, 2.2)."""
    refuse(not 0 <= head < part.heads, f"there is no head {head}: this attention has {part.heads}, counted from 0")
    own = slice(head * part.head_width, (head + 1) * part.head_width)

    def without(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        mixed_BTD = given[0].clone()
        mixed_BTD[..., own] = 0
        return mixed_BTD, *given[1:]

    with part.output.register_forward_pre_hook(without):
        yield


@contextmanager
def ended(stack: Stack, layers: int) -> Iterator[None]:
    """The stack's first `layers` layers alone: the output of the later ones is dropped, and what follows the
    stack sees the sum of the earlier ones. For one pass; each layer counts, also of a block that stands for several."""
    passed = 0

    def skip(_: nn.Module, given: tuple[Any, ...], result: Tensor) -> Tensor | None:
        nonlocal passed
        passed += 1
        return None if passed <= layers else given[0]

    with ExitStack() as hooks:
        for block in stack.layers:
            hooks.enter_context(block.register_forward_hook(skip))
        yield


def last_stack(model: nn.Module) -> tuple[str, Stack]:
    """The stack that a model's answer is made of, and its name."""
    stacks = {path: part for path, part in named_parts(model) if isinstance(part, Stack)}
    refuse(not stacks, f"this model ({type(model).__name__}) is no stack of blocks: there are no layers to stop at")
    name = "decoder" if "decoder" in stacks else next(iter(stacks))
    return name, stacks[name]

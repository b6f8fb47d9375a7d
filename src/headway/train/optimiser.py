"""Optimisers over float32 masters: the only mechanism of mixed precision.

Where a model's weights are bfloat16, the optimiser works on float32 copies and writes them back; where they
are float32 already, the masters are the weights themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headway.errors import refuse
from headway.train.adadelta import Adadelta
from headway.train.parallel.ranks import ALONE, Ranks, is_sharded, local, rows_of, shard, whole


def _decayed(groups: list[dict[str, Any]], decay: float) -> list[dict[str, Any]]:
    return [group | {"weight_decay": decay * group["decays"]} for group in groups]


@dataclass(frozen=True)
class Adam:
    """Kingma and Ba 2015, with the settings of Vaswani et al. 2017, 5.3."""

    name: ClassVar[str] = "adam"
    kind: ClassVar[type[torch.optim.Adam]] = torch.optim.Adam
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9

    def build(self, groups: list[dict[str, Any]], **how: Any) -> torch.optim.Optimizer:
        return self.kind(groups, betas=(self.beta1, self.beta2), eps=self.epsilon, **how)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with weight decay apart from the gradient (Loshchilov and Hutter 2019); none on norms and biases."""

    name: ClassVar[str] = "adamw"
    kind: ClassVar[type[torch.optim.Adam]] = torch.optim.AdamW
    decay: float = 0.01

    def build(self, groups: list[dict[str, Any]], **how: Any) -> torch.optim.Optimizer:
        return super().build(_decayed(groups, self.decay), **how)


@dataclass(frozen=True)
class Sgd:
    """w ← w − rate · (g + decay · w); no decay on norms and biases."""

    name: ClassVar[str] = "sgd"
    kind: ClassVar[type[torch.optim.SGD]] = torch.optim.SGD
    decay: float = 0.0

    def build(self, groups: list[dict[str, Any]], **how: Any) -> torch.optim.Optimizer:
        how.pop("capturable")  # it always is: it counts no steps on the host
        return self.kind(_decayed(groups, self.decay), **how)


class AveragedSGD(torch.optim.SGD):
    """Averaged gradient descent: the mean of the weights over steps is better than the weights of any step.

        w ← w − rate · g,    mean ← mean + (w − mean)/n    (Polyak and Juditsky 1992)

    n counts the steps since `begin`; until then the mean is the weights themselves. `mean` and `count` of each weight
    are in the optimiser's state, saved and restored like any other. The count lives on the device, so that a captured
    step continues to count.
    """

    at_once = False  # whether the first weights are the mean's first term

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self._parts()
        super().step()
        weights, means, counts = self._parts()
        bad: Any = getattr(self, "found_inf", None)
        taken = 1.0 if bad is None else 1.0 - bad
        count = counts[0] + (counts[0] > 0) * taken
        shift = torch._foreach_sub(weights, means)
        torch._foreach_mul_(shift, taken / count.clamp(min=1))
        torch._foreach_add_(means, shift)
        for place in counts:
            place.copy_(count)

    def _parts(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Weights, their means, and how many steps each is the mean of (0: it has not begun)."""
        weights = [weight for group in self.param_groups for weight in group["params"]]
        for weight in weights:
            if "mean" not in self.state[weight]:
                self.state[weight]["mean"] = weight.detach().clone()
                self.state[weight]["count"] = torch.full((), float(self.at_once), device=weight.device)
        states = [self.state[weight] for weight in weights]
        return weights, [state["mean"] for state in states], [state["count"] for state in states]

    @property
    def begun(self) -> bool:
        return bool(self._parts()[2][0] > 0)

    def begin(self) -> None:
        """Start the mean, with the present weights as its first term."""
        weights, means, counts = self._parts()
        with torch.no_grad():
            torch._foreach_copy_(means, weights)
        for count in counts:
            count.fill_(1.0)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Inside the context the weights are their means; afterwards they are restored."""
        weights, means, _ = self._parts()
        kept = [weight.detach().clone() for weight in weights]
        with torch.no_grad():
            torch._foreach_copy_(weights, means)
            try:
                yield
            finally:
                torch._foreach_copy_(weights, kept)


@dataclass(frozen=True)
class AveragedSgd(Sgd):
    """SGD, and the mean of its weights from the time on when a score is worse than the best of those that are more than
    `wait` scores old (NT-ASGD: Merity et al. 2018, algorithm 1), or `at_once`, from the first step (their fine-tuning).
    That mean is then what is judged and kept."""

    name: ClassVar[str] = "averaged-sgd"
    kind: ClassVar[type[torch.optim.SGD]] = AveragedSGD
    wait: int = 5
    at_once: bool = False

    def build(self, groups: list[dict[str, Any]], **how: Any) -> torch.optim.Optimizer:
        made = super().build(groups, **how)
        made.at_once = self.at_once  # type: ignore[attr-defined]
        return made


BUFFERS = "buffers"  # their kind in a checkpoint
Optimiser = Adam | AdamW | Sgd | AveragedSgd | Adadelta


class Masters:
    """An optimiser with its masters. `step` clips, updates and writes back without synchronising with the host.

    Of a sharded weight it sees this process's rows only. A step whose loss or gradient is not finite anywhere
    changes nothing.
    """

    def __init__(
        self, weights: Iterable[tuple[str, nn.Parameter]], config: Optimiser, clip: float = 0.0, ranks: Ranks = ALONE,
        rates: Mapping[str, float] | None = None, buffers: Mapping[str, Tensor] | None = None,
        decays: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        """`rates`: what the rate of some weights is multiplied by, by their names (`headway.train.selection.rates_of`).
        `buffers`: what the model itself updates (a batch norm's statistics); they are saved and kept with the weights.
        `decays`: what the decay of some weights is multiplied by.
        """
        self.buffers, self.rate = dict(buffers or {}), 0.0
        every = list(weights)
        named = [(name, weight) for name, weight in every if weight.requires_grad]
        self.frozen = {name: weight for name, weight in every if not weight.requires_grad}
        self.names, self.weights = [name for name, _ in named], [weight for _, weight in named]
        self.masters = [_master(weight) for weight in self.weights]
        self.config, self.clip, self.ranks = config, clip, ranks
        self.sharded = any(is_sharded(weight) for weight in self.weights)
        refuse(not self.masters, "every weight of the model is frozen: there is nothing left to learn (engine.frozen)")
        factor_of = dict.fromkeys(self.names, 1.0) | dict(rates or {})
        decay_of = dict.fromkeys(self.names, 1.0) | dict(decays or {})
        by_kind: dict[tuple[float, bool, float], list[Tensor]] = {}
        for name, master in zip(self.names, self.masters, strict=True):
            by_kind.setdefault((factor_of[name], master.ndim < 2, decay_of[name]), []).append(master)
        self.device = device = self.masters[0].device
        captured = device.type == "cuda"

        def rate() -> Any:
            """A rate on the device can be changed under a captured graph."""
            return torch.zeros((), device=device) if captured else 0.0

        groups = [
            {"params": some, "decays": 0.0 if small else decay, "factor": factor, "lr": rate()}
            for (factor, small, decay), some in sorted(by_kind.items(), key=lambda item: item[0])
        ]
        self.optimiser = config.build(groups, lr=rate(), fused=True, capturable=captured)

    def set_rate(self, rate: float) -> None:
        self.rate = rate
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * group["factor"])
            else:
                group["lr"] = rate * group["factor"]

    def step(self, loss: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One update from the weights' gradients; returns the gradient's norm and whether the step was skipped
        (1.0 or 0.0), both still on the device."""
        self._hand_over_gradients()
        grads = [master.grad for master in self.masters if master.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads, foreach=True)
        if self.sharded:
            norm = self.ranks.reduce(norm.square()).sqrt()
        good = norm.isfinite() if loss is None else norm.isfinite() & loss.isfinite()
        bad = self.ranks.reduce((~good).to(torch.float32), "MAX")
        if self.clip > 0:
            torch.nn.utils.clip_grads_with_norm_(self.masters, self.clip, norm, foreach=True)
        # The fused kernels read this on the device and leave weights and moments alone where it is 1.
        self.optimiser.grad_scale, self.optimiser.found_inf = None, bad  # type: ignore[attr-defined]
        self.optimiser.step()
        self.write_back()
        return norm, bad

    def _hand_over_gradients(self) -> None:
        """Gradients of the weights become gradients of the masters."""
        copies = []
        for weight, master in zip(self.weights, self.masters, strict=True):
            grad = None if weight.grad is None else local(weight.grad)
            if master is weight:
                continue
            if grad is None or grad.dtype == master.dtype:
                master.grad = grad
            else:
                master.grad = torch.empty_like(master) if master.grad is None else master.grad
                copies.append((master.grad, grad))
        if copies:
            torch._foreach_copy_([to for to, _ in copies], [grad for _, grad in copies])

    @torch.no_grad()
    def write_back(self) -> None:
        """Bring the masters to the weights of another type."""
        copies = [(local(w), m) for w, m in zip(self.weights, self.masters, strict=True) if w.dtype != m.dtype]
        if copies:
            torch._foreach_copy_([w for w, _ in copies], [m for _, m in copies])

    def follow_scores(self, scores: Sequence[float]) -> bool:
        """Start averaging where the scores, higher is better, have stopped rising; returns whether it did."""
        if not isinstance(self.config, AveragedSgd) or not isinstance(self.optimiser, AveragedSGD):
            return False
        *before, last = scores
        old = before[: max(0, len(before) - self.config.wait)]
        if not old or last >= max(old) or self.optimiser.begun:
            return False
        self.optimiser.begin()
        return True

    @contextmanager
    def judged(self) -> Iterator[None]:
        """Inside the context the weights are those to validate and keep: their mean, where the optimiser has one."""
        if not isinstance(self.optimiser, AveragedSGD) or not self.optimiser.begun:
            yield
            return
        with self.optimiser.swapped():
            self.write_back()
            yield
        self.write_back()

    def named(self) -> dict[str, Tensor]:
        """The masters under their weights' names, in float32, whole; all processes must call it together, and
        only the first keeps tensors that were gathered from shards."""
        found = {}
        kept = [(name, weight, local(weight.detach())) for name, weight in self.frozen.items()]
        for name, weight, mine in [*zip(self.names, self.weights, self.masters, strict=True), *kept]:
            tensor = whole(weight, mine)
            if self.ranks.first or not self.sharded:
                found[name] = tensor.detach().to(torch.float32).contiguous()
        for name, buffer in self.buffers.items():
            found[name] = buffer.detach().to(torch.float32) if buffer.is_floating_point() else buffer.detach()
        return found

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Masters and the optimiser's own tensors, by kind and name, as they are in this process."""
        kinds: dict[str, dict[str, Tensor]] = {"weights": {}}
        for name, master in zip(self.names, self.masters, strict=True):
            kinds["weights"][name] = master.detach()
            for key, value in self.optimiser.state.get(master, {}).items():
                kinds.setdefault(f"optimiser.{key}", {})[name] = value
        return kinds | ({BUFFERS: dict(self.buffers)} if self.buffers else {})

    def shards(self) -> dict[str, dict[str, Any]]:
        """Of each sharded weight: where this process's rows begin, and the whole shape."""
        return {name: shard(w) for name, w in zip(self.names, self.weights, strict=True) if is_sharded(w)}

    @torch.no_grad()
    def resume(self, kinds: dict[str, dict[str, Tensor]]) -> None:
        """Take over a `state` whose tensors are whole; a sharded weight takes its rows."""
        for name, tensor in kinds.get(BUFFERS, {}).items():
            self.buffers[name].copy_(tensor)
        for name, weight, master in zip(self.names, self.weights, self.masters, strict=True):
            master.copy_(rows_of(weight, kinds["weights"][name]))
            for kind, named in kinds.items():
                key = kind.removeprefix("optimiser.")
                if key != kind and name in named:
                    value = named[name] if named[name].ndim == 0 else rows_of(weight, named[name])
                    # Adam counts its steps where it updates.
                    self.optimiser.state[master][key] = value.to(self.device).clone()
        self.write_back()

    def zero(self) -> None:
        for weight in self.weights:
            weight.grad = None


def _master(weight: nn.Parameter) -> Tensor:
    exact = weight.dtype in (torch.float32, torch.float64)
    if exact and not is_sharded(weight):
        return weight
    rows = local(weight.detach())
    return (rows if exact else rows.float().clone()).requires_grad_()

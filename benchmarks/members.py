"""Many small models trained at once: their weights have a leading axis, and every step is one of all of them.

Each member has its own weights, its own questions in its own order, and its own rate; what it learns is what it would
learn alone (tests/train/test_members.py). Sentences are counted once, before the first step: a memory is then a product
of weighted counts with a table, which all tables share, where looking up words would sort them at every step to add up
their gradients. On a GPU the step is captured as a graph.

M members, G groups of questions (a task each), N questions, B rows of a batch, S sentences, W words, U different
sentences, R sums of a sentence's words, V words of the vocabulary, L labels, K random numbers, C steps of a chunk.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from headway.batch import IGNORED
from headway.capture import capture
from headway.data.stories import StoryBatches, StoryStore, draws_for, noisy_times, times
from headway.nn.memory import NULL, SentenceEmbedding
from headway.train.schedule import Staircase

CHUNK = 64  # steps whose questions are brought to the device at once
ROWS = {"cpu": 64, "cuda": 128}  # questions of a member that are answered at once


@dataclass(frozen=True)
class Settings:
    """How all members are trained; `headway.recipes` has the same for one model. halve: every so many epochs. share: of
    the rate while the hops are linear. wait: validations without a lower loss that end the linear start. linear_epochs:
    instead, so many linear epochs before those of the schedule."""

    epochs: int
    halve: int
    rows: int = 32
    peak: float = 0.32
    clip: float = 1.25
    noise: float = 0.1
    linear_start: bool = True
    share: float = 0.5
    wait: int = 1
    linear_epochs: int = 0


class CountedSentences(SentenceEmbedding):
    """The same of sentences that are counted: Σⱼ wⱼ xⱼ = (Σⱼ wⱼ 1[xⱼ]) A."""

    def forward(self, bags_NRV: Tensor, times_N: Tensor | None = None) -> Tensor:
        m_ND: Tensor = self.encoding.join(bags_NRV @ self.table.weight)
        if self.times is None or times_N is None:
            return m_ND
        times_T = torch.arange(1, self.times.num_embeddings + 1, device=times_N.device)
        return m_ND + (times_N[..., None] == times_T).to(m_ND.dtype) @ self.times.weight


class Group:
    """The questions of some stores, for these members, as tensors of one shape; what a store lacks is padding."""

    def __init__(self, stores: Sequence[StoryStore], members: Members) -> None:
        self.memory = stores[0].memory
        ids_GUW, self.story_GNS = (_stacked([getattr(s, name) for s in stores]) for name in ("ids_UW", "story_NS"))
        self.bags_GURV = members.counted(ids_GUW)
        self.counts_GN = _stacked([store.counts_N for store in stores], 1)
        self.question_GN = _stacked([store.question_N for store in stores])
        self.labels_GN = _stacked([store.labels_N for store in stores], IGNORED)
        self.lengths_G = torch.tensor(list(map(len, stores)))
        for name, tensor in vars(self).items():
            if isinstance(tensor, Tensor):
                setattr(self, name, tensor.to(members.device))

    def inputs(
        self, group_M: Tensor, examples_MB: Tensor, draws_MBK: Tensor | None, noise: float
    ) -> tuple[Tensor, ...]:
        """The counted story of these questions, its times, the counted question, and the label."""
        group_M1 = group_M[:, None]
        story_MBS, counts_MB = self.story_GNS[group_M1, examples_MB], self.counts_GN[group_M1, examples_MB]
        times_MBS = times(counts_MB, story_MBS.shape[-1])
        if draws_MBK is not None:
            times_MBS = noisy_times(times_MBS, counts_MB, draws_MBK, noise, self.memory)
        story_MBSRV = self.bags_GURV[group_M1[..., None], story_MBS]
        question_MBRV = self.bags_GURV[group_M1, self.question_GN[group_M1, examples_MB]]
        return story_MBSRV, times_MBS, question_MBRV, self.labels_GN[group_M1, examples_MB]


def _stacked(tensors: Sequence[Tensor], fill: int = 0) -> Tensor:
    shape = torch.tensor([tensor.shape for tensor in tensors]).amax(0).tolist()
    found = tensors[0].new_full((len(tensors), *shape), fill)
    for place, tensor in zip(found, tensors, strict=True):
        place[tuple(map(slice, tensor.shape))] = tensor
    return found


class Members:
    """Models of one shape. group_M: whose questions each learns. labels_G: how many answers each group has; a model may
    have more."""

    def __init__(
        self, models: Sequence[nn.Module], group_M: Sequence[int], labels_G: Sequence[int], device: str
    ) -> None:
        self.device, self.count, self.model = device, len(models), copy.deepcopy(models[0]).to("meta")
        for part in self.model.modules():
            if isinstance(part, SentenceEmbedding):
                part.__class__ = CountedSentences
        weights, buffers = stack_module_state([model.to(device) for model in models])  # type: ignore[arg-type]
        self.weights = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
        self.buffers = {name: buffer.clone() for name, buffer in buffers.items()}
        self.group_M = torch.tensor(group_M, device=device)
        self.labels_M11 = torch.tensor(labels_G, device=device)[self.group_M][:, None, None]

    @property
    def linear_M(self) -> Tensor:
        return self.buffers["encoder.linear"]

    def counted(self, ids_NW: Tensor) -> Tensor:
        """The weighted counts of each sentence's words, by the models' encoding of sentences."""
        part: Any = next(part for part in self.model.modules() if isinstance(part, SentenceEmbedding))
        ids_NW = ids_NW.to(self.device)
        weights_NRW = part.encoding.weights((ids_NW != NULL).float())
        bags_NRV = weights_NRW.new_zeros(*weights_NRW.shape[:-1], part.table.num_embeddings)
        return bags_NRV.scatter_add_(-1, ids_NW[..., None, :].expand_as(weights_NRW), weights_NRW)

    def logits(self, story_MBSRV: Tensor, times_MBS: Tensor, question_MBRV: Tensor) -> Tensor:
        def one(weights: Any, buffers: Any, *inputs: Tensor) -> Tensor:
            names = ("words_BSW", "times_BS", "question_BQ")
            given = SimpleNamespace(**dict(zip(names, inputs, strict=True)))
            found: Tensor = functional_call(self.model, (weights, buffers), (given,))
            return found

        logits_MBL = vmap(one)(self.weights, self.buffers, story_MBSRV, times_MBS, question_MBRV)
        beyond_M1L = torch.arange(logits_MBL.shape[-1], device=self.device) >= self.labels_M11
        return logits_MBL.masked_fill(beyond_M1L, -math.inf)

    def loss(
        self, questions: Group, examples_MB: Tensor, draws_MBK: Tensor | None = None, noise: float = 0.0
    ) -> Tensor:
        """The mean loss of each member's questions."""
        *inputs, labels_MB = questions.inputs(self.group_M, examples_MB, draws_MBK, noise)
        return self.losses(self.logits(*inputs), labels_MB)

    def losses(self, logits_MBL: Tensor, labels_MB: Tensor) -> Tensor:
        each_N = F.cross_entropy(
            logits_MBL.flatten(0, 1), labels_MB.flatten(), ignore_index=IGNORED, reduction="none"
        )  # fmt: skip
        return each_N.view(labels_MB.shape).sum(1) / (labels_MB != IGNORED).sum(1).clamp(min=1)

    @torch.no_grad()
    def judged(self, questions: Group, group_M: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Of each member the share of questions that it answers wrongly, and its mean loss. group_M: whose questions,
        its own by default. An answer that it does not have is wrong, and not in the loss."""
        group_M = self.group_M if group_M is None else group_M
        lengths_M = questions.lengths_G[group_M]
        wrong_M = loss_M = known_M = torch.zeros(self.count, device=self.device)
        rows = ROWS[self.device]
        for start in range(0, int(lengths_M.max()), rows):
            at_MB = torch.arange(start, start + rows, device=self.device).expand(self.count, -1)
            there_MB = at_MB < lengths_M[:, None]
            *inputs, labels_MB = questions.inputs(group_M, torch.where(there_MB, at_MB, 0), None, 0.0)
            logits_MBL = self.logits(*inputs)
            labels_MB = torch.where(there_MB, labels_MB, IGNORED)
            wrong_M = wrong_M + ((logits_MBL.argmax(-1) != labels_MB) & there_MB).sum(1)
            counts_M = (labels_MB != IGNORED).sum(1)
            loss_M, known_M = loss_M + self.losses(logits_MBL, labels_MB) * counts_M, known_M + counts_M
        return wrong_M / lengths_M, loss_M / known_M.clamp(min=1)


class Training:
    """All members, step by step."""

    def __init__(
        self, members: Members, stores: Sequence[StoryStore], valid: Group, settings: Settings, seeds: Sequence[int]
    ) -> None:
        """`stores`: the training questions of each group. `seeds`: of the order of each member's questions."""
        self.members, self.settings, self.valid = members, settings, valid
        self.questions = Group(stores, members)
        self.batches = [
            StoryBatches(stores[group], settings.rows, seed, noise=settings.noise)
            for group, seed in zip(members.group_M.tolist(), seeds, strict=True)
        ]
        per_epoch = [batches.per_epoch for batches in self.batches]
        self.per_epoch_M = torch.tensor(per_epoch)
        self.steps = (settings.linear_epochs + settings.epochs) * max(per_epoch)
        self.schedules = [
            Staircase(settings.peak, hold=settings.halve * each, every=settings.halve * each, factor=0.5)
            for each in per_epoch
        ]
        device, count = members.device, members.count
        rows, draws = settings.rows, draws_for(stores[0].memory, settings.noise)
        self.examples_MB = torch.zeros(count, rows, dtype=torch.long, device=device)
        self.draws_MBK = torch.zeros(count, rows, draws, dtype=torch.long, device=device)
        self.rate_M = torch.zeros(count, device=device)
        self.lowest_M = torch.full((count,), math.inf, dtype=torch.float64, device=device)
        self.waited_M = torch.zeros(count, dtype=torch.long, device=device)
        self.linear = settings.linear_start  # whether any member still is
        members.linear_M.fill_(self.linear)

    def run(self, say: Callable[[str], None] = lambda line: None) -> None:
        step, every = self._captured(), int(self.per_epoch_M.max())
        for start in range(0, self.steps, CHUNK):
            chunk = self._chunk(start, min(CHUNK, self.steps - start))
            for at in range(len(chunk[0])):
                for place, given in zip((self.examples_MB, self.draws_MBK, self.rate_M), chunk, strict=True):
                    place.copy_(given[at])
                loss_M = step()
                done = start + at + 1
                self._follow(done)
                if done % (10 * every) == 0:
                    linear = int(self.members.linear_M.sum())
                    say(f"epoch {done // every}: loss {float(loss_M.mean()):.4f}, {linear} members linear")

    def _chunk(self, start: int, steps: int) -> tuple[Tensor, Tensor, Tensor]:
        """What each step of a chunk takes: questions, random numbers and rates of all members."""
        examples = np.zeros((steps, *self.examples_MB.shape), np.int64)
        draws = np.zeros((steps, *self.draws_MBK.shape), np.int64)
        rates = np.zeros((steps, len(self.batches)), np.float32)
        for member, (batches, schedule) in enumerate(zip(self.batches, self.schedules, strict=True)):
            before = self.settings.linear_epochs * batches.per_epoch
            last = min(start + steps, before + self.settings.epochs * batches.per_epoch)
            for step in range(start, last):
                epoch, at = divmod(step, batches.per_epoch)
                order, drawn = batches.plan(epoch)
                rows = slice(at * batches.rows, (at + 1) * batches.rows)
                examples[step - start, member], draws[step - start, member] = order[rows], drawn[rows]
                linear_rate = self.settings.share * self.settings.peak
                rates[step - start, member] = linear_rate if step < before else schedule.rate(step - before + 1, 0)
        device = self.members.device
        return (
            torch.from_numpy(examples).to(device),
            torch.from_numpy(draws).to(device),
            torch.from_numpy(rates).to(device),
        )

    def _step(self) -> Tensor:
        """w ← w − rate · clipped gradient, of every member on its own."""
        members, settings = self.members, self.settings
        weights = list(members.weights.values())
        loss_M = members.loss(
            self.questions, self.examples_MB, self.draws_MBK if settings.noise else None, settings.noise
        )
        share_M = torch.where(members.linear_M, 1.0 if settings.linear_epochs else settings.share, 1.0)
        gradients = torch.autograd.grad((share_M * loss_M).sum(), weights)
        with torch.no_grad():
            norm_M = sum(gradient.flatten(1).square().sum(1) for gradient in gradients).sqrt()  # type: ignore[union-attr]
            factor_M = self.rate_M * (settings.clip / (norm_M + 1e-6)).clamp(max=1)
            for weight, gradient in zip(weights, gradients, strict=True):
                weight -= factor_M.view(-1, *[1] * (weight.dim() - 1)) * gradient
        return loss_M.detach()

    def _captured(self) -> Callable[[], Tensor]:
        if self.members.device == "cpu":
            return self._step
        kept = {name: weight.detach().clone() for name, weight in self.members.weights.items()}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with capture(graph):
            loss_M = self._step()
        with torch.no_grad():  # the steps above have trained already
            for name, weight in kept.items():
                self.members.weights[name].copy_(weight)

        def replay() -> Tensor:
            graph.replay()
            return loss_M

        return replay

    def _follow(self, done: int) -> None:
        """The end of the linear start: of each member when the loss of its validations, one an epoch, stops falling, or
        after a number of epochs."""
        ends_M = done % self.per_epoch_M == 0
        if not (self.linear and bool(ends_M.any())):
            return
        if self.settings.linear_epochs:
            linear_M = done < self.settings.linear_epochs * self.per_epoch_M
            self.members.linear_M.copy_(linear_M)
            self.linear = bool(linear_M.any())
            return
        ends_M = ends_M.to(self.members.device)
        _, loss_M = self.members.judged(self.valid)
        no_lower_M = loss_M >= self.lowest_M
        self.waited_M = torch.where(ends_M, torch.where(no_lower_M, self.waited_M + 1, 0), self.waited_M)
        self.lowest_M = torch.where(ends_M, torch.minimum(self.lowest_M, loss_M.double()), self.lowest_M)
        self.members.linear_M.logical_and_(~(ends_M & (self.waited_M >= self.settings.wait)))
        self.linear = bool(self.members.linear_M.any())

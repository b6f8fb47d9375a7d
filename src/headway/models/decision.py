"""The Decision Transformer (Chen et al. 2021): a trajectory is a sequence of returns, states and actions, and the next
action is what follows the return that is wanted and the state that is seen.

B rows, T steps, N tokens of a step, S width of a state, A width of an action, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor, nn

from headway.errors import refuse
from headway.models import parts
from headway.models.protocols import Encoded, OfSteps
from headway.nn.attention import SelfAttention
from headway.nn.block import Stack, draw_normal
from headway.nn.dropout import Dropout
from headway.nn.mask import Causal, Scene

STD = 0.02
Token = Literal["return", "state", "action"]


@dataclass(frozen=True)
class DecisionTransformerConfig:
    """tokens: what is read of a step, in order; without `return` it is a policy that imitates with a memory.
    max_length: steps that are read at once. longest: steps of an episode whose numbers are told apart. places: rows of
    a table whose first is added to every token, of models from elsewhere that have one."""

    name: ClassVar[str] = "decision-transformer"
    practises: ClassVar[bool] = False
    layers: int = 3
    width: int = 128
    inner: int = 0
    heads: int = 1
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm: parts.PreNorm = field(default_factory=parts.PreNorm)
    feed_forward: parts.FeedForward = field(default_factory=parts.Relu)
    tokens: tuple[Token, ...] = ("return", "state", "action")
    max_length: int = 20
    longest: int = 1024
    places: int = 0

    def __post_init__(self) -> None:
        refuse("state" not in self.tokens, "model.tokens must have the state: an action is predicted from it")
        refuse(len(set(self.tokens)) != len(self.tokens), f"model.tokens names one twice: {', '.join(self.tokens)}")
        late = "action" in self.tokens and self.tokens.index("action") < self.tokens.index("state")
        refuse(late, "model.tokens must have the action behind the state: it must not be seen before it is predicted")
        refuse(self.longest < 1, f"model.longest must be at least 1, not {self.longest}")


def blank_steps(config: Any, sizes: Sequence[int], batch: int, *lengths: int) -> tuple[Any, ...]:
    """Windows of a trajectory."""
    (states, actions), length = sizes, lengths[0]
    return (
        SimpleNamespace(
            states_BTS=torch.zeros(batch, length, states), actions_BTA=torch.zeros(batch, length, actions),
            returns_BT=torch.zeros(batch, length), times_BT=torch.zeros(batch, length, dtype=torch.long),
            memory_BM=None,
        ),
    )  # fmt: skip


SIZED = ("{} actions", "data.train")


@final
class DecisionTransformer(OfSteps):
    """The last layer at the place of each state. Every token of a step has the vector of the step's number added."""

    def __init__(self, config: DecisionTransformerConfig, states: int, actions: int) -> None:
        super().__init__()
        self.config, self.width, self.dropout = config, config.width, config.dropout
        self.context, self.step_tokens = config.max_length, config.tokens
        self.told = "return" in config.tokens
        widths = {"return": 1, "state": states, "action": actions}
        self.times = nn.Embedding(config.longest, config.width)
        self.embed = nn.ModuleDict({token: nn.Linear(widths[token], config.width) for token in config.tokens})
        self.place = nn.Embedding(config.places, config.width) if config.places else None
        self.norm, self.drop = nn.LayerNorm(config.width, config.norm.epsilon), Dropout(config.dropout)
        self.decoder = Stack(
            config.layers,
            config.norm.final(config.width),
            partial(SelfAttention, config.width, config.heads, config.attention_dropout, None, True),
            partial(config.feed_forward.build, config.width, config.inner or 4 * config.width),
            config.norm.residual(config.width, config.dropout),
        )
        draw_normal(self, STD)

    def tokens(self, inputs: Any) -> Tensor:
        """(B, T·N, D): what enters the first layer."""
        dtype = self.times.weight.dtype
        seen = {"return": inputs.returns_BT[..., None], "state": inputs.states_BTS, "action": inputs.actions_BTA}
        time_BTD = self.times(inputs.times_BT.clamp(max=self.config.longest - 1))
        each = [part(seen[name].to(dtype)) + time_BTD for name, part in self.embed.items()]
        x_BMD = self.norm(torch.stack(each, 2).flatten(1, 2))
        return self.drop(x_BMD if self.place is None else x_BMD + self.place.weight[0])

    def encode(self, inputs: Any) -> Encoded:
        x_BMD = self.tokens(inputs)
        length = x_BMD.shape[1]
        view = Causal().view(Scene(length, length, x_BMD.device))
        x_BMD = self.decoder.walk(x_BMD, [(view,)] * self.config.layers)
        count = len(self.config.tokens)
        return Encoded(x_BMD[:, self.config.tokens.index("state") :: count])

"""What is asked of the engine, and what it gives."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from headway.errors import InputError
from headway.generate.beam import Ends
from headway.generate.history import Branches
from headway.generate.samples import Step
from headway.generate.sampling import Sampling
from headway.generate.search import Hypothesis, Search
from headway.text.tokenizer import END

UNBOUNDED = 1 << 62  # the context of a model that reads any number of tokens

# A stop; `max_new` tokens; no position is left in the context; or the chain left no token (or logits are NaN).
Ended = Literal["stop", "length", "context", "nothing"]


class Constraint(Protocol):
    """What a row may continue with, by a state that its tokens lead to: an automaton, a grammar."""

    def start(self) -> Any: ...
    def allowed(self, state: Any) -> Collection[int]:
        """The ids that may come next, a stop among them where the row may end."""

    def advance(self, state: Any, token: int) -> Any: ...


class Kind(NamedTuple):
    """Requests of one kind share a pool. sliding: a text does not fit into the context and is read anew at each step.
    search, ends: of a beam search."""

    constrained: bool
    sliding: bool = False
    search: Search | None = None
    ends: Ends | None = None


@dataclass(eq=False, slots=True)  # not frozen: of thousands that are made for one batch, that would be half the time
class Request:
    """What is to be continued, and how.

    given: the ids that a row starts with, at least one: an empty text is the caller's to begin (see `Generator`).
    choose: tokens are sampled, or searched for with a beam. stops: ids that end a row (in a search: the first in order
    is the one that ends an output of `max_new` tokens). samples: rows of this request; they share its reading. top: how
    many of the likeliest tokens are reported beside each sampled one. window: a text longer than the context continues
    from its last `context` tokens, read anew at each step; without it such a text is refused and a row ends at the
    context's end. inputs: the source of a sequence-to-sequence model: it has a `size`, and many are joined to a batch.
    never: ids that no output of a search has. branches: report what every hypothesis of a search did. cut: an
    output of a search that has `max_new` tokens counts as it stands, and need not end there.
    """

    given: Sequence[int]
    choose: Sampling | Search = field(default_factory=Sampling)
    max_new: int = 128
    stops: frozenset[int] = frozenset({END})
    samples: int = 1
    seed: int = 0
    top: int = 0
    window: bool = False
    inputs: Any = None
    constrain: Constraint | None = None
    never: tuple[int, ...] = ()
    branches: bool = False
    cut: bool = False

    def __post_init__(self) -> None:
        if (
            type(self.max_new) is int
            and 0 < self.max_new < 1 << 63
            and (self.samples, self.seed, self.top) == (1, 0, 0)
        ):
            return  # most of them, at a glance
        for name, least in (("max_new", 1), ("samples", 1), ("seed", 0), ("top", 0)):
            value = operator.index(getattr(self, name))
            if not least <= value < 1 << 63:
                raise InputError(f"{name} must be {least} or more, not {value}")

    @property
    def searched(self) -> bool:
        return isinstance(self.choose, Search)

    def like(self, other: Request | None) -> bool:
        """Whether it is certainly of the other's kind, by a glance."""
        return (
            other is not None and self.choose is other.choose and self.stops is other.stops
            and self.never is other.never and self.cut is other.cut and self.constrain is None is other.constrain
            and len(self.given) == len(other.given)
        )  # fmt: skip

    def kind(self, context: int) -> Kind:
        constrained = self.constrain is not None
        if isinstance(self.choose, Search):
            return Kind(constrained, search=self.choose, ends=Ends(tuple(sorted(self.stops)), self.never, self.cut))
        return Kind(constrained, sliding=len(self.given) > context)

    @property
    def size(self) -> int:
        """Tokens that are read."""
        return len(self.given) + (0 if self.inputs is None else self.inputs.size)

    @property
    def slots(self) -> int:
        """Slots of a pool: one for each sample; the rows of a search share one."""
        return 1 if self.searched else self.samples

    def check(self, name: str, vocabulary: int, context: int) -> None:
        if not len(self.given):
            raise InputError(f"{name} is empty: give at least one id to continue, such as END ({END})")
        named = self.choose.ids() if isinstance(self.choose, Sampling) else set(self.never)
        for i in {*self.given, *self.stops, *named}:
            if not 0 <= i < vocabulary:
                raise InputError(f"{name} names the id {i}, this model's vocabulary has {vocabulary} entries")
        if len(self.given) > context and not self.window:
            raise InputError(
                f"{name} has {len(self.given)} tokens, this model reads at most {context}: shorten it, or "
                f"ask for window=True (--window) to continue from its last {context}"
            )
        if self.searched:
            if self.samples > 1 or self.top or self.window:
                raise InputError(f"{name} is a search: samples, top and window are for sampling")
            if not self.stops or len(self.given) >= context:
                raise InputError(f"{name} is a search: it needs a stop, and a text shorter than {context} tokens")

    @property
    def whole(self) -> int:
        """Room for the ids of a row, and one more, since a row's length stays inside."""
        return len(self.given) + self.max_new + 1

    def need(self, context: int) -> int:
        """Room for the ids of a row while it is cached; none where the text does not fit: it is then read anew at each
        step."""
        return min(self.whole, context + 2) if len(self.given) <= context else 0


Keyed = tuple[int, Request]  # under a key of the caller's own


@dataclass(frozen=True)
class Written:
    """One continuation. `ids` are without the stop; `logps` and `top` have its entry last where one ended it.

    Both are under the model's own distribution, before the chain. `top`: the likeliest tokens, best first.
    """

    ids: list[int]
    logps: list[float]
    top: list[tuple[tuple[int, float], ...]]
    ended: Ended

    @property
    def mean(self) -> float:
        """Mean log-probability of a token; −∞ where there is none."""
        return sum(self.logps) / len(self.logps) if self.logps else -float("inf")


class Token(NamedTuple):
    """What a step gave a sampled row. `id` is None where it ended without one: at the stop `end`, or with nothing. logp
    and top, of either: as in `Written`."""

    key: int
    sample: int
    id: int | None
    written: Written | None  # all of it, with the last
    logp: float = 0.0
    top: tuple[tuple[int, float], ...] = ()
    end: int | None = None


class Found(NamedTuple):
    """What a search found, best hypothesis first."""

    key: int
    hypotheses: list[Hypothesis]
    branches: Branches | None
    sample: int = 0  # a search has one result, and reports it whole

    @property
    def written(self) -> Found:
        return self


@dataclass
class Row:
    """The host's side of a sampled row."""

    key: int
    sample: int
    request: Request
    ids: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    top: list[tuple[tuple[int, float], ...]] = field(default_factory=list)
    ended: Ended | None = None
    ahead: int = 0  # tokens that were launched and not yet reported
    state: Any = None  # of the constraint

    def __post_init__(self) -> None:
        if self.request.constrain is not None:
            self.state = self.request.constrain.start()

    @property
    def length(self) -> int:
        return len(self.request.given) + len(self.ids)

    @property
    def keys(self) -> int:
        """Tokens that the state has of it, when everything launched is done."""
        return self.length + self.ahead - 1

    def take(self, step: Step, context: int) -> Token:
        (token, logp, top), request = step, self.request
        if token >= 0:
            self.logps.append(logp)
            self.top.append(top[: request.top])
        if token < 0 or token in request.stops:
            self.ended = "nothing" if token < 0 else "stop"
            if token < 0:
                return Token(self.key, self.sample, None, self.written())
            return Token(self.key, self.sample, None, self.written(), logp, self.top[-1], token)
        self.ids.append(token)
        if request.constrain is not None:
            self.state = request.constrain.advance(self.state, token)
        if len(self.ids) == request.max_new:
            self.ended = "length"
        elif self.length > context and not request.window:
            self.ended = "context"
        return Token(self.key, self.sample, token, self.written() if self.ended else None, logp, self.top[-1])

    def written(self) -> Written:
        assert self.ended is not None
        return Written(self.ids, self.logps, self.top, self.ended)

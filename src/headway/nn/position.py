"""Positions: three places where a model may use the position of a token.

`add` changes the embedding, `rotate` turns queries and keys, `bias` adds to the scores. Each does nothing by
default; a part overrides those it needs.

B batch, T target length (queries), S source length (keys), H heads, D width, K head width, F features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Scene:
    """The sizes and positions of queries and keys, and what the batch supplies about them.

    start: the position of the first query, for each row where rows differ.
    relations: facts about pairs of a query and a key, by name: integers (B, T, S), such as distances in a graph or
    kinds of edges, or floats (B, T, S, F), such as features of edges.
    """

    queries: int
    keys: int
    device: torch.device
    start: int | Tensor = 0
    key_lengths_B: Tensor | None = None
    query_segments_BT: Tensor | None = None
    key_segments_BS: Tensor | None = None
    relations: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """B, or 1 where nothing depends on the row."""
        facts = (self.start, self.key_lengths_B, self.key_segments_BS, *self.relations.values())
        return next((fact.shape[0] for fact in facts if isinstance(fact, Tensor)), 1)

    def start_of(self, row: Tensor) -> int | Tensor:
        """The position of the first query of each of these rows."""
        return self.start[row] if isinstance(self.start, Tensor) else self.start

    def relation(self, name: str) -> Tensor:
        if name not in self.relations:
            raise KeyError(f"the batch supplies no relation '{name}'; it has: {', '.join(self.relations) or 'none'}")
        return self.relations[name]


def within(segments_BT: Tensor) -> Tensor:
    """(B, T): the place of each token in its own segment, so that a text that is packed behind others is read as it is
    read alone."""
    place_T = torch.arange(segments_BT.shape[1], device=segments_BT.device)
    first_BT = nn.functional.pad(segments_BT[:, 1:] != segments_BT[:, :-1], (1, 0), value=True)
    return place_T - torch.where(first_BT, place_T, 0).cummax(1).values


class Position(nn.Module):
    """No positions: attention then sees a set, not a sequence."""

    def add(self, x_BTD: Tensor, start: int | Tensor = 0) -> Tensor:
        return x_BTD

    def rotate(self, q_BHTK: Tensor, k_BHTK: Tensor, start: int | Tensor = 0) -> tuple[Tensor, Tensor]:
        return q_BHTK, k_BHTK

    def bias(self, q_BHTK: Tensor, scene: Scene) -> Tensor | None:
        return None


def sinusoid(positions: Tensor, width: int, base: float = 10_000.0) -> Tensor:
    """PE(p, 2i) = sin(p / base^(2i/D)), PE(p, 2i+1) = cos(p / base^(2i/D)) (Vaswani et al. 2017, 3.5)."""
    pair = torch.arange(0, width, 2, device=positions.device, dtype=torch.float64)
    angle = positions.double()[..., None] * torch.exp(pair * (-math.log(base) / width))
    table = torch.stack([angle.sin(), angle.cos()], dim=-1)
    return table.flatten(-2)[..., :width]


def _rows_at(table_PD: Tensor, start: int | Tensor, length: int) -> Tensor:
    """The rows of `length` positions from `start`, for each row of the batch where their starts differ; of every token
    its own where `start` is (B, T)."""
    if isinstance(start, Tensor):
        # Not checked against the table: reading the values would wait for the device.
        return table_PD[start if start.dim() == 2 else start[:, None] + torch.arange(length, device=start.device)]
    return table_PD[start : start + length]


def halved_sinusoid(positions: Tensor, width: int, base: float = 10_000.0) -> Tensor:
    """`sinusoid` with all sines before all cosines, as Marian has it (Junczys-Dowmunt et al. 2018)."""
    table = sinusoid(positions, width, base)
    return torch.cat([table[..., 0::2], table[..., 1::2]], dim=-1)


def fairseq_sinusoid(positions: Tensor, width: int, base: float = 10_000.0) -> Tensor:
    """All sines, then all cosines, of p·base^(−i/(D/2 − 1)), i < D/2; an odd width ends with 0 (Ott et al. 2019). In
    float32, as the models that have it were trained."""
    half = width // 2
    rate = torch.exp(torch.arange(half).float() * -(math.log(base) / (half - 1)))
    angle = positions.float()[..., None] * rate
    table = torch.cat([angle.sin(), angle.cos()], dim=-1)
    return torch.nn.functional.pad(table, (0, width - 2 * half))


def indices(positions: Tensor, width: int, base: float, columns: int) -> Tensor:
    """p in the first `columns` numbers, 0 in the others."""
    return torch.nn.functional.pad(positions[..., None].expand(-1, columns), (0, width - columns))


class Sinusoidal(Position):
    """Adds `sinusoid(p)`. The table caches the formula and grows with the inputs. `first`: the p of the first token."""

    table_PD: Tensor

    def __init__(
        self, width: int, base: float = 10_000.0, length: int = 512, formula: Callable[..., Tensor] = sinusoid,
        first: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.width, self.base, self.formula, self.first = width, base, formula, first
        self.register_buffer("table_PD", self._rows(length), persistent=False)

    def _rows(self, length: int) -> Tensor:
        return self.formula(torch.arange(self.first, self.first + length), self.width, self.base).float()

    def add(self, x_BTD: Tensor, start: int | Tensor = 0) -> Tensor:
        length = x_BTD.shape[1]
        end = start + length if isinstance(start, int) else length
        if end > len(self.table_PD):
            self.table_PD = self._rows(2 * end).to(self.table_PD)
        return x_BTD + _rows_at(self.table_PD, start, length).to(x_BTD.dtype)


class Index(Sinusoidal):
    """Adds the position itself, 0, 1, 2 …, to every number of a vector, or to its first one alone: the naive way. In
    every number it is removed by a layer norm, which subtracts the mean."""

    def __init__(self, width: int, length: int = 512, everywhere: bool = True) -> None:
        columns = width if everywhere else 1
        super().__init__(width, length=length, formula=partial(indices, columns=columns))


class Learned(Position):
    """Adds a row of a learned table; positions beyond its last row are an error. `first`: rows before the first
    token's, which are not used."""

    def __init__(self, width: int, length: int, first: int = 0) -> None:
        super().__init__()
        self.table, self.first = nn.Embedding(first + length, width), first
        nn.init.normal_(self.table.weight, std=0.02)

    @property
    def rows_PD(self) -> Tensor:
        """Those that are used."""
        return self.table.weight[self.first :]

    def add(self, x_BTD: Tensor, start: int | Tensor = 0) -> Tensor:
        length, rows_PD = x_BTD.shape[1], self.rows_PD
        if isinstance(start, int) and start + length > len(rows_PD):
            raise IndexError(f"position {start + length} is beyond the table of {len(rows_PD)}")
        return x_BTD + _rows_at(rows_PD, start, length)


class SinusoidalGrid(Position):
    """Adds to the place in row r and column c of a grid [sinusoid(r); sinusoid(c)], each of half the width; the first
    `before` tokens are at no place and stay as they are (Chen et al. 2021, "An empirical study of training
    self-supervised Vision Transformers")."""

    table_PD: Tensor

    def __init__(self, width: int, rows: int, columns: int, before: int = 0, base: float = 10_000.0) -> None:
        super().__init__()
        row_P = torch.arange(rows).repeat_interleave(columns)
        column_P = torch.arange(columns).repeat(rows)
        half = -(-width // 2)
        table_PD = torch.cat([sinusoid(row_P, half, base), sinusoid(column_P, half, base)], -1)[:, :width]
        self.register_buffer("table_PD", nn.functional.pad(table_PD, (0, 0, before, 0)).float(), persistent=False)

    def add(self, x_BTD: Tensor, start: int | Tensor = 0) -> Tensor:
        return x_BTD + self.table_PD.to(x_BTD.dtype)


class LearnedBehind(Learned):
    """`Learned` with some rows before the first position's: those of padding, in models that count so."""

    def __init__(self, width: int, length: int, before: int) -> None:
        super().__init__(width, length + before)
        self.before = before

    def add(self, x_BTD: Tensor, start: int | Tensor = 0) -> Tensor:
        return super().add(x_BTD, start + self.before)


class Rotary(Position):
    """Turns pairs (i, i + K/2) of queries and keys by p·θ_i, θ_i = base^(−2i/K), so that a score depends on the
    distance alone (Su et al. 2021, eq. 34)."""

    cos_PK: Tensor
    sin_PK: Tensor

    def __init__(
        self, head_width: int, base: float = 10_000.0, length: int = 512,
        angles: Callable[[Tensor], Tensor] | None = None, gain: float = 1.0, endless: bool = False,
    ) -> None:  # fmt: skip
        """`angles`: of each position and pair, (P,) → (P, K/2); p·θ_i by default. `gain`: a factor of the turned
        queries and keys. `endless`: positions have no last one: they are in no table, what they turn by is computed."""
        super().__init__()
        if head_width % 2:
            raise ValueError(f"a head of width {head_width} has no pairs to turn: take an even one")
        self.head_width, self.base, self.angles, self.gain = head_width, base, angles or self._plain, gain
        self.endless, self.rates = endless, list[Tensor]()  # θ, no buffer: a change of precision must not round it
        cos_PK, sin_PK = self._rows(length)
        self.register_buffer("cos_PK", cos_PK, persistent=False)
        self.register_buffer("sin_PK", sin_PK, persistent=False)

    def _rows(self, length: int) -> tuple[Tensor, Tensor]:
        angle_PI = self.angles(torch.arange(length))
        angle_PK = torch.cat([angle_PI, angle_PI], -1)
        return angle_PK.cos().float() * self.gain, angle_PK.sin().float() * self.gain

    def turns(self, start: int | Tensor, length: int) -> tuple[Tensor, Tensor]:
        """cos and sin of so many positions, (T, K), or (B, T, K) where rows start at different ones."""
        if self.endless:
            return self._computed(start, length)
        if isinstance(start, int) and start + length > len(self.cos_PK):
            with torch.inference_mode(False):  # training uses the longer table too
                self.cos_PK, self.sin_PK = (rows.to(self.cos_PK) for rows in self._rows(2 * (start + length)))
        return _rows_at(self.cos_PK, start, length), _rows_at(self.sin_PK, start, length)

    def _computed(self, start: int | Tensor, length: int) -> tuple[Tensor, Tensor]:
        like = self.cos_PK
        if not self.rates or self.rates[0].device != like.device:
            self.rates[:] = [self.angles(torch.ones(1))[0].double().to(like.device)]
        step_T = torch.arange(length, device=like.device)
        position = start[:, None] + step_T if isinstance(start, Tensor) else start + step_T
        half = position.double()[..., None] * self.rates[0]
        angle = torch.cat([half, half], -1)
        return (angle.cos() * self.gain).to(like.dtype), (angle.sin() * self.gain).to(like.dtype)

    def _plain(self, positions_P: Tensor) -> Tensor:
        pair = torch.arange(0, self.head_width, 2, dtype=torch.float64)
        return positions_P.double()[:, None] * self.base ** (-pair / self.head_width)

    def rotate(self, q_BHTK: Tensor, k_BHTK: Tensor, start: int | Tensor = 0) -> tuple[Tensor, Tensor]:
        cos, sin = self.turns(start, q_BHTK.shape[2])
        if isinstance(start, Tensor):
            cos, sin = cos[:, None], sin[:, None]  # of all heads
        return _turn(q_BHTK, cos, sin), _turn(k_BHTK, cos, sin)


class PartialRotary(Rotary):
    """`Rotary` for the first numbers of each head alone, as many as `head_width` says; the others know no position
    (Wang and Komatsuzaki 2021). `neighbours`: pairs are (2i, 2i + 1), not (i, i + K/2).

    Neighbours are brought into the order of halves and stay there: a score is a sum over both, in any order.
    """

    def __init__(self, head_width: int, *how: Any, neighbours: bool = False, **more: Any) -> None:
        super().__init__(head_width, *how, **more)
        self.neighbours = neighbours

    def rotate(self, q_BHTK: Tensor, k_BHTK: Tensor, start: int | Tensor = 0) -> tuple[Tensor, Tensor]:
        (q_BHTK, q_rest), (k_BHTK, k_rest) = self._parts(q_BHTK), self._parts(k_BHTK)
        q_BHTK, k_BHTK = super().rotate(q_BHTK, k_BHTK, start)
        return torch.cat([q_BHTK, q_rest], dim=-1), torch.cat([k_BHTK, k_rest], dim=-1)

    def _parts(self, x_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        """What is turned, as halves, and the rest."""
        first, rest = x_BHTK[..., : self.head_width], x_BHTK[..., self.head_width :]
        return first.unflatten(-1, (-1, 2)).mT.flatten(-2) if self.neighbours else first, rest


def _turn(x_BHTK: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x_BHTK.chunk(2, -1)
    wide = torch.promote_types(x_BHTK.dtype, cos.dtype)
    turned = x_BHTK.to(wide) * cos + torch.cat([-second, first], -1).to(wide) * sin
    return turned.to(x_BHTK.dtype)


def distances(scene: Scene) -> Tensor:
    """Query position minus key position, (T, S), or (B, T, S) where rows start at different positions."""
    key_S = torch.arange(scene.keys, device=scene.device)
    query_T = torch.arange(scene.queries, device=scene.device)
    if isinstance(scene.start, Tensor):
        return (scene.start[:, None] + query_T)[..., None] - key_S
    return (scene.start + query_T)[:, None] - key_S


def _per_head(table: Tensor, far: Tensor) -> Tensor:
    """(…, T, S, H) → (B or 1, H, T, S)."""
    found = table.movedim(-1, -3)
    return found if far.dim() == 3 else found[None]


class LinearBias(Position):
    """−slope_h · distance, slopes 2^(−8h/H) (Press et al. 2022); nothing is learned."""

    slopes_H: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes_H", torch.tensor(_slopes(heads)), persistent=False)

    def bias(self, q_BHTK: Tensor, scene: Scene) -> Tensor:
        far = distances(scene)
        return _per_head(-far.abs()[..., None] * self.slopes_H, far).to(q_BHTK.dtype)


def _slopes(heads: int) -> list[float]:
    """A geometric series; a number of heads between two powers of two adds odd members of the larger one's series."""
    power = 1 << (heads.bit_length() - 1)
    first = [2 ** (-8 * (h + 1) / power) for h in range(power)]
    return first + [2 ** (-4 * (2 * h + 1) / power) for h in range(heads - power)]


class RelativeBias(Position):
    """A learned number for each head and bucket of distances, near ones exact, far ones by their logarithm
    (Raffel et al. 2020, 2.1)."""

    def __init__(self, heads: int, buckets: int = 32, farthest: int = 128, both_ways: bool = False) -> None:
        super().__init__()
        self.buckets, self.farthest, self.both_ways = buckets, farthest, both_ways
        self.table = nn.Embedding(buckets, heads)
        nn.init.normal_(self.table.weight, std=0.02)

    def bucket(self, far: Tensor) -> Tensor:
        count = self.buckets // 2 if self.both_ways else self.buckets
        ahead = (far < 0) * count if self.both_ways else torch.zeros_like(far)
        far = far.abs() if self.both_ways else far.clamp(min=0)
        exact = count // 2
        steps = torch.log(far.clamp(min=1) / exact) / math.log(self.farthest / exact) * (count - exact)
        return ahead + torch.where(far < exact, far, (exact + steps.long()).clamp(max=count - 1))

    def bias(self, q_BHTK: Tensor, scene: Scene) -> Tensor:
        far = distances(scene)
        return _per_head(self.table(self.bucket(far)), far).to(q_BHTK.dtype)


class RelationBias(Position):
    """b_h[r(i, j)]: a learned number for each head and value of a relation that the batch supplies, such as the
    distance of two nodes in a graph (Ying et al. 2021, eq. 6). Values above the table share its last row."""

    def __init__(self, heads: int, relation: str, values: int) -> None:
        super().__init__()
        self.relation = relation
        self.table = nn.Embedding(values, heads)
        nn.init.normal_(self.table.weight, std=0.02)

    def bias(self, q_BHTK: Tensor, scene: Scene) -> Tensor:
        relation_BTS = scene.relation(self.relation).clamp(max=self.table.num_embeddings - 1)
        return self.table(relation_BTS).movedim(-1, 1).to(q_BHTK.dtype)


class FeatureBias(Position):
    """w_h · f(i, j), of features that the batch supplies, such as those of an edge (Ying et al. 2021, eq. 7)."""

    def __init__(self, heads: int, relation: str, features: int) -> None:
        super().__init__()
        self.relation, self.map = relation, nn.Linear(features, heads, bias=False)

    def bias(self, q_BHTK: Tensor, scene: Scene) -> Tensor:
        return self.map(scene.relation(self.relation)).movedim(-1, 1).to(q_BHTK.dtype)

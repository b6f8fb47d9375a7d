"""Chunks of actions: bins by quantiles, the loss over what an episode still had, plans that are averaged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from headway.errors import InputError
from headway.generate.actor import ActorPolicy
from headway.models.chunk_head import ActionChunks, Binned, Bins
from headway.models.protocols import Encoded


def head(chunk: int, size: int = 3, **how: Any) -> Any:
    torch.manual_seed(0)
    config = ActionChunks(chunk=chunk, space="numbers", size=size, **how)
    return config.module(SimpleNamespace(width=8, dropout=0.0), config).double()


def batch(rows: int = 2, steps: int = 4, chunk: int = 3, size: int = 3) -> Any:
    draw = torch.Generator().manual_seed(1)
    later = torch.rand(rows, steps, chunk, size, generator=draw, dtype=torch.float64) * 2 - 1
    there = torch.ones(rows, steps, chunk, dtype=torch.float64)
    there[0, -1, 1:], there[1, -2:] = 0, 0  # one chunk passes the end, two steps are filled up
    return SimpleNamespace(later_BTCA=later, later_there_BTC=there, there_BT=there[..., 0])


def encoded(rows: int = 2, steps: int = 4) -> Encoded:
    return Encoded(torch.randn(rows, steps, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64))


def test_bins_have_equally_many_actions_each() -> None:
    draw = np.random.default_rng(0)
    values_KA = np.stack([draw.standard_normal(8000), draw.uniform(-1, 3, 8000)], 1)
    binned = Binned(2, 16)
    binned.fit(torch.from_numpy(values_KA))
    shares = (np.arange(16) + 0.5) / 16
    np.testing.assert_allclose(binned.middles_AV.T, np.quantile(values_KA, shares, 0), atol=5e-3)
    counts = torch.bincount(binned.bins(torch.from_numpy(values_KA).float())[:, 1], minlength=16)
    assert counts.min() > 400 and counts.max() < 600


def test_a_value_that_many_actions_have_is_kept_exactly() -> None:
    values = torch.tensor([-1.0] * 50 + [0.0] * 40 + [1.0] * 10)[:, None]
    binned = Binned(1, 8)
    binned.fit(values)
    back = binned.middles_AV[0, binned.bins(values)[:, 0]]
    assert torch.equal(back, values[:, 0])


def test_the_loss_of_bins_is_the_mean_of_their_cross_entropies() -> None:
    one, given = head(3, numbers=Bins(5)), batch()
    logits, middles = one(encoded()).detach().unflatten(-1, (3, 5)), one.out.middles_AV
    expected = 0.0
    for row, step in np.ndindex(2, 4):
        each = []
        for at in np.flatnonzero(given.later_there_BTC[row, step]):
            nearest_A = [(done - middles[a]).abs().argmin() for a, done in enumerate(given.later_BTCA[row, step, at])]
            each.append(F.cross_entropy(logits[row, step, at], torch.stack(nearest_A)).item())
        expected += float(np.mean(each)) if each else 0.0
    assert one.losses(encoded(), given)["loss"][0].item() == pytest.approx(expected, rel=1e-6)


def test_the_loss_of_numbers_is_their_squared_distance() -> None:
    one, given = head(3), batch()
    away = (one(encoded()).detach().tanh() - given.later_BTCA).square().mean(-1)
    expected = sum(
        float(away[row, step][given.later_there_BTC[row, step] > 0].mean())
        for row in range(2) for step in range(4) if given.there_BT[row, step]
    )  # fmt: skip
    assert one.losses(encoded(), given)["loss"][0].item() == pytest.approx(expected, rel=1e-6)


def test_the_answer_of_bins_is_the_middle_of_the_most_probable_one() -> None:
    one = head(2, numbers=Bins(7))
    one.out.fit(torch.rand(100, 3, dtype=torch.float64))
    logits, answer = one(encoded()).unflatten(-1, (3, 7)), one.actions(encoded())
    assert answer.shape == (2, 4, 2, 3)
    for place in np.ndindex(2, 4, 2, 3):
        assert answer[place] == one.out.middles_AV[place[-1], logits[place].argmax()]


@pytest.mark.parametrize("forget", [0.0, 0.5])
def test_plans_for_a_step_are_averaged_the_oldest_first(forget: float) -> None:
    """As Zhao et al. (2023) write their algorithm 2: a buffer for every step that has all plans made for it."""
    chunk, steps, rows = 3, 7, 2
    plans = np.random.default_rng(0).standard_normal((steps, rows, chunk, 2)).astype(np.float32)
    actor = SimpleNamespace(card=SimpleNamespace(head=SimpleNamespace(forget=forget)))
    policy: Any = SimpleNamespace(actor=actor, plans=[], togo_R=np.zeros(rows))
    buffers: list[list[Any]] = [[] for _ in range(steps + chunk)]
    for step in range(steps):
        for ahead in range(chunk):
            buffers[step + ahead].append(plans[step][:, ahead])
        weights = np.exp(-forget * np.arange(len(buffers[step])))
        wanted = sum(w * plan for w, plan in zip(weights / weights.sum(), buffers[step], strict=True))
        found = ActorPolicy.blended(policy, np.arange(rows), plans[step])
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in ({"chunk": 0}, {"forget": -1.0}):
        with pytest.raises(InputError, match="head"):
            ActionChunks(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"head\.numbers\.count"):
        Bins(1)
    config = ActionChunks(space="choices", numbers=Bins(4))
    with pytest.raises(InputError, match="these are choices"):
        config.module(SimpleNamespace(width=8, dropout=0.0), config)


def test_bins_are_not_rounded_with_the_weights() -> None:
    binned = Binned(1, 256).to(torch.bfloat16)
    binned.fit(0.9 + 0.02 * torch.randn(5000, 1, generator=torch.Generator().manual_seed(0)))
    assert binned.middles_AV.dtype == torch.float32 and len(binned.middles_AV[0].unique()) > 250

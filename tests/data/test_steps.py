"""Windows of trajectories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from headway.data.steps import StepBatches, Steps, best_of, hold_out_episodes, steps_of, those, to_go
from headway.data.trajectories import Trajectories
from headway.processors.steps import ActionConfig, ObservationConfig
from headway.worlds.world import Choices, Numbers


def episodes(lengths: tuple[int, ...] = (3, 5, 1, 9), seed: int = 0) -> Trajectories:
    draw, steps = np.random.default_rng(seed), sum(lengths)
    begins = np.cumsum([0, *lengths[:-1]])
    return Trajectories(
        "made", Numbers((-np.inf,) * 2, (np.inf,) * 2), Choices(3), draw.standard_normal((steps, 2)).astype(np.float32),
        draw.integers(3, size=steps), draw.standard_normal(steps).astype(np.float32), begins,
        np.ones(len(lengths), bool), np.full(len(lengths), -1, np.int8),
    )  # fmt: skip


def steps(found: Trajectories, scale: float = 1.0) -> Steps:
    return steps_of(found, ObservationConfig(2).open(None).encode, ActionConfig(3).open(None).encode, scale)  # type: ignore[arg-type]


def test_the_return_to_go_is_the_sum_from_here_to_the_end() -> None:
    found = episodes()
    ends = [*found.begins_E[1:], len(found.rewards_K)]
    end_of = {step: end for begin, end in zip(found.begins_E, ends, strict=True) for step in range(begin, end)}
    wanted = [found.rewards_K[step : end_of[step]].sum() for step in range(len(found.rewards_K))]
    np.testing.assert_allclose(to_go(found.rewards_K, found.begins_E), wanted, rtol=1e-5, atol=1e-6)


def test_a_window_stays_in_its_episode() -> None:
    found = episodes()
    every, window = steps(found, scale=2.0), 4
    for batch in (StepBatches(every, window, 6, seed=3).batch(step) for step in range(8)):
        for row, start in enumerate(batch.examples):
            inside = int(min(window, every.ends_K[start] - start))
            assert batch.there_BT[row].tolist() == [1.0] * inside + [0.0] * (window - inside)
            span = slice(start, start + inside)
            np.testing.assert_array_equal(batch.inputs.states_BTS[row, :inside], found.states_KS[span])
            np.testing.assert_array_equal(batch.inputs.actions_BTA[row, :inside].argmax(-1), found.actions_K[span])
            np.testing.assert_array_equal(batch.inputs.returns_BT[row, :inside], every.togo_K[span])
            assert batch.inputs.times_BT[row, :inside].tolist() == every.times_K[span].tolist()
        assert batch.tokens == int(batch.there_BT.sum())


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    every = steps(episodes())
    one, same, other = (StepBatches(every, 4, 6, seed=seed) for seed in (1, 1, 2))
    assert one.batch(5).examples == same.batch(5).examples != other.batch(5).examples
    assert one.batch(5).examples != one.batch(6).examples


@pytest.mark.parametrize("window", [1, 2, 4, 20])
def test_windows_to_judge_by_have_every_step_once(window: int) -> None:
    every = steps(episodes())
    seen: list[int] = []
    for batch in StepBatches(every, window, 3, whole=True).epoch():
        for row, start in enumerate(batch.examples):
            seen += range(start, start + int(batch.there_BT[row].sum()))
    assert sorted(seen) == list(range(len(every)))


def test_the_best_and_the_held_out_episodes() -> None:
    found = episodes((4,) * 40)
    best = best_of(found, 0.1)
    assert len(best) == 4 and sorted(best.returns_E) == sorted(found.returns_E)[-4:]
    train, held = hold_out_episodes(found, 0.2)
    assert len(train) + len(held) == 40 and 2 <= len(held) <= 16
    np.testing.assert_array_equal(np.sort(np.concatenate([train.returns_E, held.returns_E])), np.sort(found.returns_E))
    some = those(found, [7, 2])
    np.testing.assert_array_equal(some.returns_E, found.returns_E[[7, 2]])
    np.testing.assert_array_equal(some.states_KS[:4], found.states_KS[28:32])


@pytest.mark.parametrize(
    "space, actions",
    [
        (Choices(4), np.array([3, 0, 1])),
        (Numbers((-2.0, 0.0), (2.0, 1.0)), np.array([[-2.0, 0.5], [1.0, 1.0]], np.float32)),
        (Numbers((-np.inf,), (np.inf,)), np.array([[7.0], [-3.0]], np.float32)),
    ],
)
def test_actions_come_back_as_they_were(space: Any, actions: Any) -> None:
    config = ActionConfig.of(space)
    processor = config.open(None)  # type: ignore[arg-type]
    encoded = processor.encode(actions)
    assert encoded.shape == (len(actions), config.size) and encoded.dtype == np.float32
    np.testing.assert_allclose(np.array(processor.decode(encoded)), actions, rtol=1e-6)
    assert config.takes(space) and not config.takes(Choices(9))


def test_numbers_stay_within_their_bounds() -> None:
    processor = ActionConfig(1, "numbers", (-2.0,), (4.0,)).open(None)  # type: ignore[arg-type]
    assert [float(one[0]) for one in processor.decode(np.array([[-5.0], [0.0], [9.0]]))] == [-2.0, 1.0, 4.0]


def test_states_are_normalised_and_come_back() -> None:
    processor = ObservationConfig(2, "made", (1.0, 2.0), (0.5, 4.0)).open(None)  # type: ignore[arg-type]
    states = torch.randn(5, 2).numpy()
    encoded = processor.encode(states)
    np.testing.assert_allclose(encoded, (states - [1, 2]) / [0.5, 4], rtol=1e-5)
    np.testing.assert_allclose(processor.decode(encoded), states, rtol=1e-4, atol=1e-5)

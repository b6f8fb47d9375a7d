"""Rollout, reach and smoothing: closed forms, and loops over all pairs."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from hand_made import pointing
from hand_written import column, of_one_text, traced

from headway.errors import InputError
from headway.explore.analyses.analysis import NoOptions, Traced
from headway.explore.analyses.rollout import (
    ReachOptions,
    RolloutOptions,
    draw_reach,
    draw_rollout,
    reach,
    reaches,
    rolled_out,
    rollout,
)
from headway.explore.analyses.smoothing import draw, smoothing


def written(folder: Path, *texts: str) -> list[str]:
    (folder / "text.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return [str(folder / "text.txt")]


def test_the_rollout_of_equal_attention_has_its_closed_form():
    """Ã = ½ J/n + ½ I, and J/n is its own square: Rₙ = 2⁻ⁿ I + (1 − 2⁻ⁿ) J/n."""
    size, layers = 5, 4
    found = rolled_out(np.full((layers, 3, size, size), 1 / size))
    for n in range(layers):
        half = 0.5 ** (n + 1)
        np.testing.assert_allclose(found[n], half * np.eye(size) + (1 - half) / size, atol=1e-12)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-12)


def test_the_rollout_multiplies_the_later_layer_from_the_left():
    """Who looks at the previous place in both layers is made of ¼ itself, ½ the previous, ¼ the one before that; the
    order shows where the layers are unlike."""
    back = np.array([pointing(4, lambda t: t - 1)])
    np.testing.assert_allclose(rolled_out(np.array([back, back]))[1, 3], [0, 0.25, 0.5, 0.25])
    first = np.array([pointing(4, lambda t: 0)])
    through = rolled_out(np.array([first, back]), residual=0.0)[1]
    np.testing.assert_allclose(through, first[0], err_msg="all that the previous place holds is of the first")
    turned = rolled_out(np.array([back, first]), residual=0.0)[1]
    np.testing.assert_allclose(turned, np.tile(back[0, 0], (4, 1)))


def test_the_reach_is_the_smallest_distance_that_holds_the_share():
    draws = np.random.default_rng(1).random((7, 7))
    for share, (t, row) in product((0.3, 0.9, 1.0), enumerate(draws)):
        held = [sum(w for s, w in enumerate(row) if abs(t - s) <= d) for d in range(7)]
        expected = next(d for d, sum_d in enumerate(held) if sum_d >= share * row.sum() - 1e-9)
        assert reach(draws, share)[t] == expected
    assert list(reach(np.eye(4), 0.9)) == [0] * 4
    assert list(reach(np.full((5, 5), 0.2), 0.6)) == [2, 1, 1, 1, 2]


def test_reach_and_rollout_by_layer(tmp_path: Path):
    back = [pointing(6, lambda t: t - 2)]
    tensors = {f"decoder.{n}.attention.weights": back for n in range(2)}
    door = traced(lambda text: of_one_text(text, tensors))
    table = reaches(door, written(tmp_path, "a b c d e f"), ReachOptions(share=1.0))
    # Places 0 and 1 cannot go two back; through both layers places 4 and 5 go four back, 2 and 3 no further.
    assert column(table, "of the layer") == pytest.approx([(0 + 1 + 4 * 2) / 6] * 2)
    assert column(table, "through all layers") == pytest.approx([9 / 6, (0 + 1 + 2 + 3 + 4 + 4) / 6])
    assert draw_reach(table, tmp_path / "reach.svg").is_file()
    table = rollout(door, written(tmp_path, "a b c d e f"), RolloutOptions())
    assert column(table, "self", layer=0) == pytest.approx([(1 + 5 * 0.5) / 6])
    np.testing.assert_allclose(table.more["shown"]["rollout"], rolled_out(np.array([back, back]))[-1], atol=1e-5)
    assert draw_rollout(table, tmp_path / "rollout.png").is_file()


def test_smoothing_is_the_mean_over_all_pairs_of_places(tmp_path: Path):
    """Pair by pair; specials are left out."""
    texts, kept = ["a b c", "d e", "f"], {}
    draws = np.random.default_rng(2)

    def make(text: str):
        kept[text] = draws.normal(1, 1, (len(text.split()) + 1, 4))
        same = np.ones((len(kept[text]), 3)) * draws.random()
        return of_one_text(text, {"embed.hidden": same, "stack.0.hidden": kept[text]}, closing=1)

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    door = Traced(traced(make).loaded, ("hidden",))
    table = smoothing(door, written(tmp_path, *texts), NoOptions())
    assert column(table, "layer") == ["embedding", 0]
    assert column(table, "within a text", layer="embedding") == pytest.approx([1])
    inner = [kept[text][:-1] for text in texts]
    within = [np.mean([cosine(a, b) for a, b in combinations(vectors, 2)]) for vectors in inner[:2]]
    between = [cosine(a, b) for one, other in combinations(inner, 2) for a, b in product(one, other)]
    assert column(table, "within a text", layer=0) == pytest.approx([np.mean(within)])
    assert column(table, "between texts", layer=0) == pytest.approx([np.mean(between)])
    assert draw(table, tmp_path / "smoothing.pdf").is_file()


def test_wrong_shares_are_told_in_one_line(tmp_path: Path):
    door = traced(lambda text: of_one_text(text, {"decoder.0.attention.weights": np.eye(1)[None]}))
    with pytest.raises(InputError, match="share=1.5: it is a share"):
        reaches(door, written(tmp_path, "a"), ReachOptions(share=1.5))
    with pytest.raises(InputError, match="residual=-1: it is a share"):
        rollout(door, written(tmp_path, "a"), RolloutOptions(residual=-1))

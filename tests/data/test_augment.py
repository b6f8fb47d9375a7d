"""What is drawn for training pictures, and the batches that are made of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from headway.batch import IGNORED
from headway.data.augment import Augment, AugmentedBatch, Draws
from headway.data.images import PLAIN, ImageBatches
from headway.errors import InputError

RNG = np.random.default_rng(9)
PIXELS = RNG.integers(0, 256, (11, 3, 12, 10), dtype=np.uint8)
LABELS = np.arange(11) % 4
MEAN, STD = np.full((3, 1, 1), 0.4, np.float32), np.full((3, 1, 1), 0.2, np.float32)
ALL = Augment(0.5, 2, True, 2, 12, 0.3, 0.8, 1.0)


def batches(augment: Augment, rows: int = 4, seed: int = 3, **how: bool) -> ImageBatches:
    draws = None if augment == PLAIN else Draws(augment, 12, 10)
    return ImageBatches(PIXELS, LABELS, 255 * MEAN, 255 * STD, rows, seed, draws=draws, **how)


def normalised(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy((pixels.astype(np.float32) / 255 - MEAN) / STD)


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    one, again, other = (batches(ALL, seed=seed).batch(7) for seed in (3, 3, 4))
    assert one.examples == again.examples
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(one.tensors(), again.tensors(), strict=True))
    assert torch.equal(one.inputs.pixels_BCHW, again.inputs.pixels_BCHW)
    assert not torch.equal(one.inputs.pixels_BCHW, other.inputs.pixels_BCHW)
    assert not torch.equal(one.pictures.from_B23, batches(ALL).batch(8).pictures.from_B23)


def test_nothing_drawn_changes_nothing() -> None:
    """But for the mirror."""
    plain = batches(PLAIN).batch(1)
    found = batches(Augment(flip=True)).batch(1)
    assert isinstance(found, AugmentedBatch) and found.examples == plain.examples
    either = torch.stack([plain.inputs.pixels_BCHW, plain.inputs.pixels_BCHW.flip(-1)])
    gaps_2B = (either - found.inputs.pixels_BCHW).abs().amax((2, 3, 4))
    assert (gaps_2B.amin(0) < 1e-3).all() and torch.equal(found.answers()[0][0], plain.labels_B)
    assert found.counts == plain.counts and found.tokens == plain.tokens == 4


def test_both_mirrored_and_not_are_drawn_half_of_the_times() -> None:
    places = Draws(Augment(flip=True), 12, 10).pictures(np.zeros((4000, 3, 12, 10), np.uint8), 1).from_B23
    assert 0.45 < float((places[:, 0, 0] < 0).float().mean()) < 0.55


def test_a_shift_moves_by_whole_pixels_and_fills_with_black() -> None:
    batch = batches(Augment(shift=3), rows=11).batch(0)
    moved = batch.pictures.from_B23[:, :, 2].int()
    assert moved.abs().max() == 3
    for row, example in enumerate(batch.examples):
        right, down = moved[row].tolist()
        wide = np.pad(PIXELS[example], ((0, 0), (3, 3), (3, 3)))
        wanted = normalised(wide[:, 3 + down : 15 + down, 3 + right : 13 + right])
        torch.testing.assert_close(batch.inputs.pixels_BCHW[row], wanted, atol=1e-3, rtol=0)


def test_a_zoom_stays_inside_of_the_picture() -> None:
    places = Draws(Augment(zoom=0.2), 12, 10).pictures(np.zeros((500, 3, 12, 10), np.uint8), 1).from_B23
    for axis, size in ((0, 10), (1, 12)):
        start, end = places[:, axis, 2], places[:, axis, 2] + places[:, axis, axis] * size
        assert start.min() >= 0 and end.max() <= size + 1e-4
    area = places[:, 0, 0] * places[:, 1, 1]
    assert area.min() < 0.25 and area.max() > 0.9


def test_rows_keep_what_is_theirs_when_a_batch_is_cut_or_filled_up() -> None:
    """The global batch is drawn first and split after."""
    whole = batches(ALL, rows=11).batch(0)
    parts = torch.cat([part.inputs.pixels_BCHW for part in whole.split(3)])
    torch.testing.assert_close(parts, whole.inputs.pixels_BCHW)
    padded = whole.pad(13)
    torch.testing.assert_close(padded.inputs.pixels_BCHW[:11], whole.inputs.pixels_BCHW)
    assert padded.labels_B[11:].tolist() == [IGNORED] * 2 and padded.counts == whole.counts
    assert batches(ALL, rows=4, full=True).batch(2).labels_B.shape == (4,)


@pytest.mark.parametrize("augment", [Augment(mixup=0.8), Augment(cutmix=1.0), Augment(mixup=0.8, cutmix=1.0)])
def test_two_pictures_are_mixed_as_their_labels_are(augment: Augment) -> None:
    batch = batches(augment, rows=11).batch(0)
    mixed, share_B = batch.inputs.pixels_BCHW, batch.share_B
    own, other = (drawn.pixels(batch.mean_C11, batch.std_C11) for drawn in (batch.pictures, batch.others))
    boxed = batch.box_B4.any(1)
    assert boxed.all() == (augment.mixup == 0) or augment.cutmix > 0
    for row in range(11):
        if boxed[row]:  # by the number of pixels
            theirs = (mixed[row] == other[row]).all(0) & (own[row] != other[row]).any(0)
            assert float(theirs.float().mean()) == pytest.approx(1 - float(share_B[row]), abs=0.02)
        else:
            torch.testing.assert_close(mixed[row], share_B[row] * own[row] + (1 - share_B[row]) * other[row])
    (labels, weights), (others, rest) = batch.answers()
    assert labels.tolist() == LABELS[list(batch.examples)].tolist() and not torch.equal(labels, others)
    torch.testing.assert_close(weights + rest, torch.ones(11))


def test_the_loss_of_a_mixture_is_that_of_mixed_targets() -> None:
    from types import SimpleNamespace

    from headway.models.heads import LabelsHead

    batch, logits = batches(Augment(mixup=1.0), rows=11).batch(0), torch.randn(11, 4)
    head = LabelsHead()
    head.forward = lambda encoded: logits  # type: ignore[method-assign]
    terms = head.losses(SimpleNamespace(), batch, smoothing=0.1)  # type: ignore[arg-type]
    soft = batch.share_B[:, None] * F.one_hot(batch.labels_B, 4)
    soft = soft + (1 - batch.share_B[:, None]) * F.one_hot(batch.other_labels_B, 4)
    wanted = F.cross_entropy(logits, soft, label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(terms["loss"][0], wanted)


def test_an_erased_box_has_the_mean() -> None:
    batch = batches(Augment(erase=1.0), rows=11).batch(0)
    gone = (batch.inputs.pixels_BCHW == 0).all(1).float().mean((1, 2))
    assert (gone > 0).all() and gone.max() < 0.5
    assert not batches(Augment(erase=0.0, shift=1), rows=11).batch(0).pictures.erased_BE4.any()


@pytest.mark.parametrize(
    "wrong", [{"zoom": 0.0}, {"zoom": 1.5}, {"erase": 2.0}, {"strength": 31}, {"shift": -1}, {"mixup": -0.1}]
)
def test_what_has_no_meaning_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"data.augment.{next(iter(wrong))}"):
        replace(Augment(), **wrong)


def test_nothing_is_copied_from_the_host_while_pictures_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured step could not."""
    batch = batches(ALL, rows=11).batch(0)
    wanted = batch.inputs.pixels_BCHW

    def copied(*given: object, **how: object) -> None:
        raise AssertionError("a tensor of values on the host")

    for name in ("tensor", "as_tensor", "from_numpy"):
        monkeypatch.setattr(torch, name, copied)
    assert torch.equal(batch.inputs.pixels_BCHW, wanted)

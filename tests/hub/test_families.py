"""Every family against `transformers`: the same weights give the same numbers, forward and backward, padded and cached,
and go back as they came. The rows are those of `tiny.py`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from tiny import KINDS, TINY, Tiny, each_tiny, facts_of, first_tiny, twin
from torch import Tensor

from foreign_world import from_hf
from headway.hub.names import to_hf

FLOAT32, FLOAT64 = (torch.float32, 1e-5), (torch.float64, 1e-10)
both_precisions = pytest.mark.parametrize(
    ("dtype", "within"),
    [pytest.param(*FLOAT32, id="float32", marks=pytest.mark.long), pytest.param(*FLOAT64, id="float64")],
)


def batch() -> tuple[Tensor, Tensor]:
    """Rows of different lengths, padded on the right."""
    generator = torch.Generator().manual_seed(5)
    ids_BT = torch.randint(3, 60, (3, 13), generator=generator)
    return ids_BT, torch.tensor([13, 4, 9])


def inside(x_BT: Tensor, lengths_B: Tensor) -> Tensor:
    return torch.cat([row[:length].flatten(1) for row, length in zip(x_BT, lengths_B.tolist(), strict=True)])


def assert_equal(found: Tensor, expected: Tensor, within: float) -> None:
    """Within so much of the largest number, where that is above 1: logits that nothing scales down are large."""
    largest = max(1.0, float(expected.detach().abs().max()))
    torch.testing.assert_close(found, expected, rtol=0, atol=within * largest)


@both_precisions
@each_tiny
def test_equal_numbers_for_a_padded_batch(tiny: Tiny, dtype: torch.dtype, within: float) -> None:
    theirs = tiny.build(dtype)
    mine, _, _ = twin(theirs, tiny.stored)
    kind = KINDS[tiny.kind]
    ids_BT, lengths_B = batch()
    with torch.no_grad():
        found, expected = kind.ours(mine, ids_BT, lengths_B), kind.theirs(theirs, ids_BT, lengths_B)
    assert_equal(inside(found, lengths_B), inside(expected, lengths_B), within)


@first_tiny
def test_equal_gradients_in_training(tiny: Tiny) -> None:
    """Without dropout training computes the same; each weight's gradient is compared under their name."""
    dtype, within = FLOAT64
    theirs = tiny.build(dtype).train()
    if tiny.kind in ("boxes", "object-masks"):  # they freeze all convolutions
        theirs.requires_grad_(True)
    mine, table, _ = twin(theirs, tiny.stored)
    mine.train()
    kind = KINDS[tiny.kind]
    ids_BT, lengths_B = batch()
    found = inside(kind.ours(mine, ids_BT, lengths_B), lengths_B)
    expected = inside(kind.theirs(theirs, ids_BT, lengths_B), lengths_B)
    assert_equal(found, expected, within)
    probe = torch.randn(found.shape, generator=torch.Generator().manual_seed(6), dtype=dtype) / found.numel() ** 0.5
    (found * probe).sum().backward()
    (expected * probe).sum().backward()
    gradients = {name: _gradient(weight) for name, weight in mine.named_parameters()}
    wanted = tiny.stored({n: _gradient(w) for n, w in theirs.named_parameters(remove_duplicate=False)})
    found_under_their_names = to_hf(table, gradients)
    assert found_under_their_names.keys() - wanted.keys() <= tiny.stored(dict(theirs.named_buffers())).keys()
    for name, gradient in found_under_their_names.items():
        if name not in wanted:
            continue
        torch.testing.assert_close(gradient, wanted[name], rtol=0, atol=within, msg=lambda m, n=name: f"{n}: {m}")


def _gradient(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad


@both_precisions
@first_tiny
def test_steps_with_a_state_give_what_the_whole_gives(tiny: Tiny, dtype: torch.dtype, within: float) -> None:
    kind = KINDS[tiny.kind]
    if kind.cached is None:
        assert not hasattr(twin(tiny.build(), tiny.stored)[0], "start")  # there is no state that could be tested
        return
    theirs = tiny.build(dtype)
    ids_BT, _ = batch()
    with torch.no_grad():
        expected = kind.theirs(theirs, ids_BT, torch.full((len(ids_BT),), ids_BT.shape[1]))
    assert_equal(kind.cached(twin(theirs, tiny.stored)[0], ids_BT), expected, within)


@each_tiny
def test_weights_go_back_as_they_came(tiny: Tiny) -> None:
    theirs = tiny.build()
    mine, table, _ = twin(theirs, tiny.stored)
    shapes = {name: tuple(weight.shape) for name, weight in mine.named_parameters()}
    buffers = {name: weight for name, weight in theirs.named_buffers() if name in theirs.state_dict()}
    named = tiny.stored(dict(theirs.named_parameters(remove_duplicate=False)) | buffers)
    kept = set(named) - (set(table.copies) - set(table.theirs))  # of a tied weight the first name
    given = {name: named[name].detach() for name in table.resolve(kept)}
    back = to_hf(table, from_hf(table, given, shapes))
    assert back.keys() == given.keys()
    assert all(torch.equal(back[name], given[name]) and back[name].is_contiguous() for name in given)


@each_tiny
def test_the_config_goes_back_as_it_came(tiny: Tiny) -> None:
    """Ours of theirs of ours is the same; what transformers builds of it takes the weights and gives the numbers."""
    theirs = tiny.build()
    mine, _, foreign = twin(theirs, tiny.stored)
    facts = facts_of(theirs)
    (config, head), sizes = foreign.model_in(facts), foreign.vocabularies(facts)
    written: dict[str, Any] = foreign.config_out(config, sizes, head) | {"architectures": [tiny.architecture]}
    assert foreign.model_in(written | {"model_type": foreign.model_type}) == (config, head)
    kind = getattr(transformers, tiny.architecture)
    specials = {key: value for key, value in tiny.settings.items() if key.endswith("token_id")}
    again = kind(kind.config_class(**written | specials)).eval()
    tiny.change(again)
    again.load_state_dict(theirs.state_dict())
    ids_BT, lengths_B = batch()
    with torch.no_grad():
        found, expected = (KINDS[tiny.kind].theirs(model, ids_BT, lengths_B) for model in (again, theirs))
    assert torch.equal(inside(found, lengths_B), inside(expected, lengths_B))


def test_every_family_has_a_row() -> None:
    from headway.hub.families import FOREIGN

    assert {facts_of(tiny.build())["model_type"] for tiny in TINY.values()} == set(FOREIGN)

"""Rows written into a room, at places side by side and anywhere."""

import pytest
import torch

from headway.nn.slots import put


@pytest.mark.parametrize("dim", [0, 2])
@pytest.mark.parametrize("copies", [1, 3])
def test_places_side_by_side_are_written_as_any_others(dim, copies):
    shape = [2, 5, 4]
    shape[dim] = 4
    rows = torch.randn(*shape[:dim], 2, *shape[dim + 1 :])
    shape[dim] *= copies
    old = torch.randn(shape)
    for given in (rows, None):
        some, other = old.clone(), old.clone()
        put(some, dim, slice(1, 3), given, copies)
        put(other, dim, torch.tensor([1, 2]), given, copies)
        wanted = old.clone()
        new = 0.0 if given is None else given.repeat_interleave(copies, dim)
        wanted.narrow(dim, copies, 2 * copies).copy_(torch.as_tensor(new))
        assert torch.equal(some, wanted) and torch.equal(other, wanted)

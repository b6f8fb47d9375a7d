"""The cheap draw must be a fair one."""

import pytest
import torch

from headway.nn.dropout import Dropout, dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_dropout_keeps_its_share_in_each_of_the_four_words_and_the_mean(p):
    torch.manual_seed(0)
    x = torch.ones(400_000)
    y = dropout(x, p)
    dropped = (y == 0).float()
    for word in range(4):
        assert abs(dropped[word::4].mean().item() - p) < 0.006
    assert abs(y.mean().item() - 1) < 0.01
    # Neighbours from the same draw are independent: their joint share is p².
    assert abs((dropped[0::4] * dropped[1::4]).mean().item() - p * p) < 0.006
    assert abs((dropped[2::4] * dropped[3::4]).mean().item() - p * p) < 0.006


def test_dropout_follows_the_seed_the_mode_and_odd_shapes():
    part, x = Dropout(0.4), torch.randn(3, 5, 7, requires_grad=True)
    torch.manual_seed(1)
    a = part(x)
    torch.manual_seed(1)
    assert torch.equal(a, part(x)) and a.shape == x.shape
    (grad,) = torch.autograd.grad(a.sum(), x)
    torch.testing.assert_close(grad, a.detach() / x.detach())
    assert torch.equal(part.eval()(x), x)
    with pytest.raises(ValueError, match="must lie in"):
        Dropout(1.0)

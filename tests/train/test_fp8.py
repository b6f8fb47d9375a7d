"""8-bit products against exact ones, by the error that their formats allow."""

import pytest
import torch
from fp8 import DIGITS, RANGE, Fp8Linear, product, readable_product, scaled, with_fp8
from torch import nn

from headway.batch import TokenBatch
from headway.models.gpt import GPT, GPTConfig
from headway.tasks.objective import NextToken
from headway.train.optimiser import AdamW, Masters
from headway.train.step import TrainStep, compiled


def distance(found, exact):
    return float(((found.double() - exact.double()).norm() / exact.double().norm()).detach())


@pytest.mark.parametrize(("kind", "digits"), [(DIGITS, 3), (RANGE, 2)])
@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 3e4])
def test_every_number_is_as_near_as_its_digits_allow(kind, digits, size):
    torch.manual_seed(0)
    x = size * torch.randn(64, 48)
    eighth, scale = scaled(x, kind)
    assert eighth.dtype == kind and eighth.float().isfinite().all()
    largest = eighth.float().abs().max()
    assert largest == torch.finfo(kind).max
    near = x.abs() > 1e-2 * x.abs().max()  # smaller ones have fewer digits
    error = ((eighth.float() * scale - x).abs() / x.abs())[near]
    assert error.max() <= 2.0 ** -(digits + 1) * 1.001


def test_zeros_stay_zeros():
    eighth, scale = scaled(torch.zeros(4, 4), DIGITS)
    assert not eighth.float().any() and scale > 0


def layers(width=64, outputs=96, bias=True):
    torch.manual_seed(1)
    plain = nn.Linear(width, outputs, bias=bias)
    return plain, Fp8Linear(plain)


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_and_its_gradients_are_near_the_plain_layers(bias):
    plain, eight = layers(bias=bias)
    assert eight.weight is plain.weight and eight.bias is plain.bias
    x = torch.randn(5, 16, 64, requires_grad=True)
    probe = torch.randn(5, 16, 96)
    exact_y, y = plain(x), eight(x)
    exact = torch.autograd.grad((exact_y * probe).sum(), [x, *plain.parameters()])
    found = torch.autograd.grad((y * probe).sum(), [x, *plain.parameters()])
    assert 0 < distance(y, exact_y) < 0.05
    for a, b in zip(found, exact, strict=True):
        assert a.shape == b.shape and distance(a, b) < 0.08
    if bias:
        assert torch.allclose(found[2], exact[2])  # no product


def test_products_of_numbers_that_the_format_has_are_exact():
    torch.manual_seed(2)
    x, w = (torch.randint(-8, 9, shape).float() for shape in ((32, 64), (48, 64)))
    x[0, 0], w[0, 0] = 448.0, 448.0  # a scale of one
    assert torch.equal(product(scaled(x, DIGITS), scaled(w, DIGITS), torch.float32), x @ w.T)


def test_out_of_training_it_is_the_plain_layer():
    plain, eight = layers()
    x = torch.randn(3, 64)
    assert torch.equal(eight.eval()(x), plain(x))
    with torch.no_grad():
        assert torch.equal(eight.train()(x), plain(x))


def model_of(width=32):
    torch.manual_seed(3)
    return GPT(GPTConfig(2, width, heads=2, max_length=16), 50)


def test_a_models_blocks_are_replaced_and_its_weights_keep_their_names():
    model = model_of()
    names = list(model.state_dict())
    found = with_fp8(model)
    assert len(found) == 8 and list(model.state_dict()) == names and with_fp8(model) == []
    assert type(model.decoder.layers[0].attention.qkv) is Fp8Linear
    assert type(model.output) is not Fp8Linear
    assert with_fp8(nn.Sequential(nn.Linear(24, 32), nn.Linear(32, 48))) == ["1"]


def losses(model, steps=60):
    objective = NextToken().build(model)
    masters = Masters(model.named_parameters(), AdamW(0.9, 0.95, epsilon=1e-8, decay=0.1), clip=1.0)
    masters.set_rate(3e-3)
    step = TrainStep(objective, masters)
    generator = torch.Generator().manual_seed(4)
    found = []
    for _ in range(steps):
        first = torch.randint(4, 50, (8, 1), generator=generator)
        ids = (first + 3 * torch.arange(17)) % 46 + 4
        found.append(float(step(TokenBatch(ids[:, :-1], ids[:, 1:]))["loss"]) / 128)
    return found


def test_a_model_learns_in_8_bits_nearly_as_in_32():
    plain, eight = model_of(), model_of()
    with_fp8(eight)
    slow, fast = losses(plain), losses(eight)
    assert slow[-1] < 0.5 * slow[0] and fast[-1] < 0.5 * fast[0]
    assert max(abs(a - b) / b for a, b in zip(fast, slow, strict=True)) < 0.15 and fast != slow


@pytest.mark.gpu
@pytest.mark.parametrize("kinds", [(DIGITS, DIGITS), (RANGE, DIGITS)])
def test_the_matrix_units_equal_the_readable_product(kinds):
    torch.manual_seed(5)
    a = scaled(torch.randn(128, 64, device="cuda"), kinds[0])
    b = scaled(torch.randn(96, 64, device="cuda"), kinds[1])
    found = product(a, b, torch.bfloat16)
    assert distance(found, readable_product(a, b)) < 5e-3


@pytest.mark.gpu
def test_a_compiled_step_in_8_bits_is_near_the_plain_one_on_a_gpu():
    plain, eight = model_of(64).cuda().bfloat16(), model_of(64).cuda().bfloat16()
    with_fp8(eight)
    ids = torch.randint(4, 50, (8, 17), device="cuda")
    batch = TokenBatch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
    for model in (plain, eight):
        compiled(NextToken().build(model))(batch)["loss"][0].backward()
    for (name, a), (_, b) in zip(eight.named_parameters(), plain.named_parameters(), strict=True):
        assert distance(a.grad, b.grad) < 0.2, name

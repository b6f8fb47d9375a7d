"""Attention by tiles against the readable form with the rule's matrix: outputs and gradients."""

import itertools

import pytest
import torch

from headway.batch import TextInputs
from headway.compiling import compiled
from headway.models import build
from headway.models.bert import BertConfig
from headway.models.heads import Words
from headway.models.parts import Blocks
from headway.nn.attention import attend, flex_attend, fused_attend
from headway.nn.block_masks import EndBlocks, FirstBlockRepeated, NearBlocks, RandomBlocks
from headway.nn.mask import Padding, Scene
from headway.nn.tiles import tiling_of
from headway.recipes import RECIPES

NEAR = NearBlocks(4) | EndBlocks(4)
RULES = {
    "window and ends": NEAR,
    "window alone": NearBlocks(4),
    "BigBird": NEAR | RandomBlocks(4, 2, seed=3),
    "as transformers in evaluation": NEAR | FirstBlockRepeated(4, 3),
}


def drawn(rows: int, length: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(length)
    shape = rows, 3, length, 8
    return [torch.randn(shape, generator=draw, dtype=torch.float64).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("length, lengths", [(64, None), (61, None), (62, (62, 17, 40)), (90, (90, 3, 88))])
def test_outputs_and_gradients_are_those_of_the_matrix(rule, length, lengths):
    rows = len(lengths or (0,))
    scene = Scene(length, length, torch.device("cpu"), key_lengths_B=torch.tensor(lengths) if lengths else None)
    view = (Padding() & rule).view(scene) if lengths else rule.view(scene)
    assert view.tiling() is not None  # else this compares the matrix with itself
    q, k, v = drawn(rows, length)
    fast = fused_attend(q, k, v, view)
    plain, _ = attend(q, k, v, view.matrix(length, length, q.device), view.added(q.dtype))
    real = torch.arange(length) < torch.tensor(lengths or [length])[:, None]
    weights = torch.randn(fast.shape, dtype=torch.float64) * real[:, None, :, None]
    torch.testing.assert_close(fast * real[:, None, :, None], plain * real[:, None, :, None], rtol=0, atol=1e-12)
    for one, other in zip(
        torch.autograd.grad((fast * weights).sum(), (q, k, v)), torch.autograd.grad((plain * weights).sum(), (q, k, v)),
        strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_a_key_that_is_repeated_counts_so_often():
    scene = Scene(64, 64, torch.device("cpu"))
    view = (NEAR | FirstBlockRepeated(4, 3)).view(scene)
    q, k, v = drawn(1, 64)
    fast = fused_attend(q, k, v, view)
    seen = torch.cat([k[:, :, at] for at in (slice(0, 4), slice(0, 4), slice(0, 4), slice(28, 40), slice(60, 64))], 2)
    mixed = torch.cat([v[:, :, at] for at in (slice(0, 4), slice(0, 4), slice(0, 4), slice(28, 40), slice(60, 64))], 2)
    torch.testing.assert_close(fast[:, :, 32:36], attend(q[:, :, 32:36], seen, mixed)[0], rtol=0, atol=1e-7)


def test_random_blocks_are_neither_neighbours_nor_ends():
    tiles = RandomBlocks(4, 3, seed=1).tiles(4, 80)
    for at in range(1, 19):
        [others] = tiles[at].nonzero()
        assert len(others) == 3 and all(abs(other - at) > 1 and 0 < other < 19 for other in others)
    assert (RandomBlocks(4, 3, seed=1).tiles(4, 80) == tiles).all()
    assert (RandomBlocks(4, 3, seed=2).tiles(4, 80) != tiles).any()


def test_the_tiles_grow_with_the_length_and_not_with_its_square():
    rule = NearBlocks(64) | EndBlocks(64) | RandomBlocks(64, 3)
    small, large = (tiling_of(rule, length, torch.device("cpu")) for length in (4096, 65_536))
    assert small.table_NM.shape[1] == large.table_NM.shape[1] == 8
    assert small.wide_W.tolist() == [0, 63] and large.wide_W.tolist() == [0, 1023]


def test_a_rule_that_shows_most_is_not_divided():
    assert NEAR.view(Scene(20, 20, torch.device("cpu"))).tiling() is None


def test_the_block_mask_shows_what_the_matrix_shows():
    rule, scene = (
        Padding() & RULES["BigBird"],
        Scene(700, 700, torch.device("cpu"), key_lengths_B=torch.tensor([700, 9])),
    )
    view = rule.view(scene)
    blocks = view.block_mask()
    matrix = view.matrix(700, 700, scene.device)
    tiles = (
        torch.nn.functional.pad(matrix, (0, 68, 0, 68)).unflatten(2, (-1, 128)).unflatten(4, (-1, 128)).any(3).any(4)
    )
    assert (blocks.to_dense().bool() | ~tiles).all()  # no tile that is seen is left out
    assert blocks.mask_mod(torch.tensor(1), 0, torch.tensor(5), torch.tensor(8)) == matrix[1, 0, 5, 8]


@pytest.mark.parametrize("length", [1024, 1000])
@pytest.mark.parametrize("size", [64, 128])
def test_a_kernel_asks_for_no_mask_where_all_of_a_tile_is_seen(length, size):
    rule = Padding() & (NearBlocks(size) | EndBlocks(size) | RandomBlocks(size, 1))
    lengths = torch.tensor([length, 700, 9])
    view = rule.view(Scene(length, length, torch.device("cpu"), key_lengths_B=lengths))
    blocks, matrix = view.block_mask(), view.matrix(length, length, torch.device("cpu"))
    padded = torch.nn.functional.pad(matrix, (0, 1024 - length, 0, 1024 - length))
    whole = padded.unflatten(2, (-1, 128)).unflatten(4, (-1, 128)).all(5).all(3)
    full = torch.zeros(3, 1, 8, 8, dtype=torch.bool)
    for row, tile in itertools.product(range(3), range(8)):
        found = blocks.full_kv_indices[row, 0, tile, : blocks.full_kv_num_blocks[row, 0, tile]]
        full[row, 0, tile, found.long()] = True
    assert torch.equal(full, whole)
    assert full[0].any() and not full[2].any()


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_flex_attention_adds_and_hides_the_same(rule):
    lengths = torch.tensor([90, 31])
    view = (Padding() & rule).view(Scene(90, 90, torch.device("cpu"), key_lengths_B=lengths))
    q, k, v = (part.detach() for part in drawn(2, 90))
    found = flex_attend(q, k, v, view)
    plain, _ = attend(q, k, v, view.matrix(90, 90, q.device), view.added(q.dtype))
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(found[row, :, :length], plain[row, :, :length], rtol=0, atol=1e-6)


@pytest.mark.long
def test_a_compiled_encoder_gives_the_same():
    config = BertConfig(2, 32, 48, 2, max_length=512, dropout=0.0, attention_dropout=0.0, pattern=Blocks(16, 2))
    model = build("bert", config, (50,), Words())
    inputs = TextInputs(torch.randint(5, 50, (2, 300)), torch.tensor([300, 170]))
    found = []
    for run in (model, compiled(model)):
        hidden = run(inputs)[0]
        grads = torch.autograd.grad(hidden.square().sum(), model.parameters(), allow_unused=True)
        found.append((hidden.detach(), grads))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


def test_a_tiling_that_was_first_asked_for_in_an_evaluation_is_trained_with():
    rule = NearBlocks(4) | EndBlocks(4) | RandomBlocks(4, 1, seed=77)
    with torch.inference_mode():
        tiling_of(rule, 72, torch.device("cpu"))
    q, k, v = drawn(1, 72)
    fused_attend(q, k, v, rule.view(Scene(72, 72, torch.device("cpu")))).sum().backward()
    assert k.grad.abs().sum() > 0


def test_gradients_are_the_same_bits_each_time():
    rule, threads = NearBlocks(16) | EndBlocks(16) | RandomBlocks(16, 3), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = []
        for _ in range(4):
            q, k, v = (part.detach().float().requires_grad_() for part in drawn(1, 512))
            fused_attend(q, k, v, rule.view(Scene(512, 512, torch.device("cpu")))).square().sum().backward()
            found.append(k.grad)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize("recipe", ["bigbird", "novels-bigbird", "classify-long", "arena-text"])
def test_recipes_of_long_texts_read_long_texts(recipe):
    run = RECIPES[recipe].make()
    longest = min(getattr(run.data, "length", run.max_length), run.max_length)
    assert longest > (5 + 2 * run.model.pattern.random) * run.model.pattern.size

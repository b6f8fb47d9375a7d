"""The Transformer against torch.nn.Transformer with the same weights, and its two ways of decoding."""

import dataclasses

import pytest
import torch
from rooms import joined
from torch import nn

from headway.batch import TextInputs
from headway.models import parts
from headway.models.transformer import SIZES, Transformer, TransformerConfig
from headway.nn import tap

SMALL = TransformerConfig(encoder_layers=2, decoder_layers=3, width=24, inner=40, heads=4, dropout=0.0)


def twin(model: Transformer) -> nn.Transformer:
    """torch.nn.Transformer with the weights of `model`."""
    config = model.config
    pre = isinstance(config.norm, parts.PreNorm)
    other = nn.Transformer(
        config.width, config.heads, config.encoder_layers, config.decoder_layers, config.inner, 0.0,
        batch_first=True, norm_first=pre, activation="relu", dtype=model.head.weight.dtype,
    )  # fmt: skip
    if not pre:
        other.encoder.norm = other.decoder.norm = None
    with torch.no_grad():
        for mine, theirs in zip(model.encoder.layers, other.encoder.layers, strict=True):
            copy_self(mine.attention, theirs.self_attn)
            copy_rest(mine, theirs, ["around_attention", "around_feed_forward"], ["norm1", "norm2"], pre)
        for mine, theirs in zip(model.decoder.layers, other.decoder.layers, strict=True):
            copy_self(mine.attention, theirs.self_attn)
            theirs.multihead_attn.in_proj_weight.copy_(
                torch.cat([mine.cross.query.weight, mine.cross.key_value.weight])
            )
            theirs.multihead_attn.in_proj_bias.copy_(torch.cat([mine.cross.query.bias, mine.cross.key_value.bias]))
            theirs.multihead_attn.out_proj.load_state_dict(mine.cross.output.state_dict())
            names = ["around_attention", "around_cross", "around_feed_forward"]
            copy_rest(mine, theirs, names, ["norm1", "norm2", "norm3"], pre)
        if pre:
            other.encoder.norm.load_state_dict(model.encoder.final.state_dict())
            other.decoder.norm.load_state_dict(model.decoder.final.state_dict())
    return other


def begun(model, source, lengths=None, room=None):
    return model.start(TextInputs(source, lengths), len(source), source.device, room)


def copy_self(mine, theirs):
    theirs.in_proj_weight.copy_(mine.qkv.weight)
    theirs.in_proj_bias.copy_(mine.qkv.bias)
    theirs.out_proj.load_state_dict(mine.output.state_dict())


def copy_rest(mine, theirs, residuals, norms, pre):
    theirs.linear1.load_state_dict(mine.feed_forward.expand.state_dict())
    theirs.linear2.load_state_dict(mine.feed_forward.contract.state_dict())
    for residual, norm in zip(residuals, norms, strict=True):
        part = getattr(mine, residual)
        getattr(theirs, norm).load_state_dict((part.before if pre else part.outside).state_dict())


def randomise(model):
    """Biases and norms start at 0 and 1: draw them, so that a wrong one shows."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)


@pytest.mark.parametrize("norm", [parts.PostNorm(), parts.PreNorm()], ids=["post", "pre"])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_equals_torch_nn_transformer_with_padding_and_gradients(norm, training, dtype, tolerance):
    torch.manual_seed(1)
    model = Transformer(dataclasses.replace(SMALL, norm=norm), 31, 31).to(dtype).train(training)
    randomise(model)
    other = twin(model).train(training)
    source, target = torch.randint(4, 31, (3, 7)), torch.randint(4, 31, (3, 5))
    lengths = torch.tensor([7, 4, 1])
    padding = torch.arange(7) >= lengths[:, None]
    causal = torch.triu(torch.full((5, 5), -torch.inf, dtype=dtype), 1)

    mine = model(source, target, lengths)
    hidden = other(
        model.embed_source(source), model.embed_target(target), tgt_mask=causal,
        src_key_padding_mask=padding, memory_key_padding_mask=padding,
    )  # fmt: skip
    theirs = model.head(hidden)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=tolerance)

    loss = torch.randn_like(mine)
    (mine * loss).sum().backward()
    table = model.embed_source.table.weight
    expected = table.grad.clone()
    table.grad = None
    (theirs * loss).sum().backward()
    # Through embeddings and head both models share the table: the whole stack's gradient passes through it.
    torch.testing.assert_close(expected, table.grad, rtol=1e-4 if dtype == torch.float32 else 1e-9, atol=tolerance)
    for mine_layer, their_layer in zip(model.decoder.layers, other.decoder.layers, strict=True):
        torch.testing.assert_close(
            mine_layer.attention.qkv.weight.grad, their_layer.self_attn.in_proj_weight.grad,
            rtol=1e-4, atol=10 * tolerance,
        )  # fmt: skip
        torch.testing.assert_close(
            mine_layer.feed_forward.expand.weight.grad, their_layer.linear1.weight.grad, rtol=1e-4, atol=10 * tolerance
        )  # fmt: skip


def decode_in_steps(model, state, target, sizes):
    outputs, at = [], 0
    for size in sizes:
        logits, state = model.logits(target[:, at : at + size], state)
        outputs.append(logits)
        at += size
    return torch.cat(outputs, 1)


@torch.no_grad()
@pytest.mark.parametrize("room", [None, 12], ids=["growing", "fixed"])
@pytest.mark.parametrize("position", [parts.Sinusoidal(), parts.Learned(), parts.NoPosition()])
@pytest.mark.parametrize("feed_forward", [parts.Relu(), parts.Gelu(), parts.Gated()])
def test_cached_decoding_equals_uncached(room, position, feed_forward):
    torch.manual_seed(2)
    config = dataclasses.replace(SMALL, position=position, feed_forward=feed_forward)
    model = Transformer(config, 19, 19).double().eval()
    source, target = torch.randint(4, 19, (3, 6)), torch.randint(4, 19, (3, 7))
    lengths = torch.tensor([6, 2, 5])
    whole = model(source, target, lengths)
    for sizes in ([1] * 7, [3, 4], [2, 1, 4]):
        stepped = decode_in_steps(model, begun(model, source, lengths, room), target, sizes)
        torch.testing.assert_close(stepped, whole, rtol=0, atol=1e-10)


def test_a_padded_batch_gives_what_single_sentences_give():
    torch.manual_seed(3)
    model = Transformer(SMALL, 19, 19).double().eval()
    source, target, lengths = (
        torch.randint(4, 19, (4, 9)),
        torch.randint(4, 19, (4, 5)),
        torch.tensor([9, 1, 3, 6]),
    )
    batch = model(source, target, lengths)
    for row, length in enumerate(lengths):
        alone = model(source[row : row + 1, :length], target[row : row + 1])
        torch.testing.assert_close(batch[row : row + 1], alone, rtol=0, atol=1e-10)


@torch.no_grad()
def test_hypotheses_of_one_source_share_its_memory_and_reorder_in_their_group():
    torch.manual_seed(4)
    model = Transformer(SMALL, 19, 19).double().eval()
    source, lengths = torch.randint(4, 19, (2, 6)), torch.tensor([6, 3])
    prefixes = torch.randint(4, 19, (6, 4))
    state = begun(model, source, lengths, 8)
    state.widen(3)
    model.logits(prefixes, state)
    rows = torch.tensor([2, 2, 0, 3, 5, 4])
    state.reorder(rows)
    assert state["memories"][0].k_BHSK.shape[0] == 2
    after = torch.randint(4, 19, (6, 1))
    logits, _ = model.logits(after, state)
    whole = model(source.repeat_interleave(3, 0), torch.cat([prefixes[rows], after], 1), lengths.repeat_interleave(3))
    torch.testing.assert_close(logits[:, 0], whole[:, -1], rtol=0, atol=1e-10)


@torch.no_grad()
def test_keep_takes_sources_with_their_hypotheses_and_fork_copies():
    torch.manual_seed(5)
    model = Transformer(SMALL, 19, 19).double().eval()
    source, lengths = torch.randint(4, 19, (3, 6)), torch.tensor([6, 3, 5])
    prefixes, after = torch.randint(4, 19, (6, 3)), torch.randint(4, 19, (4, 1))
    state = begun(model, source, lengths, 8)
    state.widen(2)
    model.logits(prefixes, state)
    fork = state.fork()
    state.keep(torch.tensor([2, 0]))
    logits, _ = model.logits(after, state)
    kept = prefixes[[4, 5, 0, 1]]
    whole = model(source[[2, 2, 0, 0]], torch.cat([kept, after], 1), lengths[[2, 2, 0, 0]])
    torch.testing.assert_close(logits[:, 0], whole[:, -1], rtol=0, atol=1e-10)
    again, _ = model.logits(torch.full((6, 1), 7), fork)
    whole = model(
        source.repeat_interleave(2, 0),
        torch.cat([prefixes, torch.full((6, 1), 7)], 1),
        lengths.repeat_interleave(2),
    )
    torch.testing.assert_close(again[:, 0], whole[:, -1], rtol=0, atol=1e-10)


@torch.no_grad()
def test_rows_of_different_age_step_together():
    torch.manual_seed(6)
    model = Transformer(SMALL, 19, 19).double().eval()
    source = torch.randint(4, 19, (3, 6))
    old = begun(model, source[:2], torch.tensor([6, 4]), 9)
    prefix = torch.randint(4, 19, (2, 3))
    model.logits(prefix, old)
    joined_state = joined([old, begun(model, source[2:, :5], torch.tensor([5]), 9)], 9, source_length=7)
    steps = torch.randint(4, 19, (3, 2))
    for t in range(2):
        logits, joined_state = model.logits(steps[:, t : t + 1], joined_state)
    first = model(source[:2], torch.cat([prefix, steps[:2]], 1), torch.tensor([6, 4]))
    second = model(source[2:, :5], steps[2:])
    torch.testing.assert_close(logits[:2, 0], first[:, -1], rtol=0, atol=1e-10)
    torch.testing.assert_close(logits[2, 0], second[0, -1], rtol=0, atol=1e-10)


def test_taps_record_the_weights_that_the_fused_path_used():
    torch.manual_seed(7)
    model = Transformer(SMALL, 19, 19).double().eval()
    source, target, lengths = torch.randint(4, 19, (2, 6)), torch.randint(4, 19, (2, 5)), torch.tensor([6, 3])
    fused = model(source, target, lengths)
    with tap.record(model, tap.chosen(tensors="weights")) as recorder:
        readable = model(source, target, lengths)
    torch.testing.assert_close(readable, fused, rtol=0, atol=1e-10)
    assert set(recorder.tensors) == {
        *(f"encoder.{i}.attention.weights" for i in range(2)),
        *(f"decoder.{i}.{site}.weights" for i in range(3) for site in ("attention", "cross")),
    }
    weights = recorder.tensors["decoder.2.cross.weights"]
    assert weights.shape == (2, 4, 5, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 5, dtype=torch.float64))
    assert weights[1, :, :, 3:].abs().max() == 0
    assert not tap.recording()


def test_named_sizes_and_the_three_kinds_of_embedding():
    counts = {}
    for kind in ("shared", "tied", "separate"):
        model = Transformer(dataclasses.replace(SIZES["tiny"], embeddings=kind), 1000, 1000)
        counts[kind] = sum(p.numel() for p in model.parameters())
    assert counts["tied"] - counts["shared"] == counts["separate"] - counts["tied"] == 1000 * 128
    base = SIZES["base"]
    assert (base.encoder_layers, base.width, base.inner, base.heads) == (6, 512, 2048, 8)
    # Vaswani et al. 2017, table 3: 65 million for base with 37,000 joint tokens, 213 million for big.
    for size, millions in (("base", 63.1), ("big", 214.2)):
        with torch.device("meta"):
            model = Transformer(SIZES[size], 37_000, 37_000)
        assert round(sum(p.numel() for p in model.parameters()) / 1e6, 1) == millions


def test_without_positions_the_encoder_is_permutation_equivariant():
    torch.manual_seed(8)
    model = Transformer(dataclasses.replace(SMALL, position=parts.NoPosition()), 19, 19).double().eval()
    source, order = torch.randint(4, 19, (1, 6)), torch.randperm(6)
    a, b = (begun(model, ids)["memories"][0].k_BHSK for ids in (source, source[:, order]))
    torch.testing.assert_close(a[:, :, order], b, rtol=0, atol=1e-10)

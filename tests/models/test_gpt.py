"""GPT against Hugging Face's GPT-2 with copied weights, and against itself: cached, padded, packed."""

from dataclasses import replace

import pytest
import torch
import transformers

from headway.models import parts
from headway.models.gpt import GPT, SIZES, GPTConfig

CONFIG = GPTConfig(3, 48, heads=4, position=parts.Learned(), feed_forward=parts.Gelu(approximate="tanh"), max_length=32)
POSITIONS = [
    parts.Learned(), parts.Sinusoidal(), parts.Rotary(), parts.RelativeBias(), parts.LinearBias(), parts.NoPosition(),
    parts.Index(), parts.Index(everywhere=False),
]  # fmt: skip
each_position = pytest.mark.parametrize("position", POSITIONS, ids=lambda choice: choice.name)


def twins(config=CONFIG, vocabulary=101):
    """Ours and Hugging Face's with the same weights, float64. Their layers are transposed."""
    torch.manual_seed(0)
    mine = GPT(config, vocabulary).double().eval()
    settings = transformers.GPT2Config(
        vocab_size=vocabulary, n_positions=config.max_length, n_embd=config.width, n_layer=config.layers,
        n_head=config.heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    theirs = transformers.GPT2LMHeadModel._from_config(settings, attn_implementation="eager").double().eval()
    with torch.no_grad():
        for weight in mine.parameters():
            if weight.dim() == 1:  # biases and norms too must differ from their first values
                weight.add_(0.1 * torch.randn_like(weight))
        for theirs_weight, my_weight in pairs(mine, theirs):
            theirs_weight.copy_(my_weight.T if turned(theirs_weight, my_weight) else my_weight[: len(theirs_weight)])
    return mine, theirs


def turned(theirs, mine):
    return theirs.dim() == 2 and theirs.shape == mine.T.shape and not getattr(theirs, "straight", False)


def pairs(mine, theirs):
    core = theirs.transformer
    for straight in (core.wte.weight, core.wpe.weight):
        straight.straight = True
    yield core.wte.weight, mine.embed.table.weight
    yield core.wpe.weight, mine.embed.position.table.weight
    for block, other in zip(mine.decoder.layers, core.h, strict=True):
        for a, b in (
            (other.ln_1, block.around_attention.before),
            (other.attn.c_attn, block.attention.qkv),
            (other.attn.c_proj, block.attention.output),
            (other.ln_2, block.around_feed_forward.before),
            (other.mlp.c_fc, block.feed_forward.expand),
            (other.mlp.c_proj, block.feed_forward.contract),
        ):
            yield a.weight, b.weight
            yield a.bias, b.bias
    yield core.ln_f.weight, mine.decoder.final.weight
    yield core.ln_f.bias, mine.decoder.final.bias


def test_equals_hugging_faces_gpt2_forward_and_backward():
    mine, theirs = twins()
    ids = torch.randint(0, 101, (3, 17))
    logits, _ = mine(ids)
    expected = theirs(ids).logits
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-10)
    probe = torch.randn_like(logits)
    (logits * probe).sum().backward()
    (expected * probe).sum().backward()
    for a, b in pairs(mine, theirs):
        grad = b.grad.T if turned(a, b) else b.grad[: len(a)]
        torch.testing.assert_close(grad, a.grad, rtol=0, atol=1e-9)


def test_equals_hugging_faces_gpt2_with_a_cache():
    mine, theirs = twins()
    ids = torch.randint(0, 101, (2, 12))
    cache, state = None, mine.start(None, 2, ids.device, room=16)
    with torch.inference_mode():
        for at in (slice(0, 5), *(slice(t, t + 1) for t in range(5, 12))):
            found = theirs(ids[:, at], past_key_values=cache, use_cache=True)
            cache = found.past_key_values
            logits, state = mine(ids[:, at], state)
            torch.testing.assert_close(logits, found.logits, rtol=0, atol=1e-10)


@each_position
def test_cached_equals_uncached(position):
    torch.manual_seed(1)
    config = replace(CONFIG, position=position, shared_heads=2, feed_forward=parts.Gated(), bias=False)
    model = GPT(config, 60).double().eval()
    ids = torch.randint(0, 60, (2, 14))
    whole, _ = model(ids)
    for room in (None, 20):
        state = model.start(None, 2, ids.device, room)
        with torch.no_grad():
            found = [model(ids[:, :6], state)[0], *(model(ids[:, t : t + 1], state)[0] for t in range(6, 14))]
        torch.testing.assert_close(torch.cat(found, 1), whole, rtol=0, atol=1e-6)


@each_position
def test_rows_of_different_lengths_go_on_as_if_alone(position):
    torch.manual_seed(2)
    model = GPT(replace(CONFIG, position=position), 60).double().eval()
    rows = [torch.randint(0, 60, (n,)) for n in (3, 7, 5)]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    more = torch.randint(0, 60, (3, 4))
    with torch.no_grad():
        state = model.start(None, 3, padded.device, room=16)
        model(padded, state)
        state.advance(0, torch.tensor([3, 7, 5]))
        found = torch.cat([model(more[:, t : t + 1], state)[0] for t in range(4)], 1)
        for row, ids in enumerate(rows):
            alone, _ = model(torch.cat([ids, more[row]])[None])
            torch.testing.assert_close(found[row], alone[0, len(ids) :], rtol=0, atol=1e-6)


POSITIONS = [parts.Learned(), parts.Sinusoidal(), parts.Rotary(), parts.LinearBias(), parts.RelativeBias()]


@pytest.mark.parametrize("position", POSITIONS, ids=lambda p: p.name)
def test_packed_documents_are_as_documents_alone(position):
    """A document does not know where in a window it stands."""
    torch.manual_seed(3)
    model = GPT(replace(CONFIG, position=position), 60).double().eval()
    documents = [torch.randint(0, 60, (n,)) for n in (4, 9, 6)]
    segments = torch.cat([torch.full((len(d),), i) for i, d in enumerate(documents)])[None]
    packed, _ = model(torch.cat(documents)[None], segments_BT=segments)
    alone = torch.cat([model(d[None])[0] for d in documents], 1)
    torch.testing.assert_close(packed, alone, rtol=0, atol=1e-6)


def test_the_head_has_rows_for_the_hardware_that_are_no_tokens():
    model = GPT(CONFIG, 101)
    assert len(model.output.weight) == 128 and model.output.weight is model.embed.table.weight
    assert model(torch.zeros(1, 2, dtype=torch.long))[0].shape == (1, 2, 101)


@pytest.mark.parametrize(("size", "millions"), [("124M", 124.4), ("355M", 354.8), ("774M", 774.0), ("1.5B", 1557.6)])
def test_sizes_are_those_of_gpt2(size, millions):
    with torch.device("meta"):
        model = GPT(SIZES[size], 50257)
    count = sum(weight.numel() for weight in model.parameters()) - (50304 - 50257) * SIZES[size].width
    assert count / 1e6 == pytest.approx(millions, abs=0.05)


def test_the_character_model_has_nanogpts_size():
    with torch.device("meta"):
        model = GPT(SIZES["char"], 65)
    positions = 256 * 384
    assert sum(w.numel() for w in model.parameters()) - positions == pytest.approx(10.65e6, abs=0.05e6)


def test_dropped_words_are_gone_wherever_they_stand_and_only_in_training():
    torch.manual_seed(0)
    model = GPT(GPTConfig(1, 16, heads=2, word_dropout=0.5, max_length=32), 40)
    ids_BT = torch.randint(40, (4, 32))
    rows_BTD = model.embed.words(torch.ones(4, 32, 3), ids_BT)
    for word in ids_BT.unique():
        there = rows_BTD[ids_BT == word]
        assert there.unique().numel() == 1 and there[0, 0].item() in (0.0, 2.0)
    assert 0.0 in rows_BTD and 2.0 in rows_BTD
    model.eval()
    torch.testing.assert_close(model.embed.words(torch.ones(4, 32, 3), ids_BT), torch.ones(4, 32, 3))

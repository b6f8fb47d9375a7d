"""The rungs of the ladder: the bag of words against attention with equal weights, each against itself stepped,
padded and packed, and the last one against GPT."""

from dataclasses import fields, replace

import pytest
import torch
from rooms import joined

from headway.errors import InputError
from headway.models import parts
from headway.models.gpt import GPT, GPTConfig
from headway.models.rung import BAG, RUNGS, STACK, Attention, Rung, RungConfig, Uniform
from headway.nn import tap
from headway.nn.attention import attend
from headway.nn.bag import RunningMean, uniform
from headway.nn.mask import Causal, Scene
from headway.plain import from_plain, to_plain

VOCABULARY = 41
SMALL = {name: replace(config, width=16, max_length=24) for name, config in RUNGS.items()}
# Beyond the ladder: means in a stack, with positions, with residuals; positions that are learned, turn or bias.
SMALL |= {
    "means": replace(SMALL["stack"], mixing=Uniform(), layers=3),
    "rotary": replace(SMALL["heads"], position=parts.Rotary(), tied=True),
    "learned": replace(SMALL["bow"], position=parts.Learned(), tied=True),
    "sinusoidal": replace(SMALL["stack"], position=parts.Sinusoidal(), layers=2),
    "bias": replace(SMALL["stack"], position=parts.LinearBias(), norm=parts.PreNorm(), layers=2),
}
each_rung = pytest.mark.parametrize("name", SMALL)


def made(name, seed=0):
    torch.manual_seed(seed)
    model = Rung(SMALL[name], VOCABULARY).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return model, torch.randint(4, VOCABULARY, (3, 14))


def close(found, expected):
    # Sinusoids and turns are float32 tables.
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6 if found.dtype == torch.float64 else 1e-4)


def test_the_bag_of_words_is_the_decks_formula():
    """h = tanh(W′ 1/i Σ_j φ(x_j) + b′), softmax(W″h + b″), word by word."""
    model, ids = made("bow")
    logits, _ = model(ids)
    layer, output = model.decoder.layers[0].feed_forward.map, model.output.weight
    for row in range(3):
        for i in range(1, 15):
            mean = sum(model.embed.table.weight[word] * 4.0 for word in ids[row, :i].tolist()) / i
            h = torch.tanh(layer.weight @ mean + layer.bias)
            expected = output[:, :-1] @ h + output[:, -1]
            torch.testing.assert_close(logits[row, i - 1], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name, config in SMALL.items() if isinstance(config.mixing, Uniform)])
def test_the_running_mean_is_attention_with_equal_weights(name):
    """The same module with its mean replaced by `attend` under a score that is 0 for every pair."""
    model, ids = made(name)
    whole, _ = model(ids)
    segments = torch.tensor([0] * 5 + [1] * 6 + [2] * 3).expand(3, -1)
    packed, _ = model(ids, segments_BT=segments)

    class EqualAttention(torch.nn.Module):
        def forward(self, x_BTD, view, cache=None):
            x_BHTK = x_BTD[:, None]
            seen = view.matrix(x_BTD.shape[1], x_BTD.shape[1], x_BTD.device)
            return attend(x_BHTK, x_BHTK, x_BHTK, seen, score=uniform)[0][:, 0]

    for block in model.decoder.layers:
        block.attention = EqualAttention()
    torch.testing.assert_close(whole, model(ids)[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(packed, model(ids, segments_BT=segments)[0], rtol=0, atol=1e-12)


def test_the_means_gradient_is_that_of_attention():
    x_BTD = torch.randn(2, 7, 5, dtype=torch.float64, requires_grad=True)
    view = Causal().view(Scene(7, 7, x_BTD.device))
    probe = torch.randn(2, 7, 5, dtype=torch.float64)
    x_BHTK = x_BTD[:, None]
    slow = attend(x_BHTK, x_BHTK, x_BHTK, view.matrix(7, 7, x_BTD.device), score=uniform)[0][:, 0]
    grads = [torch.autograd.grad((z * probe).sum(), x_BTD)[0] for z in (RunningMean()(x_BTD, view), slow)]
    torch.testing.assert_close(*grads, rtol=0, atol=1e-12)


@each_rung
def test_a_recorder_sees_the_weights_of_every_rung(name):
    model, ids = made(name)
    plain, _ = model(ids)
    with tap.record(model, tap.chosen(tensors="weights")) as recorder:
        seen, _ = model(ids)
    close(seen, plain)
    heads = model.config.mixing.heads
    assert len(recorder.tensors) == model.config.layers
    for weights in recorder.tensors.values():
        assert weights.shape == (3, heads, 14, 14)
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, heads, 14, dtype=torch.float64))
        assert (weights.triu(1) == 0).all()
    if isinstance(model.config.mixing, Uniform):
        torch.testing.assert_close(weights[0, 0, 4, :5], torch.full((5,), 0.2, dtype=torch.float64))


@each_rung
def test_a_text_in_pieces_is_the_text_at_once(name):
    model, ids = made(name)
    whole, _ = model(ids)
    for room in (None, 20):
        state = model.start(None, 3, ids.device, room)
        with torch.no_grad():
            found = [model(ids[:, :6], state)[0], *(model(ids[:, t : t + 1], state)[0] for t in range(6, 14))]
        close(torch.cat(found, 1), whole)


@each_rung
def test_rows_of_different_lengths_go_on_as_if_alone(name):
    model, ids = made(name)
    more = torch.randint(4, VOCABULARY, (3, 4))
    lengths = torch.tensor([3, 14, 5])
    with torch.no_grad():
        _, state = model.read(ids, model.start(None, 3, ids.device, room=22), lengths_R=lengths)
        _, state = model.read(more[:, :2], state, lengths_R=torch.tensor([2, 1, 2]))
        found = torch.cat([model(more[:, t : t + 1], state)[0] for t in (2, 3)], 1)
        for row, (first, second) in enumerate(zip((3, 14, 5), (2, 1, 2), strict=True)):
            alone = torch.cat([ids[row, :first], more[row, :second], more[row, 2:]])[None]
            close(found[row], model(alone)[0][0, -2:])


@pytest.mark.parametrize("name", ["bow", "attention", "rotary", "bias"])
def test_packed_documents_are_as_documents_alone(name):
    """With positions that are added, a document knows where in the window it stands."""
    model, ids = made(name)
    documents = ids[0].split([2, 8, 4])
    segments = torch.cat([torch.full((len(d),), i) for i, d in enumerate(documents)])[None]
    packed, _ = model(ids[:1], segments_BT=segments)
    close(packed, torch.cat([model(d[None])[0] for d in documents], 1))


@pytest.mark.parametrize("name", ["bow", "means", "stack"])
def test_the_states_rows_are_kept_repeated_joined_and_forked(name):
    model, ids = made(name)
    with torch.no_grad():
        _, state = model.read(ids, model.start(None, 3, ids.device, room=20))
        _, other = model.read(ids[:2, :9], model.start(None, 2, ids.device, room=20))
        untouched = model.start(None, 1, ids.device, room=20)
        twin, together = state.fork(), joined([state, other, untouched], 20)
        state.keep(torch.tensor([2, 0, 0]))
        state.widen(2)
        state.reorder(torch.tensor([1, 0, 2, 3, 4, 5]))
        step = torch.full((6, 1), 9)
        expected = model(torch.cat([ids, step[:3]], 1))[0][:, -1:]
        shorter = model(torch.cat([ids[:2, :9], step[:2]], 1))[0][:, -1:]
        close(model(step, state)[0], expected[[2, 2, 0, 0, 0, 0]])
        close(model(step[:3], twin)[0], expected)
        close(model(step, together)[0], torch.cat([expected, shorter, model(step[:1])[0]]))


@pytest.mark.parametrize("name", ["bow", "attention", "positions"])
def test_order_counts_from_positions_on_and_not_before(name):
    """The same words in another order, the last one in its place."""
    model, ids = made(name)
    mixed = torch.cat([ids[:, :-1].flip(1), ids[:, -1:]], 1)
    same = torch.allclose(model(ids)[0][:, -1], model(mixed)[0][:, -1], rtol=0, atol=1e-12)
    assert same == (name != "positions")


@pytest.mark.parametrize("name", ["bow", "attention"])
def test_the_latest_word_asks_from_attention_on(name):
    """Two words change places, one of them the latest: a bag holds the same."""
    model, ids = made(name)
    ids[:, 4], ids[:, 13] = 7, 8
    turned = ids.clone()
    turned[:, 4], turned[:, 13] = 8, 7
    same = torch.allclose(model(ids)[0][:, -1], model(turned)[0][:, -1], rtol=0, atol=1e-12)
    assert same == (name == "bow")


def test_a_rung_is_one_step_from_the_one_before():
    names = list(RUNGS)
    assert names == ["bow", "attention", "positions", "heads", "block", "stack"]
    steps = [
        {f.name for f in fields(RungConfig) if getattr(RUNGS[a], f.name) != getattr(RUNGS[b], f.name)}
        for a, b in zip(names, names[1:], strict=False)
    ]
    assert steps == [{"mixing"}, {"position"}, {"mixing"}, {"norm", "feed_forward"}, {"layers"}]


def test_the_last_rung_is_a_gpt_with_the_norm_outside():
    torch.manual_seed(0)
    config = replace(STACK, width=16, layers=2, max_length=24)
    rung = Rung(config, VOCABULARY).double().eval()
    gpt = GPT(
        GPTConfig(2, 16, heads=4, tied=False, position=config.position, norm=config.norm, max_length=24), VOCABULARY
    )  # fmt: skip
    gpt = gpt.double().eval()
    mine = dict(rung.named_parameters())
    with torch.no_grad():
        for name, weight in gpt.named_parameters():
            if name == "embed.table.weight":
                weight[:VOCABULARY] = mine[name] * 4.0  # √D, which a GPT leaves out
            elif name == "output.weight":
                weight[:VOCABULARY] = mine[name][:, :-1]  # it has no bias either; that of a fresh rung is 0
            else:
                weight.copy_(mine[name])
    ids = torch.randint(4, VOCABULARY, (2, 10))
    close(rung(ids)[0], gpt(ids)[0])


def test_a_config_comes_back_from_json_and_wrong_heads_are_refused():
    for config in RUNGS.values():
        assert from_plain(RungConfig, to_plain(config)) == config
    with pytest.raises(InputError, match="model.width 128 is not a multiple of model.mixing.heads 3"):
        replace(BAG, mixing=Attention(heads=3))


def test_half_precision_adds_up_in_full():
    """300 equal vectors: a sum in bfloat16 would stop growing at 256."""
    x_BTD = torch.ones(1, 300, 4, dtype=torch.bfloat16)
    z_BTD = RunningMean()(x_BTD, Causal().view(Scene(300, 300, x_BTD.device)))
    assert z_BTD.dtype == torch.bfloat16 and (z_BTD == 1).all()

"""A window with attention sinks: one state of constant size, and the same numbers however a text is read."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from rooms import joined

from headway.card import Loaded
from headway.errors import InputError
from headway.hub.families import ctranslate2_decoders
from headway.hub.onnx_graphs import decoder_only
from headway.models import decoder_parts as own
from headway.models.decoder import Decoder, DecoderConfig
from headway.models.parts import Room
from headway.nn.attention import attend, fused_attend
from headway.nn.mask import Scene
from headway.nn.sinks import FirstAndLast

CONFIG = DecoderConfig(layers=2, width=32, heads=4, shared_heads=2, max_length=32, pattern=own.Sinks(8, 2))
VOCABULARY = 50


@pytest.fixture(scope="module")
def model() -> Decoder:
    torch.manual_seed(0)
    found = Decoder(CONFIG, VOCABULARY).eval().double()
    for weight in found.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return found


def by_hand(query: int, key: int, window: int, sinks: int) -> bool:
    return key <= query and (query - key < window or key < sinks)


@pytest.mark.parametrize("window, sinks", [(8, 2), (1, 0), (5, 0), (3, 30), (100, 4)])
def test_the_rule_is_that_of_the_paper(window, sinks):
    length = 24
    seen = FirstAndLast(window, sinks).matrix(Scene(length, length, torch.device("cpu")))[0, 0]
    assert seen.tolist() == [[by_hand(q, k, window, sinks) for k in range(length)] for q in range(length)]


@pytest.mark.parametrize("window, sinks, length", [(64, 4, 640), (65, 1, 700), (1, 0, 500), (100, 70, 1000)])
def test_tiles_give_what_the_matrix_gives(window, sinks, length):
    view = FirstAndLast(window, sinks).view(Scene(length, length, torch.device("cpu")))
    assert view.tiling() is not None
    draw = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(1, 2, length, 4, generator=draw, dtype=torch.float64).requires_grad_() for _ in range(3))
    fast, (plain, _) = fused_attend(q, k, v, view), attend(q, k, v, view.matrix(length, length, q.device))
    torch.testing.assert_close(fast, plain, rtol=0, atol=1e-12)
    for one, other in zip(*(torch.autograd.grad((x**2).sum(), (q, k, v)) for x in (fast, plain)), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("parts", [[1] * 41, [5, *[1] * 36], [20, 1, 1, 7, 12], [1, 40], [3, 3, 35]], ids=str)
def test_a_text_in_parts_gives_what_the_whole_gives(model, parts):
    ids = torch.randint(1, VOCABULARY, (3, sum(parts)))
    with torch.no_grad():
        whole, _ = model.logits(ids, model.start(None, 3, ids.device, 0))
        for room in (None, 64):
            state, found = model.start(None, 3, ids.device, room), []
            for part in ids.split(parts, 1):
                logits, state = model.logits(part, state)
                found.append(logits)
            torch.testing.assert_close(torch.cat(found, 1), whole, rtol=0, atol=1e-12)


def test_gradients_pass_through_the_state(model):
    ids = torch.randint(1, VOCABULARY, (2, 30))
    found = []
    for sizes in ([30], [11, 1, 18]):
        state, total = model.start(None, 2, ids.device), 0
        for part in ids.split(sizes, 1):
            logits, state = model.logits(part, state)
            total = total + logits.sin().sum()
        found.append(torch.autograd.grad(total, list(model.parameters())))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_rows_of_different_lengths_continue_as_each_alone(model):
    texts = [torch.randint(1, VOCABULARY, (1, length)) for length in (3, 27, 12)]
    nexts = torch.randint(1, VOCABULARY, (3, 15))
    with torch.inference_mode():
        states, alone = [], []
        for text, more in zip(texts, nexts, strict=True):
            states.append(model.logits(text, model.start(None, 1, text.device, 64))[1])
            alone.append(model.logits(torch.cat([text, more[None]], 1))[0][:, -len(more) :])
        state, found = joined(states, 64), []
        for at in range(nexts.shape[1]):
            logits, state = model.logits(nexts[:, at : at + 1], state)
            found.append(logits)
    torch.testing.assert_close(torch.cat(found, 1), torch.cat(alone), rtol=0, atol=1e-12)


def test_the_state_is_as_large_after_many_tokens_as_after_few(model):
    state, sizes = model.start(None, 1, torch.device("cpu")), []
    with torch.inference_mode():
        for _ in range(10):
            _, state = model.logits(torch.randint(1, VOCABULARY, (1, 100)), state)
            sizes.append(sum(part.numel() for part in state.parts()))
    assert state.time.longest == 1000 and set(sizes) == {2 * 2 * 2 * 10 * 8}  # layers, both, heads, places, width


def test_no_text_is_too_long(model):
    assert model.context is None
    assert Decoder(replace(CONFIG, pattern=own.Earlier()), VOCABULARY).context == CONFIG.max_length


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"position": own.KeyBiases()}, "position=turned"),
        ({"window": 4, "windowed": (0,)}, "windowed"),
    ],
)
def test_what_does_not_fit_is_refused(changed, message):
    with pytest.raises(InputError, match=message):
        Decoder(replace(CONFIG, **changed), VOCABULARY)


@pytest.mark.parametrize("wrong", [{"window": 0}, {"sinks": -1}])
def test_a_pattern_of_nothing_is_refused(wrong):
    with pytest.raises(InputError, match="model.pattern"):
        own.Sinks(**wrong)


def test_engines_that_keep_every_token_do_not_take_it(model):
    with pytest.raises(InputError, match="model.pattern=sinks"):
        ctranslate2_decoders._check(CONFIG)
    with pytest.raises(InputError, match="model.pattern=sinks"):
        decoder_only(Loaded(model, None, {}))


@pytest.mark.parametrize("turned", [own.Turned(), own.Turned(turned=4, neighbours=True)], ids=["whole", "partly"])
def test_turns_without_a_table_are_those_of_the_table(turned):
    room = Room(32, 4, 64)
    table, computed = turned.build(room), turned.build(room, endless=True)
    q, k = torch.randn(2, 2, 4, 5, 8)
    for start in (0, 17, torch.tensor([3, 50])):
        for one, other in zip(table.rotate(q, k, start), computed.rotate(q, k, start), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
    computed.rotate(q, k, 10_000_000)
    assert len(computed.cos_PK) == 64  # nothing grows


def test_a_short_text_takes_the_causal_kernel():
    view = FirstAndLast(8, 2).view(Scene(8, 8, torch.device("cpu")))
    assert view.causal and not FirstAndLast(8, 2).view(Scene(9, 9, torch.device("cpu"))).causal

"""Taps: what they show is what the equations give, and what nobody asks for costs nothing."""

from __future__ import annotations

import dataclasses

import numpy as np
import plain_numbers as plain
import pytest
import torch
import torch._dynamo
from torch import nn

from headway.batch import TextInputs
from headway.compiling import compiled
from headway.errors import InputError
from headway.models import parts
from headway.models.bert import Bert, BertConfig
from headway.models.gpt import GPT, GPTConfig
from headway.models.llama import Llama, LlamaConfig
from headway.models.rung import RUNGS, Rung, Uniform
from headway.models.transformer import Transformer, TransformerConfig
from headway.nn import attention, tap

V = 23
TINY_GPT = GPTConfig(2, 12, heads=3, max_length=16)


def close(found: dict[str, torch.Tensor], expected: dict[str, np.ndarray], atol: float = 1e-10) -> None:
    assert set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name].numpy(), values, rtol=0, atol=atol, err_msg=name)


def drawn(model: nn.Module, scale: float = 0.3) -> nn.Module:
    """No weight at its first value: zeros and ones would hide a mistake."""
    for weight in model.parameters():
        nn.init.normal_(weight, std=scale)
    return model.double().eval()


def test_encoder_decoder_and_cross_attention_with_padding_are_plain_matrix_products():
    torch.manual_seed(0)
    config = TransformerConfig(2, 2, 12, 20, 3, max_length=16)
    model = drawn(Transformer(config, V, V))
    source, target, lengths = torch.randint(4, V, (2, 7)), torch.randint(4, V, (2, 5)), torch.tensor([7, 4])
    with tap.record(model) as recorder:
        model(source, target, lengths)
    w, expected = plain.weights_of(model), {}

    def embedded(name, ids):
        tokens = w[f"{name}.table.weight"][ids] * np.sqrt(12)
        # headway keeps its table of sinusoids in float32.
        places = np.broadcast_to(plain.sinusoids(ids.shape[1], 12).astype(np.float32), tokens.shape)
        plain.collect(expected, name, {"tokens": tokens, "position": places, "hidden": tokens + places})
        return tokens + places

    def after(x, name, sublayer):
        return plain.layer_norm(w, f"{name}.outside", x + sublayer)

    x = embedded("embed_source", source.numpy())
    own = np.broadcast_to(np.arange(7) < lengths.numpy()[:, None, None], (2, 7, 7))
    for n in range(2):
        mixed, seen = plain.attention(w, f"encoder.layers.{n}.attention", x, 3, own)
        plain.collect(expected, f"encoder.{n}.attention", seen)
        x = after(x, f"encoder.layers.{n}.around_attention", mixed)
        inner = plain.feed_forward(w, f"encoder.layers.{n}.feed_forward", x, plain.relu)
        x = expected[f"encoder.{n}.hidden"] = after(x, f"encoder.layers.{n}.around_feed_forward", inner)
    memory = expected["encoder.hidden"] = x
    y = embedded("embed_target", target.numpy())
    before, sees = np.broadcast_to(np.tri(5, dtype=bool), (2, 5, 5)), np.broadcast_to(own[:, :1], (2, 5, 7))
    for n in range(2):
        block = f"decoder.layers.{n}"
        mixed, seen = plain.attention(w, f"{block}.attention", y, 3, before)
        plain.collect(expected, f"decoder.{n}.attention", seen)
        y = after(y, f"{block}.around_attention", mixed)
        mixed, seen = plain.attention(w, f"{block}.cross", y, 3, sees, source_BSD=memory)
        plain.collect(expected, f"decoder.{n}.cross", seen)
        y = after(y, f"{block}.around_cross", mixed)
        inner = plain.feed_forward(w, f"{block}.feed_forward", y, plain.relu)
        y = expected[f"decoder.{n}.hidden"] = after(y, f"{block}.around_feed_forward", inner)
    expected["decoder.hidden"], expected["logits"] = y, y @ w["head.weight"].T
    close(recorder.tensors, expected)


def gpt_by_hand(model: GPT, ids: np.ndarray) -> dict[str, np.ndarray]:
    w, expected, heads = plain.weights_of(model), {}, model.config.heads
    tokens = w["embed.table.weight"][ids]
    places = np.broadcast_to(w["embed.position.table.weight"][: ids.shape[1]], tokens.shape)
    x = tokens + places
    plain.collect(expected, "embed", {"tokens": tokens, "position": places, "hidden": x})
    before = np.broadcast_to(np.tri(ids.shape[1], dtype=bool), (*ids.shape, ids.shape[1]))
    for n in range(model.config.layers):
        block = f"decoder.layers.{n}"
        normed = plain.layer_norm(w, f"{block}.around_attention.before", x)
        mixed, seen = plain.attention(w, f"{block}.attention", normed, heads, before)
        plain.collect(expected, f"decoder.{n}.attention", seen)
        x = x + mixed
        normed = plain.layer_norm(w, f"{block}.around_feed_forward.before", x)
        x = expected[f"decoder.{n}.hidden"] = x + plain.feed_forward(w, f"{block}.feed_forward", normed, plain.gelu)
    x = expected["decoder.hidden"] = plain.layer_norm(w, "decoder.final", x)
    expected["logits"] = (x @ w["output.weight"].T)[..., :V]
    return expected


def test_gpt_is_plain_matrix_products():
    torch.manual_seed(1)
    model, ids = drawn(GPT(TINY_GPT, V)), torch.randint(4, V, (2, 9))
    with tap.record(model) as recorder:
        model(ids)
    close(recorder.tensors, gpt_by_hand(model, ids.numpy()))


@pytest.mark.parametrize("name", RUNGS)
def test_every_rung_of_the_ladder_is_plain_matrix_products(name):
    torch.manual_seed(2)
    model = drawn(Rung(dataclasses.replace(RUNGS[name], width=12, max_length=16), V))
    config, ids = model.config, torch.randint(4, V, (2, 9))
    with tap.record(model) as recorder:
        model(ids)
    w, expected = plain.weights_of(model), {}
    x = w["embed.table.weight"][ids.numpy()] * np.sqrt(12)
    plain.collect(expected, "embed", {"tokens": x, "hidden": x})
    before = np.broadcast_to(np.tri(9, dtype=bool), (2, 9, 9))
    bias = 0.0
    if isinstance(config.position, parts.RelativeBias):
        far = np.arange(9)[:, None] - np.arange(9)  # near distances have a bucket each; none looks ahead
        bias = w["embed.position.table.weight"][np.maximum(far, 0)].transpose(2, 0, 1)

    def around(block, which, x, sublayer):
        if f"{block}.around_{which}.outside.weight" in w:
            return plain.layer_norm(w, f"{block}.around_{which}.outside", x + sublayer)
        return sublayer

    for n in range(config.layers):
        block = f"decoder.layers.{n}"
        if isinstance(config.mixing, Uniform):
            shares = before / before.sum(-1, keepdims=True)
            mixed = shares @ x
            expected[f"decoder.{n}.attention.weights"] = shares[:, None]
        else:
            mixed, seen = plain.attention(w, f"{block}.attention", x, config.mixing.heads, before, bias_HTS=bias)
            plain.collect(expected, f"decoder.{n}.attention", seen)
        x = around(block, "attention", x, mixed)
        if f"{block}.feed_forward.map.weight" in w:
            inner = np.tanh(plain.linear(w, f"{block}.feed_forward.map", x))
        else:
            inner = plain.feed_forward(w, f"{block}.feed_forward", x, plain.gelu)
        x = expected[f"decoder.{n}.hidden"] = around(block, "feed_forward", x, inner)
    expected["decoder.hidden"] = x
    expected["logits"] = np.concatenate([x, np.ones_like(x[..., :1])], -1) @ w["output.weight"].T
    close(recorder.tensors, expected)


def test_keys_that_heads_share_and_turned_ones_explain_the_scores_that_were_seen():
    torch.manual_seed(3)
    model = drawn(Llama(LlamaConfig(2, 24, 20, heads=6, shared_heads=2, max_length=16), V))
    with tap.record(model) as recorder:
        model(torch.randint(4, V, (2, 9)))
    for n in range(2):
        q, k, v, scores, weights, mixed, mask = (
            recorder.tensors[f"decoder.{n}.attention.{what}"].numpy()
            for what in ("queries", "keys", "values", "scores", "weights", "mixed", "mask")
        )
        np.testing.assert_allclose(q @ k.transpose(0, 1, 3, 2) / 2, scores, atol=1e-10)
        np.testing.assert_allclose(plain.softmax(np.where(mask[:, None], scores, -1e30)), weights, atol=1e-10)
        np.testing.assert_allclose(weights @ v, mixed, atol=1e-10)
        assert (k[:, 0] == k[:, 2]).all() and (k[:, 0] != k[:, 3]).any()


def test_a_block_that_stands_for_several_layers_gives_a_tensor_for_each():
    torch.manual_seed(4)
    config = BertConfig(4, 12, 20, 3, groups=2, max_length=16)
    model, ids = drawn(Bert(config, V)), torch.randint(4, V, (2, 6))
    with tap.record(model) as recorder:
        last = model.encode(TextInputs(ids)).x_BTD
    hidden = [recorder.tensors[f"encoder.{n}.hidden"] for n in range(4)]
    assert {name for name in recorder.tensors if name.endswith("weights")} == {
        f"encoder.{n}.attention.weights" for n in range(4)
    }
    assert torch.equal(hidden[3], last) and not torch.equal(hidden[0], hidden[1])
    # Layer 1 is layer 0's block once more, on what that gave out.
    again = model.encoder.layers[0].attention
    with tap.record(again) as alone:
        model.encoder.layers[0](hidden[0], attention.View())
    torch.testing.assert_close(alone.tensors["weights"], recorder.tensors["encoder.1.attention.weights"])


def test_only_what_is_chosen_is_kept_and_costly_things_are_not_built(monkeypatch):
    torch.manual_seed(5)
    model, ids = drawn(GPT(TINY_GPT, V)), torch.randint(4, V, (2, 9))
    with tap.record(model) as everything:
        model(ids)
    built = []

    def counted(*given, **more):
        built.append(1)
        return readable(*given, **more)

    readable = attention.attend
    monkeypatch.setattr(attention, "attend", counted)
    with tap.record(model, tap.chosen(layers=[1], heads=[2, 0], tensors="attention.weights")) as chosen:
        model(ids)
    assert list(chosen.tensors) == ["decoder.1.attention.weights"] and len(built) == 1
    whole = everything.tensors["decoder.1.attention.weights"]
    torch.testing.assert_close(chosen.tensors["decoder.1.attention.weights"], whole[:, [2, 0]], rtol=0, atol=1e-12)
    with tap.record(model, tap.chosen(tensors=["hidden", "logits"])) as states:
        logits, _ = model(ids)
    assert len(built) == 1, "nobody looked at weights"
    assert set(states.tensors) == {"embed.hidden", "decoder.0.hidden", "decoder.1.hidden", "decoder.hidden", "logits"}
    torch.testing.assert_close(logits, everything.tensors["logits"], rtol=0, atol=1e-12)


def test_two_recorders_at_once_each_keep_their_own():
    model, ids = drawn(GPT(TINY_GPT, V)), torch.randint(4, V, (1, 5))
    with tap.record(model, tap.chosen(layers=[0], tensors="weights")) as first:
        with tap.record(model, tap.chosen(layers=[1], tensors="hidden")) as second:
            model(ids)
        assert tap.recording()
    assert list(first.tensors) == ["decoder.0.attention.weights"]
    assert set(second.tensors) == {"decoder.1.hidden", "embed.hidden", "decoder.hidden"}
    assert not tap.recording()


def test_closed_taps_break_no_graph():
    model, ids = drawn(GPT(TINY_GPT, V)), torch.randint(4, V, (1, 5))

    def hidden(ids_BT):
        return model.read(ids_BT)[0]

    torch._dynamo.reset()
    with torch.no_grad():
        found = torch._dynamo.explain(hidden)(ids)
    assert (found.graph_count, found.graph_break_count) == (1, 0), found.break_reasons


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_model_shows_the_same_numbers_and_stays_compiled(in_place):
    torch.manual_seed(6)
    torch._dynamo.reset()
    model, ids = drawn(GPT(TINY_GPT, V)), torch.randint(4, V, (2, 9))
    runs = []

    def backend(graph, inputs):
        def run(*given):
            runs.append(1)
            return graph(*given)

        return run

    if in_place:
        model.compile(backend=backend)
    fast = model if in_place else compiled(model, backend=backend)
    with torch.no_grad():
        plainly = fast(ids)[0]
        before = len(runs)
        assert before
        with tap.record(fast) as recorder:
            seen = fast(ids)[0]
        assert len(runs) == before, "compiled code does not run while somebody looks"
        close(recorder.tensors, gpt_by_hand(model, ids.numpy()))
        torch.testing.assert_close(seen, plainly, rtol=0, atol=1e-12)
        fast(ids)
    assert len(runs) > before


def test_what_is_captured_refuses_a_recorder():
    with tap.record(nn.Linear(2, 2)), pytest.raises(InputError, match="captured steps cannot be traced"):
        tap.closed()
    tap.closed()

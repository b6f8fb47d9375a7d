"""ConvS2S: as fairseq's formulas written with torch.nn have it, the same whole, in steps, padded and in a search; and a
run of it that trains, resumes, predicts and is explored as any other."""

import json
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from targets import (
    check_fixed_room,
    check_greedy,
    check_padded_batch,
    check_padded_targets,
    check_read_in_parts,
    check_several_sources,
)

from headway.errors import InputError
from headway.models.conv_seq2seq import ConvSeq2Seq, ConvSeq2SeqConfig
from headway.models.parts import Sinusoidal
from headway.nn import tap
from headway.plain import change
from headway.tasks.loading import load
from small_runs import answered, check_resumed, of_pairs
from small_world import surroundings, write_pairs

CPU = torch.device("cpu")
SMALL = ConvSeq2SeqConfig(2, 3, 8, 12, dropout=0.3, max_length=64)
EACH = {
    "learned": SMALL,
    "wide": replace(SMALL, window=5, decoder_layers=1, embeddings="separate", position=Sinusoidal()),
    "even": replace(SMALL, window=4, embeddings="tied"),
}
each_config = pytest.mark.parametrize("config", EACH.values(), ids=EACH)
LENGTHS = torch.tensor([6, 1, 4])


def build(config, vocabulary=30, sharp=1.0, seed=0):
    torch.manual_seed(seed)
    model = ConvSeq2Seq(config, vocabulary, vocabulary).double().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(std=0.1)
            elif name.endswith("original0"):
                weight.mul_(torch.rand_like(weight) + 0.5)  # no longer ‖v‖
        model.head.weight.mul_(sharp)
    return model


def pairs(vocabulary=30):
    generator = torch.Generator().manual_seed(1)
    return (torch.randint(vocabulary, (3, length), generator=generator) for length in (6, 5))


def normed(map):
    """g·v/‖v‖ of each output."""
    g, v = map.parametrizations.weight.original0, map.parametrizations.weight.original1
    return g * v / v.square().sum(1, keepdim=True).sqrt()


def linear(x, map):
    return x @ normed(map).T + map.bias


def gated(x_TD, part, left, right):
    """fairseq's block: a convolution to twice the channels, and their gated linear unit."""
    map, window = part.convolution.map, part.convolution.window
    weight = normed(map).unflatten(1, (window, -1)).mT
    return F.glu(F.conv1d(F.pad(x_TD.T[None], (left, right)), weight, map.bias), 1)[0].T


def fairseq(model, source, target):
    """FConvEncoder and FConvDecoder of one sentence without dropout, formula by formula."""
    half, span = math.sqrt(0.5), model.config.window - 1
    embedded = model.embed_source(source[None])[0]
    x = linear(embedded, model.widen_source)
    for block in model.encoder.layers:
        x = (gated(x, block.gated, span // 2, span - span // 2) + x) * half
    keys = linear(x, model.encoder.final)
    values = (keys + embedded) * half
    g = model.embed_target(target[None])[0]
    x = linear(g, model.widen_target)
    for block in model.decoder.layers:
        residual, x = x, gated(x, block.gated, span, 0)
        scores = ((linear(x, block.query) + g) * half) @ keys.T
        mixed = scores.softmax(-1) @ values
        mixed = mixed * (len(source) * math.sqrt(1 / len(source)))
        x = (linear(mixed, block.cross.output) + x) * half
        x = (x + residual) * half
    return linear(x, model.decoder.final) @ model.head.weight.T


@each_config
@torch.no_grad()
def test_the_model_is_fairseqs_and_padding_changes_nothing(config):
    model, (source, target) = build(config), pairs()
    found = model(source, target, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(found[row], fairseq(model, source[row, :length], target[row]))


def test_first_weights_give_a_gate_four_times_the_variance_of_its_inputs():
    """Gehring et al. 2017, 3.5: the gate's σ then brings it back to about 1."""
    torch.manual_seed(0)
    model = ConvSeq2Seq(replace(SMALL, inner=256, width=256, dropout=0.0), 30, 30)
    x, part = torch.randn(8, 50, 256), model.encoder.layers[0].gated
    with torch.no_grad():
        assert float(part.convolution(x)[0].var()) == pytest.approx(4, rel=0.1)
        expected = 4 * torch.randn(100_000).mul(2).sigmoid().square().mean()
        assert float(part(x)[0].var()) == pytest.approx(float(expected), rel=0.1)
    g, v = (getattr(part.convolution.map.parametrizations.weight, f"original{i}") for i in (0, 1))
    torch.testing.assert_close(g[:, 0], v.norm(dim=1))  # the first weight is the one that was drawn


def test_the_encoder_gets_its_share_of_the_gradient_of_every_attention():
    """1/(2·layers) of what it would get, its embeddings all of it through the values."""
    model, (source, target) = build(SMALL), pairs()
    model(source, target).square().sum().backward()
    found = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    for row in range(3):
        fairseq(model, source[row], target[row]).square().sum().backward()
    for name, weight in model.named_parameters():
        if name.startswith(("encoder", "widen_source")):
            torch.testing.assert_close(found[name], weight.grad / 6)
        elif not name.startswith("embed_source"):  # partly through the encoder
            torch.testing.assert_close(found[name], weight.grad)


@each_config
def test_a_target_read_in_parts_is_the_target_read_whole(config):
    check_read_in_parts(build(config), *pairs(), LENGTHS)


@each_config
def test_padded_targets_continue_as_each_would_alone(config):
    check_padded_targets(build(config), *pairs(), LENGTHS)


def test_a_padded_batch_gives_what_single_rows_give_gradients_too():
    check_padded_batch(build(SMALL), *pairs(), LENGTHS)


@each_config
def test_several_sources_in_one_room_step_as_each_would_alone(config):
    check_several_sources(build(config), *pairs(), LENGTHS)


@torch.no_grad()
def test_a_trace_changes_nothing_and_every_layer_attends_to_the_sources_own_tokens():
    model, (source, target) = build(SMALL), pairs()
    expected = model(source, target, LENGTHS)
    with tap.record(model) as seen:
        torch.testing.assert_close(model(source, target, LENGTHS), expected)
    own = torch.arange(6) < LENGTHS[:, None, None, None]
    for layer in range(SMALL.decoder_layers):
        weights = seen.tensors[f"decoder.{layer}.cross.weights"]
        torch.testing.assert_close(weights.masked_fill(~own, 0).sum(-1), torch.ones(3, 1, 5).double())
        assert not weights.masked_fill(own, 0).any()


def test_dropout_is_drawn_in_training_only():
    model, (source, target) = build(SMALL), pairs()
    assert torch.equal(model(source, target), model(source, target))
    model.train()
    assert not torch.equal(model(source, target), model(source, target))


def test_sizes_without_meaning_are_refused():
    for setting, message in (("window=0", r"model\.window must be at least 1"), ("inner=0", r"model\.inner must be")):
        with pytest.raises(InputError, match=message):
            change(SMALL, [setting])


def test_steps_in_a_fixed_room_give_what_each_source_gives_alone():
    check_fixed_room(build(SMALL, sharp=4.0))


@pytest.mark.parametrize("captured", [False, True])
def test_greedy_samples_are_a_beam_of_one_and_both_are_the_best_token_each_time(captured):
    check_greedy(build(EACH["even"], sharp=4.0), captured)


SETTINGS = ("model.inner=16", "model.encoder_layers=2", "model.decoder_layers=2", "search.beam=2", "engine.steps=24")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    root = tmp_path_factory.mktemp("text")
    with surroundings(root / "cache"):
        write_pairs(root, 150, 10, 10)
        yield root


@pytest.fixture(scope="module")
def run(text, tmp_path_factory):
    return of_pairs("translate-conv", text, tmp_path_factory.mktemp("run"), *SETTINGS)


def test_a_run_that_fails_and_is_resumed_ends_as_one_that_never_did(text, run, tmp_path, monkeypatch):
    def again(out, **how):
        of_pairs("translate-conv", text, out, *SETTINGS, **how)

    check_resumed(monkeypatch, run, tmp_path / "failed", 15, again)


def test_the_loss_falls(run):
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < 0.9 * losses[0]


def test_a_trained_model_answers_is_evaluated_and_explored(text, run, tmp_path):
    sentences = (text / "test.en").read_text(encoding="utf-8").splitlines()[:3]
    model = load(run, "cpu")
    answers = answered("predict", run, "--text", *sentences, "--device", "cpu").splitlines()
    assert answers == [" ".join(one.split()) for one in model.translate(sentences)]
    report = json.loads(answered("evaluate", run, text / "test.en", text / "test.fr", "--device", "cpu", "--json"))
    assert 0 <= report["bleu"] <= 100
    trace = model.trace(sentences[0])
    assert ("decoder", "cross") in trace.sites()
    for weights in trace.attention("decoder", "cross"):
        assert weights.shape == (1, len(trace.tracks["target"]), len(trace.tracks["source"]))
        assert weights.sum(-1) == pytest.approx(1.0, abs=1e-5)
    answered("explore", run, "--text", sentences[0], "--html", tmp_path / "page.html", "--device", "cpu")
    assert "data-packed" in (tmp_path / "page.html").read_text(encoding="utf-8")

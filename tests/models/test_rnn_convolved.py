"""A convolutional encoder below a recurrent decoder, against torch's own convolution; what padding and parts change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from rnn_pairs import CONVOLVED, LENGTHS, SMALL, build, pairs
from targets import check_padded_batch, check_padded_targets, check_read_in_parts

from headway.batch import TextInputs
from headway.errors import InputError
from headway.models.recurrent import Lstm
from headway.models.rnn_seq2seq import ConvolutionalEncoder, NoAttention, RnnSeq2SeqConfig
from headway.nn import tap
from headway.plain import change, from_plain, to_plain
from small_runs import check_resumed, of_pairs
from small_world import surroundings, write_pairs

EACH = {
    "gru": CONVOLVED,
    "lstm": replace(CONVOLVED, cell=Lstm(), decoder_layers=2, embeddings="separate", embedding=7, width=13),
    "wide": replace(CONVOLVED, encoder=ConvolutionalEncoder(4), form="feeding"),
    "plain": replace(CONVOLVED, attention=NoAttention(), encoder_layers=1),
}
each_config = pytest.mark.parametrize("config", EACH.values(), ids=EACH)


@each_config
@torch.no_grad()
def test_the_encoder_is_torchs_convolution_and_the_decoder_starts_from_the_mean(config: RnnSeq2SeqConfig) -> None:
    model, (source_BS, _) = build(config), pairs()
    embedding, window = model.embed_source, config.encoder.window
    e_BSD = embedding.table(source_BS) * config.narrow**0.5 + embedding.position.table.weight[:6]
    h_BSD = model.encoder.widen(e_BSD)
    for layer in model.encoder.layers:
        weight_OWD = layer.convolution.map.weight.unflatten(1, (window, -1))
        left = (window - 1) // 2
        padded_BDS = F.pad(h_BSD.mT, (left, window - 1 - left))
        y_BDS = F.conv1d(padded_BDS, weight_OWD.mT, layer.convolution.map.bias)
        h_BSD = torch.tanh(y_BDS.mT + h_BSD)
    torch.testing.assert_close(model.encode(TextInputs(source_BS)).x_BTD, h_BSD)
    state = model.start(TextInputs(source_BS), 3, torch.device("cpu"))
    first = torch.cat([part for slot in state["layers"] for part in slot.tensors], -1)
    torch.testing.assert_close(first, torch.tanh(F.linear(h_BSD.mean(1), model.first.weight, model.first.bias)))


@each_config
def test_a_padded_batch_gives_what_single_rows_give_gradients_too(config: RnnSeq2SeqConfig) -> None:
    check_padded_batch(build(config), *pairs(), LENGTHS)


@each_config
def test_a_target_read_in_parts_is_the_target_read_whole(config: RnnSeq2SeqConfig) -> None:
    check_read_in_parts(build(config), *pairs(), LENGTHS)
    check_padded_targets(build(config), *pairs(), LENGTHS)


def test_a_row_of_padding_alone_has_a_finite_start() -> None:
    model, (source, target) = build(CONVOLVED), pairs()
    assert model(source, target, torch.tensor([6, 0, 4])).isfinite().all()


@torch.no_grad()
def test_a_trace_changes_nothing_and_has_the_cross_weights() -> None:
    model, (source, target) = build(CONVOLVED), pairs()
    expected = model(source, target, LENGTHS)
    with tap.record(model) as seen:
        torch.testing.assert_close(model(source, target, LENGTHS), expected)
    weights = seen.tensors["decoder.0.cross.weights"]
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 1, 5).double())
    assert not weights.masked_fill(torch.arange(6) < LENGTHS[:, None, None, None], 0).any()


def test_a_config_from_before_there_was_a_choice_means_cells() -> None:
    facts = to_plain(SMALL)
    assert facts.pop("encoder")
    assert from_plain(RnnSeq2SeqConfig, facts) == SMALL
    assert change(SMALL, ["encoder=convolutional", "encoder.window=5"]).encoder == ConvolutionalEncoder(5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["start=copied"], r"model\.start=copied is of a recurrent encoder"),
        (["direction=backwards"], r"model\.direction=backwards is of a recurrent encoder"),
        (["encoder.window=0"], r"model\.encoder\.window must be at least 1, not 0"),
    ],
)
def test_what_does_not_fit_is_refused(settings: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        change(CONVOLVED, settings)


def test_a_run_that_fails_and_is_resumed_ends_as_one_that_never_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("search.beam=2", "engine.steps=8", "engine.checkpoint=3", "model.encoder=convolutional")
    with surroundings(tmp_path / "cache"):
        write_pairs(tmp_path, 60, 6, 6)

        def trained(out: Path, **how: bool) -> Path:
            return of_pairs("translate-rnn", tmp_path, out, *settings, **how)

        check_resumed(monkeypatch, trained(tmp_path / "run"), tmp_path / "failed", 6, trained)

"""The decoder by parts: its config as plain values, and what it cannot do."""

from __future__ import annotations

import pytest
import torch

from headway.errors import InputError
from headway.models import arrangements, parts
from headway.models import decoder_parts as own
from headway.models.decoder import Decoder, DecoderConfig
from headway.models.rotary_scaling import Linear
from headway.plain import from_plain, to_plain

ODD = DecoderConfig(
    layers=3, width=24, heads=4, shared_heads=2, head_width=8, bias="output", window=4, windowed=(0, 2), unplaced=(1,),
    embedding=own.Tokens(scale=None), position=own.Turned(500.0, 4, True, Linear(2.0)), near_position=own.Turned(70.0),
    norm=arrangements.LayerNorm(bias=False), arrangement=arrangements.Parallel(2),
    query_key_norm=arrangements.HeadsNorm(), score=own.Capped(0.3, 5.0), feed_forward=own.Experts(3, 2, shared=7),
    logits=own.Logits(cap=3.0), max_length=40,
)  # fmt: skip


@pytest.mark.parametrize("config", [DecoderConfig(), ODD], ids=["default", "odd"])
def test_a_config_is_saved_as_plain_values(config: DecoderConfig) -> None:
    assert from_plain(DecoderConfig, to_plain(config)) == config


def test_feed_forward_networks_saved_before_biases_open_without() -> None:
    assert from_plain(parts.Gated, {"name": "gated", "dropout": 0.0, "activation": "silu"}) == parts.Gated()


def test_a_step_at_a_time_gives_what_the_whole_gives() -> None:
    torch.manual_seed(1)
    model = Decoder(ODD, 31).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    ids = torch.randint(31, (2, 9))
    with torch.inference_mode():
        expected = model(ids)[0]
        for room in (None, 12):
            state = model.start(None, 2, ids.device, room)
            found = torch.cat([model(ids[:, at : at + 1], state)[0] for at in range(9)], 1)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_packed_texts_do_not_see_each_other() -> None:
    model = Decoder(ODD, 31).eval()
    ids, segments = torch.randint(31, (1, 8)), torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])
    other = torch.cat([(ids[:, :4] + 1) % 31, ids[:, 4:]], 1)
    with torch.no_grad():
        behind = [model(one, segments_BT=segments)[0][:, 4:] for one in (ids, other)]
    torch.testing.assert_close(behind[0], behind[1])


def test_bounded_logits_are_not_trained_as_if_they_were_not() -> None:
    model = Decoder(ODD, 31)
    with pytest.raises(InputError, match="can be run, but not trained"):
        _ = model.output_weight
    assert model.score(torch.randint(31, (1, 5))).shape == (1, 5)


def test_a_step_with_experts_is_no_cuda_graph() -> None:
    assert not Decoder(ODD, 31).capturable and Decoder(DecoderConfig(1, 16, heads=2), 31).capturable

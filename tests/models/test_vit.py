"""The Vision Transformer against transformers' ViT with the same weights, and its patches against a loop."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import ViTConfig as TheirConfig
from transformers import ViTModel

from headway.errors import InputError
from headway.models import FAMILIES, build
from headway.models.ast import ASTConfig, Frames
from headway.models.heads import LinearClasses
from headway.models.vit import Convolutions, NoPosition, Overlapping, Sinusoids, ViT, ViTConfig
from headway.nn import tap
from headway.nn.patches import ConvolutionalEmbedding, patches, resized_grid
from headway.nn.pooling import AttentionPooling
from headway.nn.position import Position, SinusoidalGrid, sinusoid
from headway.nn.residual import StochasticDepth

TINY = ViTConfig(12, 4, 2, 16, 32, 4, 0.0)


def theirs(channels: int = 3, attention: str = "sdpa") -> ViTModel:
    """With "eager" it returns its attention, computed in float32."""
    torch.manual_seed(3)
    config = TheirConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, image_size=12, patch_size=4,
        num_channels=channels, layer_norm_eps=1e-6, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        attn_implementation=attention,
    )  # fmt: skip
    model = ViTModel(config, add_pooling_layer=False)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)
    return model.double().eval()


def copied(model: ViTModel) -> ViT:
    """Their weights, found by their place in the equations, in ours."""
    found = {name.replace("attention.attention.", "attention."): w for name, w in model.named_parameters()}
    ours = ViT(TINY, model.config.num_channels).double().eval()

    def take(weight: Tensor, *endings: str) -> None:
        parts = [next(w for name, w in found.items() if name.endswith(ending)) for ending in endings]
        weight.data.copy_(torch.cat(parts).reshape(weight.shape))

    take(ours.embed.class_D, "cls_token")
    take(ours.embed.position.table.weight, "position_embeddings")
    for kind in ("weight", "bias"):
        take(getattr(ours.embed.map, kind), f"projection.{kind}")
        take(getattr(ours.encoder.final, kind), f"layernorm.{kind}")
        for number, block in enumerate(ours.encoder.layers):
            at = f"{number}."
            inside = [name for name in found if f"layers.{at}" in name or f"layer.{at}" in name]

            def named(*words: str, inside: list[str] = inside, kind: str = kind) -> str:
                return next(n for n in inside if n.endswith(kind) and any(word in n for word in words))

            query, key, value = (
                named(*words) for words in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"))
            )
            take(getattr(block.attention.qkv, kind), query, key, value)
            take(getattr(block.attention.output, kind), named("attention.output.dense", "o_proj"))
            take(getattr(block.around_attention.before, kind), named("layernorm_before"))
            take(getattr(block.around_feed_forward.before, kind), named("layernorm_after"))
            take(getattr(block.feed_forward.expand, kind), named("intermediate.dense", "fc1"))
            contract = [n for n in inside if n.endswith(kind) and ("output.dense" in n or "fc2" in n)]
            take(getattr(block.feed_forward.contract, kind), next(n for n in contract if "attention" not in n))
    return ours


@pytest.mark.parametrize("channels", [1, 3])
def test_the_last_layer_is_that_of_transformers(channels: int) -> None:
    model = theirs(channels)
    ours = copied(model)
    pixels = torch.randn(5, channels, 12, 12, dtype=torch.float64)
    with torch.no_grad():
        wanted = model(pixels).last_hidden_state
        found = ours.encode(SimpleNamespace(pixels_BCHW=pixels)).x_BTD
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_attention_that_a_trace_records_is_that_of_transformers() -> None:
    model = theirs(attention="eager")
    ours = copied(model)
    pixels = torch.randn(2, 3, 12, 12, dtype=torch.float64)
    with torch.no_grad(), tap.record(ours) as recorder:
        ours.encode(SimpleNamespace(pixels_BCHW=pixels))
        wanted = model(pixels, output_attentions=True).attentions
    for number, weights in enumerate(wanted):
        torch.testing.assert_close(
            recorder.tensors[f"encoder.{number}.attention.weights"], weights, rtol=1e-5, atol=1e-7
        )


def test_patches_are_squares_row_by_row() -> None:
    pixels = torch.randn(2, 3, 6, 9)
    found = patches(pixels, 3)
    number = 0
    for row in range(0, 6, 3):
        for column in range(0, 9, 3):
            assert torch.equal(found[:, number], pixels[:, :, row : row + 3, column : column + 3].flatten(1))
            number += 1
    assert found.shape == (2, number, 27)


def test_a_batch_gives_what_single_pictures_give_and_every_weight_learns() -> None:
    torch.manual_seed(1)
    model = build("vit", TINY, (1,)).double()
    pixels = torch.randn(4, 1, 12, 12, dtype=torch.float64)
    whole = model.encode(SimpleNamespace(pixels_BCHW=pixels)).x_BTD
    alone = torch.cat([model.encode(SimpleNamespace(pixels_BCHW=one[None])).x_BTD for one in pixels])
    torch.testing.assert_close(whole, alone)
    whole.square().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in model.parameters())
    assert model.context == 10 and FAMILIES["vit"].example(TINY, (1,), 2)[0].pixels_BCHW.shape == (2, 1, 12, 12)


def test_a_model_of_another_dtype_takes_the_pixels_of_the_data() -> None:
    model = build("vit", TINY, (1,)).double()
    assert model.encode(SimpleNamespace(pixels_BCHW=torch.randn(4, 1, 12, 12))).x_BTD.dtype == torch.float64


def test_a_picture_that_patches_do_not_fill_is_refused() -> None:
    with pytest.raises(InputError, match="model.image 28 is not a multiple of model.patch 5"):
        replace(TINY, image=28, patch=5)


SHAPES = {
    "convolutions": replace(TINY, stem=Convolutions(2), image=11, before=0),
    "sinusoids": replace(TINY, position=Sinusoids()),
    "no positions": replace(TINY, position=NoPosition(), before=0),
    "scaled": replace(TINY, layer_scale=0.1, qkv_bias=False),
    "two tokens": replace(TINY, before=2),
    "frames": ASTConfig(8, across=13, layers=2, width=16, inner=32, heads=2, stem=Frames(), dropout=0.0, before=0),
    "wide and overlapping": replace(TINY, across=16, stem=Overlapping(3)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_part_learns_and_rows_do_not_touch_each_other(name: str) -> None:
    torch.manual_seed(2)
    config = SHAPES[name]
    head = LinearClasses(("a", "b", "c"), pooling="attention")
    channels = 1 if config.name == "ast" else 3
    model = build(config.name, config, (channels,), head).double()
    pixels = torch.randn(3, channels, *config.size, dtype=torch.float64)
    logits = model(SimpleNamespace(pixels_BCHW=pixels))
    alone = torch.cat([model(SimpleNamespace(pixels_BCHW=one[None])) for one in pixels])
    torch.testing.assert_close(logits, alone)
    logits.square().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in model.parameters())
    assert model.context == config.before + math.prod(config.sides)


def test_frames_are_read_as_whisper_reads_them() -> None:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    torch.manual_seed(5)
    peer = WhisperEncoder(
        WhisperConfig(d_model=16, num_mel_bins=8, encoder_layers=0, encoder_attention_heads=2, max_source_positions=6)
    )
    config = ASTConfig(8, across=12, layers=1, width=16, inner=32, heads=2, stem=Frames(), before=0)
    assert config.sides == (1, 6)
    part = build("ast", config, (1,)).embed
    for mine, theirs in ((part.first, peer.conv1), (part.second, peer.conv2)):
        mine.load_state_dict(theirs.state_dict())
    bands = torch.randn(2, 8, 12)
    gelu = torch.nn.functional.gelu
    torch.testing.assert_close(part.places(bands[:, None]), gelu(peer.conv2(gelu(peer.conv1(bands)))).mT)


def test_convolutions_and_the_largest_of_each_place() -> None:
    """One layer by loops: every second place, of 3 × 3."""
    torch.manual_seed(4)
    part = ConvolutionalEmbedding(2, 1, 5, Position(), 0.0, 0).double()
    pixels = torch.randn(1, 2, 6, 6, dtype=torch.float64)
    [kernel] = part.layers
    wide, found = torch.nn.functional.pad(pixels, (1, 1, 1, 1)), torch.zeros(5, 6, 6, dtype=torch.float64)
    for y in range(6):
        for x in range(6):
            found[:, y, x] = (wide[0, :, y : y + 3, x : x + 3] * kernel.weight).sum((1, 2, 3)).clamp(min=0)
    wanted = torch.stack([
        found[:, max(0, y - 1) : y + 2, max(0, x - 1) : x + 2].amax((1, 2)) for y in (0, 2, 4) for x in (0, 2, 4)
    ])  # fmt: skip
    torch.testing.assert_close(part(pixels)[0], wanted)


def test_sinusoids_of_a_grid_are_those_of_its_row_and_its_column() -> None:
    part = SinusoidalGrid(8, 3, 4, before=1)
    found = part.add(torch.zeros(1, 13, 8))[0]
    assert not found[0].any()
    for row in range(3):
        for column in range(4):
            wanted = torch.cat([sinusoid(torch.tensor(row), 4), sinusoid(torch.tensor(column), 4)]).float()
            torch.testing.assert_close(found[1 + 4 * row + column], wanted)


def test_stochastic_depth_leaves_whole_rows_out_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    part = StochasticDepth(0.25)
    x = torch.ones(4000, 2, 3)
    found = part(x)
    kept = found[:, 0, 0] != 0
    assert torch.equal(found, torch.where(kept[:, None, None], found[kept][0, 0, 0], 0.0).expand_as(found))
    assert float(found.mean()) == pytest.approx(1.0, abs=0.03) and torch.equal(part.eval()(x), x)


def test_deeper_layers_are_left_out_more_often() -> None:
    model = build("vit", replace(TINY, layers=5, drop_path=0.2), (3,))
    rates = [getattr(block.around_feed_forward.path, "p", 0.0) for block in model.encoder.layers]
    assert rates == pytest.approx([0.0, 0.05, 0.1, 0.15, 0.2])


def test_pooling_by_attention_is_a_mean_by_learned_weights() -> None:
    torch.manual_seed(1)
    part, x = AttentionPooling(6, plain=True), torch.randn(2, 5, 6)
    shares = (x @ part.query_D).softmax(-1)
    torch.testing.assert_close(part(x), (shares[..., None] * x).sum(1))


@pytest.mark.parametrize(
    ("change", "line"),
    [({"before": 3}, "model.before"), ({"drop_path": 1.0}, "model.drop_path"), ({"layer_scale": -1.0}, "layer_scale"),
     ({"stem": Convolutions(0)}, "model.stem.layers")],
)  # fmt: skip
def test_sizes_without_a_meaning_are_refused(change: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line):
        replace(TINY, **change)


def test_positions_of_a_wide_grid_stay_in_their_rows() -> None:
    """4 × 9 places are as many as 6 × 6: only the earlier config tells which they are."""
    table = torch.arange(4.0)[:, None].expand(4, 9).reshape(36, 1)
    found = resized_grid(torch.cat([torch.tensor([[7.0]]), table]), 1, (4, 9), (4, 18))
    assert found[0] == 7
    torch.testing.assert_close(found[1:].view(4, 18), torch.arange(4.0)[:, None].expand(4, 18))
    config = replace(TINY, image=16, across=36)
    earlier, later = build("vit", config, (1,)), build("vit", replace(config, across=72), (1,))
    fitted = later.fit(dict(earlier.named_parameters()), config)["embed.position.table.weight"]
    assert fitted.shape == later.embed.position.table.weight.shape == (73, 16)
    assert later.fit({}, config) == {}

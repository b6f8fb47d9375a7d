"""`torch.nn.Transformer` ↔ headway's parts by one table of names: the same numbers, and the stress marks of
ruaccent-predictor==1.2.0, a model of characters that was trained with it (`HEADWAY_CHECKPOINTS`, see checkpoints.py).

B batch, S source length, T target length, D width, V vocabulary.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from checkpoints import place
from torch import Tensor, nn

from foreign_world import from_hf
from headway.generate.offline import search_all
from headway.generate.search import Search
from headway.hub.names import Table, below, to_hf
from headway.models import parts
from headway.models.transformer import Transformer, TransformerConfig
from headway.text.tokenizer import Symbols

# Of its encoder with the norm first: that it will not use nested tensors.
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")
CROSS = ".multihead_attn.in_proj_"  # queries, keys and values as one weight, which headway has as two
NORMS = {"encoder": ("attention", "feed_forward"), "decoder": ("attention", "cross", "feed_forward")}


@dataclass(frozen=True)
class PostNormAndFinal(parts.PostNorm):
    """torch.nn.Transformer has a norm behind each stack, wherever the others stand."""

    def final(self, width: int, bias: bool = True) -> nn.Module:
        return nn.LayerNorm(width, self.epsilon, bias=bias)


class Theirs(nn.Module):
    """linear(nn.Transformer(√D · E[ids] + sinusoid)), its parts named as in the checkpoint."""

    def __init__(self, config: TransformerConfig, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Module()
        self.embed.char_embed = nn.Embedding(vocabulary, config.width)
        self.embed.register_buffer("pos_encoding", sinusoid(config.max_length, config.width)[None])
        self.transformer = nn.Transformer(
            config.width, config.heads, config.encoder_layers, config.decoder_layers, config.inner, dropout=0.0,
            batch_first=True, norm_first=isinstance(config.norm, parts.PreNorm),
        )  # fmt: skip
        self.output_proj = nn.Linear(config.width, vocabulary)

    def embedded(self, ids_BT: Tensor) -> Tensor:
        x_BTD = self.embed.char_embed(ids_BT)
        return x_BTD * math.sqrt(x_BTD.shape[-1]) + self.embed.pos_encoding[:, : ids_BT.shape[1]]

    def forward(self, source_BS: Tensor, target_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        hidden = None if lengths_B is None else torch.arange(source_BS.shape[1]) >= lengths_B[:, None]
        steps = target_BT.shape[1]
        x_BTD = self.transformer(
            self.embedded(source_BS), self.embedded(target_BT), src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden, tgt_mask=torch.ones(steps, steps, dtype=torch.bool).triu(1),
        )  # fmt: skip
        return self.output_proj(x_BTD)


def sinusoid(length: int, width: int) -> Tensor:
    frequencies = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000) / width))
    angles = torch.arange(length)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()


class LinearHead(nn.Linear):
    def forward(self, hidden_RTD: Tensor, state: Any = None) -> Tensor:
        return super().forward(hidden_RTD)


def ours(config: TransformerConfig, vocabulary: int) -> Any:
    """headway's Transformer with one table of characters for both sides, and a head of its own with a bias."""
    model = Transformer(config, vocabulary, vocabulary)
    model.head = LinearHead(config.width, vocabulary)  # type: ignore[assignment]
    return model


def apart(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Their weights with those of the attention on the source cut into what headway has."""
    found = {name: weight for name, weight in weights.items() if CROSS not in name}
    for name in weights.keys() - found.keys():
        width = len(weights[name]) // 3
        found[f"{name}.query"], found[f"{name}.key_value"] = weights[name][:width], weights[name][width:]
    return found


def together(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    found = {name: weight for name, weight in weights.items() if CROSS not in name}
    for name in {name.rpartition(".")[0] for name in weights.keys() - found.keys()}:
        found[name] = torch.cat([weights[f"{name}.query"], weights[f"{name}.key_value"]])
    return found


def table(config: TransformerConfig) -> Table:
    slot = "before" if isinstance(config.norm, parts.PreNorm) else "outside"
    names = {"embed_source.table": "embed.char_embed", "head": "output_proj"}
    for side, sublayers in NORMS.items():
        names[f"{side}.final"] = f"transformer.{side}.norm"
        layer = {
            "attention.output": "self_attn.out_proj",
            "cross.output": "multihead_attn.out_proj",
            "feed_forward.expand": "linear1",
            "feed_forward.contract": "linear2",
        }
        layer |= {f"around_{name}.{slot}": f"norm{number}" for number, name in enumerate(sublayers, 1)}
        for kind in ("weight", "bias"):
            layer[f"attention.qkv.{kind}"] = f"self_attn.in_proj_{kind}"
            for part in ("query", "key_value"):
                layer[f"cross.{part}.{kind}"] = f"multihead_attn.in_proj_{kind}.{part}"
        names |= below(f"{side}.layers.*.", f"transformer.{side}.layers.*.", layer)
    parameters = [name for name, _ in ours(config, 3).named_parameters()]
    return Table(names, parameters, useless=(r"pos_encoding$",))


def filled(config: TransformerConfig, vocabulary: int, weights: dict[str, Tensor]) -> Any:
    model = ours(config, vocabulary)
    shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    model.to(weights["output_proj.weight"].dtype)
    model.load_state_dict(from_hf(table(config), apart(weights), shapes), strict=False)
    return model.eval()


SMALL = {
    "post": TransformerConfig(2, 3, 24, 37, 4, dropout=0.0, norm=PostNormAndFinal(), max_length=20),
    "pre": TransformerConfig(3, 1, 18, 23, 3, dropout=0.0, norm=parts.PreNorm(), max_length=20),
}
VOCABULARY = 31
each_placement = pytest.mark.parametrize("config", SMALL.values(), ids=SMALL.keys())


def drawn(config: TransformerConfig, dtype: torch.dtype = torch.float32) -> Theirs:
    torch.manual_seed(3)
    theirs = Theirs(config, VOCABULARY)
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return theirs.to(dtype)


@each_placement
@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=str)
def test_logits_and_gradients_of_a_padded_batch_are_those_of_torch(
    config: TransformerConfig, dtype: torch.dtype, within: float
) -> None:
    theirs = drawn(config, dtype)
    mine = filled(config, VOCABULARY, theirs.state_dict())
    generator = torch.Generator().manual_seed(5)
    source_BS, target_BT = (torch.randint(0, VOCABULARY, (3, length), generator=generator) for length in (13, 9))
    lengths_B = torch.tensor([13, 4, 9])
    found, expected = (model(source_BS, target_BT, lengths_B) for model in (mine, theirs))
    torch.testing.assert_close(found, expected, rtol=0, atol=within)
    for logits_BTV in (found, expected):
        logits_BTV.logsumexp(-1).mean().backward()
    gradients = {name: weight.grad for name, weight in mine.named_parameters()}
    wanted = {name: weight.grad for name, weight in theirs.named_parameters()}
    back = together(to_hf(table(config), gradients))
    assert back.keys() == wanted.keys()
    for name, gradient in back.items():
        torch.testing.assert_close(gradient, wanted[name], rtol=0, atol=within, msg=lambda m, n=name: f"{n}: {m}")


@each_placement
def test_the_weights_of_torch_go_back_as_they_came(config: TransformerConfig) -> None:
    weights = drawn(config).state_dict()
    mine = ours(config, VOCABULARY)
    shapes = {name: tuple(weight.shape) for name, weight in mine.named_parameters()}
    back = together(to_hf(table(config), from_hf(table(config), apart(weights), shapes)))
    del weights["embed.pos_encoding"]
    assert back.keys() == weights.keys() and all(torch.equal(back[name], weights[name]) for name in weights)


# The checkpoint. Its own program pads every source to the longest with <pad>, and hides none of that.
STRESSES = TransformerConfig(4, 4, 256, 1024, 8, dropout=0.0, norm=PostNormAndFinal(), max_length=256)
START, END, UNKNOWN, PAD = 1, 2, 3, 0
README = "ruaccent_predictor-1.2.0.dist-info/METADATA"
EXAMPLES = {"привет мир": "приве'т мир", "В лесу родилась ёлочка": "В лесу' родила'сь ёлочка"}


@pytest.fixture(scope="module")
def checkpoint() -> tuple[dict[str, Tensor], dict[str, int]]:
    folder = place("ruaccent/model")
    weights = torch.load(folder / "acc_model.pt", map_location="cpu", weights_only=True)
    return weights, json.loads((folder / "vocab.json").read_text(encoding="utf-8"))


def framed(text: str, entries: dict[str, int]) -> list[int]:
    ids = [START, *(entries.get(letter, UNKNOWN) for letter in text), END]
    return ids + [PAD] * (STRESSES.max_length - len(ids))


@pytest.mark.long
def test_the_checkpoint_gives_its_logits_in_headway(checkpoint: tuple[dict[str, Tensor], dict[str, int]]) -> None:
    weights, entries = checkpoint
    theirs = Theirs(STRESSES, len(entries)).double()
    theirs.load_state_dict(weights)
    mine = filled(STRESSES, len(entries), weights).double()
    for embed in (mine.embed_source, mine.embed_target):
        # The same sinusoids, but computed in float32: in place 255 they are 1e-5 away.
        torch.testing.assert_close(embed.position.table_PD, theirs.embed.pos_encoding[0], rtol=0, atol=5e-5)
        embed.position.table_PD.copy_(theirs.embed.pos_encoding[0])
    source_BS = torch.tensor([framed(text, entries) for text in EXAMPLES])
    target_BT = torch.tensor([framed(text, entries)[:40] for text in EXAMPLES.values()])
    with torch.no_grad():
        found, expected = mine(source_BS, target_BT), theirs(source_BS, target_BT)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    back = together(to_hf(table(STRESSES), dict(mine.float().named_parameters())))
    assert all(torch.equal(back[name], weights[name]) for name in weights.keys() - {"embed.pos_encoding"})


@pytest.mark.long
def test_the_stress_marks_of_its_readme_come_out(checkpoint: tuple[dict[str, Tensor], dict[str, int]]) -> None:
    weights, entries = checkpoint
    readme = place(README).read_text(encoding="utf-8")
    assert all(stressed in readme for stressed in EXAMPLES.values())
    mine = filled(STRESSES, len(entries), weights)
    letters = {i: letter for letter, i in entries.items()}
    found = search_all(
        mine, [framed(text, entries) for text in EXAMPLES], Search(beam=1), limit=STRESSES.max_length - 1,
        device=torch.device("cpu"), symbols=Symbols(START, END),
    )  # fmt: skip
    assert ["".join(letters[i] for i in best[0].ids) for best in found] == list(EXAMPLES.values())

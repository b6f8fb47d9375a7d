"""Small programs around `torch.nn.Transformer`, and the files that they leave: weights, and a vocab.json of characters.

B batch, S source length, T target length, D width, V vocabulary.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

SYMBOLS = ["<pad>", "<s>", "</s>", "<unk>"]
PAD, START, END, UNKNOWN = range(len(SYMBOLS))
LETTERS = " abcdefghijklmnopqrstuvwxyz'"
ENTRIES = {entry: number for number, entry in enumerate([*SYMBOLS, *LETTERS])}
WIDTH, HEADS, PLACES = 24, 4, 20


@dataclass(frozen=True)
class Program:
    """How such a program may differ from another. position: of the source's and the target's table. tables: how many
    there are of embeddings and head."""

    norm_first: bool = False
    final: bool = True
    activation: str = "relu"
    bias: bool = True
    scaled: bool = True
    position: str = "pairs"
    tables: str = "joint"
    head_bias: bool = True
    sizes: tuple[int, int] = (len(ENTRIES), len(ENTRIES))


def sinusoid(length: int, width: int) -> Tensor:
    frequencies = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000) / width))
    angles = torch.arange(length)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()


class Theirs(nn.Module):
    """linear(nn.Transformer(√D · E[ids] + positions))."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.src_embed = nn.Embedding(program.sizes[0], WIDTH)
        one = program.tables in ("joint", "shared")
        self.tgt_embed = self.src_embed if one else nn.Embedding(program.sizes[1], WIDTH)
        how: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "bias": program.bias}
        how |= {"norm_first": program.norm_first, "activation": program.activation}
        sizes = WIDTH, HEADS, 37
        norms = [nn.LayerNorm(WIDTH, bias=program.bias) if program.final else None for _ in range(2)]
        self.net = nn.Transformer(
            WIDTH, HEADS, batch_first=True,
            custom_encoder=nn.TransformerEncoder(nn.TransformerEncoderLayer(*sizes, **how), 2, norms[0], False),
            custom_decoder=nn.TransformerDecoder(nn.TransformerDecoderLayer(*sizes, **how), 3, norms[1]),
        )  # fmt: skip
        self.generator = nn.Linear(WIDTH, program.sizes[1], bias=program.head_bias)
        if program.tables in ("tied", "shared"):
            self.generator.weight = self.tgt_embed.weight
        if program.position == "learned":
            self.src_pos, self.tgt_pos = nn.Embedding(PLACES, WIDTH), nn.Embedding(PLACES, WIDTH)
        else:
            table_PD = sinusoid(PLACES, WIDTH)
            halves_PD = torch.cat([table_PD[:, 0::2], table_PD[:, 1::2]], 1)
            kept = program.position != "unsaved"
            self.register_buffer("pe", (halves_PD if program.position == "halves" else table_PD)[None], persistent=kept)

    def embedded(self, ids_BT: Tensor, side: str) -> Tensor:
        x_BTD = getattr(self, f"{side}_embed")(ids_BT) * (math.sqrt(WIDTH) if self.program.scaled else 1.0)
        learned = self.program.position == "learned"
        table_PD = getattr(self, f"{side}_pos").weight if learned else self.pe[0]
        return x_BTD + table_PD[: ids_BT.shape[1]]

    def forward(self, source_BS: Tensor, target_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        hidden = None if lengths_B is None else torch.arange(source_BS.shape[1]) >= lengths_B[:, None]
        steps = target_BT.shape[1]
        x_BTD = self.net(
            self.embedded(source_BS, "src"), self.embedded(target_BT, "tgt"), src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden, tgt_mask=torch.ones(steps, steps, dtype=torch.bool).triu(1),
        )  # fmt: skip
        return self.generator(x_BTD)

    @torch.no_grad()
    def greedy(self, text: str, pad_to: int) -> str:
        """The whole source is seen, its padding too; the target is read anew at every step."""
        ids = [START, *(ENTRIES.get(letter, UNKNOWN) for letter in text), END]
        source_BS = torch.tensor([ids + [PAD] * (pad_to - len(ids))])
        target = [START]
        while len(target) < PLACES and target[-1] != END:
            target.append(int(self(source_BS, torch.tensor([target]))[0, -1].argmax()))
        entries = list(ENTRIES)
        return "".join(entries[i] for i in target if i not in (PAD, START, END))


def drawn(program: Program, dtype: torch.dtype = torch.float32) -> Theirs:
    torch.manual_seed(3)
    theirs = Theirs(program)
    with torch.no_grad():
        for table in (theirs.src_embed, theirs.tgt_embed):
            nn.init.normal_(table.weight, std=WIDTH**-0.5)
        for weight in theirs.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return theirs.eval().to(dtype)


def write_folder(folder: Path, theirs: Theirs) -> Path:
    folder.mkdir(exist_ok=True)
    torch.save(theirs.state_dict(), folder / "model.pt")
    (folder / "vocab.json").write_text(json.dumps(ENTRIES), encoding="utf-8")
    return folder


def write_torch_transformer(folder: Path) -> None:
    write_folder(folder, drawn(Program()))

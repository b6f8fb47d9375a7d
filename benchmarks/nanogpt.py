"""nanoGPT's own model as a contestant: read from `.peers/nanogpt_model.py` (public repository karpathy/nanoGPT,
`model.py`; never a part of this one), with headway's GPT of the same shape and weights beside it.

Both have the same formula: learned positions, pre-norm, exact GELU, no biases, tied head of 50,304 rows. nanoGPT is
trained as its own script does: float32 weights under autocast to bfloat16, fused AdamW, compiled.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fp8 import with_fp8
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from headway.batch import TokenBatch
from headway.models.gpt import GPT, GPTConfig
from headway.tasks.objective import NextToken
from headway.train.optimiser import AdamW, Masters
from headway.train.step import GraphStep, TrainStep, compiled

VOCABULARY = 50_304
RATE, DECAY, BETAS, CLIP = 6e-4, 0.1, (0.9, 0.95), 1.0

# A step on (ids, labels); returns the mean loss, still on the device.
Step = Callable[[Tensor, Tensor], Tensor]


def find() -> Any | None:
    """Its module; None, with a line that says what to do, where it is not there."""
    place = Path(".peers")
    if not (place / "nanogpt_model.py").is_file():
        print("nanoGPT is left out: put its model.py at .peers/nanogpt_model.py", file=sys.stderr)
        return None
    sys.path.insert(0, str(place))
    import nanogpt_model  # type: ignore[import-not-found]

    return nanogpt_model


def shape(layers: int, heads: int, width: int, length: int) -> GPTConfig:
    return GPTConfig(layers, width, heads=heads, bias=False, max_length=length)


def peer_model(module: Any, config: GPTConfig, device: str, vocabulary: int = VOCABULARY) -> Any:
    settings = module.GPTConfig(
        block_size=config.max_length, vocab_size=vocabulary, n_layer=config.layers, n_head=config.heads,
        n_embd=config.width, dropout=0.0, bias=False,
    )  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()), torch.device(device):
        return module.GPT(settings)


def copy_weights(model: GPT, peer: Any) -> None:
    """nanoGPT's weights into headway's model."""
    core = peer.transformer
    pairs = [(model.embed.table, core.wte), (model.embed.position.table, core.wpe), (model.decoder.final, core.ln_f)]
    for block, other in zip(model.decoder.layers, core.h, strict=True):
        pairs += [
            (block.around_attention.before, other.ln_1), (block.attention.qkv, other.attn.c_attn),
            (block.attention.output, other.attn.c_proj), (block.around_feed_forward.before, other.ln_2),
            (block.feed_forward.expand, other.mlp.c_fc), (block.feed_forward.contract, other.mlp.c_proj),
        ]  # fmt: skip
    with torch.no_grad():
        for mine, theirs in pairs:
            mine.weight.copy_(theirs.weight)


def peer_step(peer: Any, device: str) -> Step:
    """As nanoGPT's train.py takes it."""
    with contextlib.redirect_stdout(io.StringIO()):
        optimiser = peer.configure_optimizers(DECAY, RATE, BETAS, device)
    run = torch.compile(peer) if device == "cuda" else peer

    def step(ids_BT: Tensor, labels_BT: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            _, loss = run(ids_BT, labels_BT)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), CLIP)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def headway_step(model: GPT, device: str, how: str) -> Step:
    """`how` names what is used: compile, graphs, fp8, cudnn (attention by its kernel alone, for comparison)."""
    if "fp8" in how:
        with_fp8(model)
    masters = Masters(model.named_parameters(), AdamW(*BETAS, epsilon=1e-8, decay=DECAY), clip=CLIP)
    masters.set_rate(RATE)
    objective: Any = NextToken().build(model)
    if "compile" in how:
        objective = compiled(objective)
    take: Any = (GraphStep if "graphs" in how else TrainStep)(objective, masters)

    def step(ids_BT: Tensor, labels_BT: Tensor) -> Tensor:
        batch = TokenBatch(ids_BT, labels_BT)
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if "cudnn" in how else contextlib.nullcontext():
            return take(batch, 1)["loss"].clone() / batch.tokens

    return step


def batches(count: int, rows: int, length: int, device: str, vocabulary: int = VOCABULARY) -> list[tuple[Tensor, ...]]:
    """Text with something to learn: mostly the successor that each word has, otherwise a word of Zipf's."""
    generator = torch.Generator().manual_seed(0)
    words = torch.arange(4, vocabulary, dtype=torch.float64)
    successor = torch.randint(4, vocabulary, (vocabulary,), generator=generator)
    drawn = torch.multinomial(1 / (words - 3), count * rows * (length + 1), replacement=True, generator=generator)
    ids = (drawn + 4).view(count, rows, length + 1)
    follows = torch.rand(ids.shape, generator=generator) < 0.7
    for t in range(1, length + 1):
        ids[..., t] = torch.where(follows[..., t], successor[ids[..., t - 1]], ids[..., t])
    return [(part[:, :-1].contiguous().to(device), part[:, 1:].contiguous().to(device)) for part in ids]

"""Training speed of the encoder-decoder: headway beside torch.nn.Transformer and Hugging Face's Marian.

Same shapes, same optimiser family, label smoothing 0.1, one process, repeats interleaved, medians.
On a GPU: `base`, 256 × (64+64) tokens, 37,000 words, bfloat16, all compiled. On a CPU: `tiny`, 128 × (16+16)
tokens, 10,000 words, float32, none compiled.

    PYTHONPATH=src python benchmarks/training.py --device cuda
"""

from __future__ import annotations

from measure import arguments, interleaved, write

# isort: split
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from training_steps import headway_step, speed_rows

from headway.models.transformer import SIZES, Transformer, TransformerConfig

CASES = {
    "cuda": {"size": "base", "rows": 256, "length": 64, "vocabulary": 37_000},
    "cpu": {"size": "tiny", "rows": 128, "length": 16, "vocabulary": 10_000},
}


class TorchTransformer(nn.Module):
    def __init__(self, config: TransformerConfig, vocabulary: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, config.width)
        self.stacks = nn.Transformer(
            config.width, config.heads, config.encoder_layers, config.decoder_layers, config.inner,
            config.dropout, batch_first=True,
        )  # fmt: skip
        self.head = nn.Linear(config.width, vocabulary, bias=False)
        self.head.weight = self.table.weight

    def forward(self, source: torch.Tensor, target: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        hidden = self.stacks(self.table(source), self.table(target), tgt_mask=mask, tgt_is_causal=True)
        return F.cross_entropy(self.head(hidden).flatten(0, 1).float(), labels.flatten(), label_smoothing=0.1)


def peer_step(model: nn.Module, loss: Callable[[], torch.Tensor], device: str) -> Callable[[], None]:
    optimiser = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            value = loss()
        value.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def torch_nn(config: TransformerConfig, vocabulary: int, data: list[torch.Tensor], device: str) -> Callable[[], None]:
    model = TorchTransformer(config, vocabulary).to(device)
    run = torch.compile(model) if device == "cuda" else model
    return peer_step(model, lambda: run(*data), device)


def marian(config: TransformerConfig, vocabulary: int, data: list[torch.Tensor], device: str) -> Callable[[], None]:
    from transformers import MarianConfig, MarianMTModel

    settings = MarianConfig(
        vocab_size=vocabulary, d_model=config.width, encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers, encoder_attention_heads=config.heads,
        decoder_attention_heads=config.heads, encoder_ffn_dim=config.inner, decoder_ffn_dim=config.inner,
        pad_token_id=vocabulary - 1, eos_token_id=0, decoder_start_token_id=vocabulary - 1,
        max_position_embeddings=512, dropout=config.dropout,
    )  # fmt: skip
    model = MarianMTModel._from_config(settings, attn_implementation="sdpa").to(device)
    run = torch.compile(model) if device == "cuda" else model
    source, target, labels = data
    return peer_step(model, lambda: run(input_ids=source, decoder_input_ids=target, labels=labels).loss, device)


def headway(
    config: TransformerConfig, vocabulary: int, data: list[torch.Tensor], device: str, how: str
) -> Callable[[], None]:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    return headway_step(Transformer(config, vocabulary, vocabulary).to(device, dtype), data, how)


def main() -> None:
    parser = arguments(__doc__)
    options = parser.parse_args()
    device, case = options.device, CASES[options.device]
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    config, vocabulary = SIZES[str(case["size"])], int(case["vocabulary"])
    shape = (int(case["rows"]), int(case["length"]))
    data = [torch.randint(4, vocabulary - 1, shape, device=device) for _ in range(3)]
    works = {
        "torch.nn.Transformer": torch_nn(config, vocabulary, data, device),
        "transformers Marian": marian(config, vocabulary, data, device),
    }
    for how in ["eager"] if device == "cpu" else ["compile", "compile+graphs"]:
        works[f"headway {how}"] = headway(config, vocabulary, data, device, how)
    times = interleaved(works, device, *((8, options.repeats or 30) if device == "cuda" else (2, options.repeats or 9)))
    rows = speed_rows(times, "torch.nn.Transformer", shape[0] * shape[1], "target_tokens_per_second")
    write(f"training-{device}", device, rows, options.out, case=case)


if __name__ == "__main__":
    main()

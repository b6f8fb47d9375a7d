"""Training speed of the convolutional encoder-decoder: headway beside fairseq's shape written with torch.nn modules.

Same shapes, weight normalisation, dropout, label smoothing 0.1, the same optimiser, one process, repeats interleaved,
medians. On a GPU: ten layers on each side (512 channels), 128 × (32+32) tokens, bfloat16; torch.nn with autocast kernel
by kernel and compiled, headway kernel by kernel, captured as a CUDA graph, and compiled and captured. On a CPU: `base`,
32 × (16+16) tokens, float32.

    PYTHONPATH=src python benchmarks/conv_seq2seq.py --device cpu
"""

from __future__ import annotations

from measure import arguments, interleaved, write

# isort: split
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from training_steps import headway_step, speed_rows

from headway.models.conv_seq2seq import SIZES, ConvSeq2Seq, ConvSeq2SeqConfig

CASES = {
    "cuda": {"size": "big", "rows": 128, "length": 32, "vocabulary": 10_000},
    "cpu": {"size": "base", "rows": 32, "length": 16, "vocabulary": 10_000},
}
HALF = math.sqrt(0.5)


def linear(inputs: int, outputs: int) -> nn.Module:
    return weight_norm(nn.Linear(inputs, outputs))


class TorchConvS2S(nn.Module):
    """FConvEncoder and FConvDecoder, without padding."""

    def __init__(self, config: ConvSeq2SeqConfig, vocabulary: int) -> None:
        super().__init__()
        width, inner, window = config.width, config.inner, config.window
        self.table, self.window, self.dropout = nn.Embedding(vocabulary, width), window, config.dropout
        self.positions = nn.ModuleList(nn.Embedding(config.max_length, width) for _ in range(2))
        self.widen = nn.ModuleList(linear(width, inner) for _ in range(2))
        self.narrow = nn.ModuleList(linear(inner, width) for _ in range(2))

        def convolutions(layers: int) -> nn.ModuleList:
            return nn.ModuleList(weight_norm(nn.Conv1d(inner, 2 * inner, window)) for _ in range(layers))

        self.encoder, self.decoder = convolutions(config.encoder_layers), convolutions(config.decoder_layers)
        self.query = nn.ModuleList(linear(inner, width) for _ in self.decoder)
        self.back = nn.ModuleList(linear(width, inner) for _ in self.decoder)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.table.weight

    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)

    def embedded(self, ids: Tensor, side: int) -> Tensor:
        return self.drop(self.table(ids) + self.positions[side](torch.arange(ids.shape[1], device=ids.device)))

    def gated(self, convolution: nn.Module, x: Tensor, left: int) -> Tensor:
        padded = F.pad(self.drop(x).mT, (left, self.window - 1 - left))
        return F.glu(convolution(padded), 1).mT

    def forward(self, source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        e = self.embedded(source, 0)
        x = self.widen[0](e)
        for convolution in self.encoder:
            x = (self.gated(convolution, x, (self.window - 1) // 2) + x) * HALF
        keys = self.narrow[0](x)
        values = (keys + e) * HALF
        g = self.embedded(target, 1)
        x = self.widen[1](g)
        for convolution, query, back in zip(self.decoder, self.query, self.back, strict=True):
            residual, x = x, self.gated(convolution, x, self.window - 1)
            weights = (((query(x) + g) * HALF) @ keys.mT).softmax(-1)
            x = (back(weights @ values * math.sqrt(source.shape[1])) + x) * HALF
            x = (x + residual) * HALF
        logits = self.head(self.drop(self.narrow[1](x)))
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), label_smoothing=0.1)


def torch_nn(
    config: ConvSeq2SeqConfig, vocabulary: int, data: list[Tensor], device: str, compiles: bool
) -> Callable[[], None]:
    model = TorchConvS2S(config, vocabulary).to(device)
    run = torch.compile(model) if compiles else model
    optimiser = torch.optim.Adam(model.parameters(), 1e-4, fused=True)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = run(*data)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def headway(
    config: ConvSeq2SeqConfig, vocabulary: int, data: list[Tensor], device: str, how: str
) -> Callable[[], None]:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    return headway_step(ConvSeq2Seq(config, vocabulary, vocabulary).to(device, dtype), data, how)


def main() -> None:
    options = arguments(__doc__).parse_args()
    device, case = options.device, CASES[options.device]
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    config, vocabulary = SIZES[str(case["size"])], int(case["vocabulary"])
    shape = (int(case["rows"]), int(case["length"]))
    data = [torch.randint(4, vocabulary, shape, device=device) for _ in range(3)]
    works = {"torch.nn": torch_nn(config, vocabulary, data, device, compiles=False)}
    if device == "cuda":
        works["torch.nn compile"] = torch_nn(config, vocabulary, data, device, compiles=True)
    for how in ["eager"] if device == "cpu" else ["eager", "graphs", "compile+graphs"]:
        works[f"headway {how}"] = headway(config, vocabulary, data, device, how)
    times = interleaved(works, device, *((8, options.repeats or 30) if device == "cuda" else (1, options.repeats or 5)))
    rows = speed_rows(times, "torch.nn", shape[0] * shape[1], "target_tokens_per_second")
    write(f"conv-seq2seq-{device}", device, rows, options.out, case=case)


if __name__ == "__main__":
    main()

"""BigBird's attention, forward and backward, against the length: blocks beside dense attention and transformers' own.

12 heads of 64; the tokens of a batch are the same at every length, so that a line that stays level means: no more time
for a longer text. On a GPU in bfloat16: 65,536 tokens, headway's blocks through flex_attention (compiled, as in a
compiled training step) and by tiles, dense flash attention, and transformers' BigBirdBlockSparseAttention, which has
its own projections (headway's and the dense form get projections of the same size, so that all compute the same
layer); then the attention alone, without projections. On a CPU in float32: 8,192 tokens, the tiles, the dense kernel
and transformers'. On a GPU the clock runs over several steps in a row, as in a training: while the GPU works on one,
the host prepares the next. headway's masks are made anew in each step, transformers' once. Memory: the peak of one
step beyond the inputs. Draws `results/big-bird-DEVICE.svg`, of the layers.

    PYTHONPATH=src python benchmarks/big_bird.py --device cuda
"""

from __future__ import annotations

from measure import RESULTS, arguments, interleaved, median, write

# isort: split
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.compiling import compiled
from headway.explore.plots import COLOURS, HAIRLINE, INK, inches, new_figure, save
from headway.explore.plots import write as label
from headway.models.parts import Blocks
from headway.nn.attention import SelfAttention, fused_attend
from headway.nn.mask import Scene
from headway.nn.view import SEE_ALL, View, prepared

HEADS, WIDTH = 12, 768
IN_A_ROW = {"cuda": 5, "cpu": 1}  # steps that are timed together
CASES: dict[str, dict[str, Any]] = {
    "cuda": {"tokens": 65_536, "lengths": (4096, 16_384, 65_536), "blocks": (64, 128), "dtype": torch.bfloat16},
    "cpu": {"tokens": 8192, "lengths": (1024, 2048, 4096, 8192), "blocks": (64,), "dtype": torch.float32},
}
DENSE, LAYER, ALONE = "dense", "layer", "attention alone"
Step = Callable[[], Any]


def headway(length: int, block: int, device: str, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """The layer of `bert` with a pattern of blocks; dense without one."""
    torch.manual_seed(0)
    layer, view = SelfAttention(WIDTH, HEADS).to(device, dtype), seen(length, block, device, dtype)
    return lambda x: layer(x, view(x))


def alone(length: int, block: int, device: str, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """The same without its projections: queries, keys and values are the inputs."""
    view = seen(length, block, device, dtype)

    def run(x: Tensor) -> Tensor:
        x_BHTK = x.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        return fused_attend(x_BHTK, x_BHTK, x_BHTK, view(x))

    return run


def seen(length: int, block: int, device: str, dtype: torch.dtype) -> Callable[[Tensor], View]:
    if not block:
        return lambda x: SEE_ALL
    [rule] = Blocks(block, 3).rules(length, True, 1)

    def view(x: Tensor) -> View:  # as in every step of a model
        lengths_B = torch.full((len(x),), length, device=device)
        return prepared(rule, Scene(length, length, torch.device(device), key_lengths_B=lengths_B), None, dtype)

    return view


def theirs(length: int, block: int, device: str, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    from transformers import BigBirdConfig
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel

    config = BigBirdConfig(
        block_size=block, num_random_blocks=3, max_position_embeddings=length, attention_probs_dropout_prob=0.0
    )
    layer = BigBirdBlockSparseAttention(config, seed=0).to(device, dtype).train()

    masks: dict[int, Any] = {}  # of all layers of a model, so outside the clock

    def run(x: Tensor) -> Tensor:
        if len(x) not in masks:
            all_there = torch.ones(x.shape[:2], device=device, dtype=dtype)
            masks[len(x)] = BigBirdModel.create_masks_for_block_sparse_attn(all_there, block)
        blocked, band, rows, columns = masks[len(x)]
        found: Tensor = layer(x, band, rows, columns, blocked, blocked)[0]
        return found

    return run


def backward(run: Callable[[Tensor], Tensor], x: Tensor) -> Step:
    def step() -> None:
        run(x).float().square().mean().backward()
        x.grad = None

    return step


def repeated(step: Step, times: int) -> Step:
    def steps() -> None:
        for _ in range(times):
            step()

    return steps


def contestants(length: int, case: dict[str, Any], device: str) -> dict[str, dict[str, Callable[[Tensor], Tensor]]]:
    sizes = (device, case["dtype"])
    found: dict[str, Any] = {}
    for what, make in {LAYER: headway, ALONE: alone}.items():
        found[what] = {DENSE: make(length, 0, *sizes)}
        for block in case["blocks"]:
            found[what][f"headway, blocks of {block}"] = make(length, block, *sizes)
            if device == "cuda":
                found[what][f"headway, blocks of {block}, compiled"] = compiled(make(length, block, *sizes))
    for block in case["blocks"]:
        found[LAYER][f"transformers, blocks of {block}"] = theirs(length, block, *sizes)
    return found


def peak(step: Step, device: str) -> float:
    """MiB beyond what was there before; on a CPU, of what Python can see, not told."""
    if device == "cpu":
        return 0.0
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def measured(length: int, case: dict[str, Any], device: str, repeats: int) -> list[dict[str, Any]]:
    rows, in_a_row = list[dict[str, Any]](), IN_A_ROW[device]
    x = torch.randn(max(1, case["tokens"] // length), length, WIDTH, device=device, dtype=case["dtype"])
    x.requires_grad_()
    for what, runs in contestants(length, case, device).items():
        works: dict[str, Step] = {}
        for who, run in runs.items():
            step = backward(run, x)
            try:
                step()
                works[who] = step
            except torch.cuda.OutOfMemoryError:
                rows.append({"what": what, "who": who, "length": length, "out_of_memory": True})
        times = interleaved({who: repeated(step, in_a_row) for who, step in works.items()}, device, 2, repeats)
        for who, step in works.items():
            took = median(times[who]) * 1e3 / in_a_row
            row = {"what": what, "who": who, "length": length, "milliseconds": round(took, 2)}
            row["times_dense"] = round(median(times[DENSE]) / median(times[who]), 2)
            rows.append(row | ({"mebibytes": round(peak(step, device))} if device == "cuda" else {}))
            print(rows[-1], flush=True)
        torch.compiler.reset()
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    panels = [("milliseconds", "ms, forward and backward"), ("mebibytes", "peak memory, MiB")]
    panels = [panel for panel in panels if any(panel[0] in row for row in rows)]
    figure = new_figure(5.1 * len(panels) + 0.2, 3.6)
    for number, (up, title) in enumerate(panels):
        axes = figure.add_axes(inches(figure, 0.8 + 5.1 * number, 0.6, 4.0, 2.5))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        for colour, who in zip(COLOURS, dict.fromkeys(row["who"] for row in rows), strict=False):
            own = [row for row in rows if row["who"] == who and up in row]
            axes.plot(
                [r["length"] for r in own], [r[up] for r in own], color=colour, marker="o", markersize=4, label=who
            )
        ticks = sorted({row["length"] for row in rows})
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=7, color=INK)
        axes.tick_params(labelsize=7, colors=INK)
        axes.grid(color=HAIRLINE, linewidth=0.6)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        label(axes, 0.0, 1.04, f"{title}, against the length", 9, transform=axes.transAxes)
        axes.legend(fontsize=7, frameon=False)
    save(figure, path)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", help="only these")
    options = parser.parse_args()
    device, case = options.device, CASES[options.device]
    repeats, rows = options.repeats or (15 if device == "cuda" else 5), list[dict[str, Any]]()
    for length in options.lengths or case["lengths"]:
        rows += measured(length, case, device, repeats)
    about = {"tokens": case["tokens"], "heads": HEADS, "steps in a row": IN_A_ROW[device]}
    write(f"big-bird-{device}", device, rows, options.out, case=about)
    draw([row for row in rows if row["what"] == LAYER], Path(options.out or RESULTS) / f"big-bird-{device}.svg")


if __name__ == "__main__":
    main()

"""Training speed of GPT: headway beside nanoGPT's own model, one step: forward, backward, clipping, AdamW.

Same shapes, weights and batches, one process, repeats interleaved, medians. The losses of the first steps are compared
too: speed with another loss curve would be no speed. On a GPU: 124M with 64 × 1,024 tokens and 1.5B with 8 × 1,024,
bfloat16, compiled; headway has bfloat16 weights with float32 masters, and its step captured. On a CPU: a tiny size in
float32, to try the script.

    PYTHONPATH=src python benchmarks/gpt.py --device cuda
    PYTHONPATH=src python benchmarks/gpt.py --device cuda --size 124M --profile     where the time of a step goes
"""

from __future__ import annotations

from measure import arguments, interleaved, median, write

# isort: split
import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import nanogpt
import torch

from headway.models.gpt import GPT

# layers, heads, width, length, rows
CASES = {
    "cuda": {"124M": (12, 12, 768, 1024, 64), "1.5B": (48, 25, 1600, 1024, 8)},
    "cpu": {"tiny": (2, 2, 64, 64, 4)},
}
WAYS = {"cuda": ["compile", "compile+graphs", "compile+graphs+fp8"], "cpu": ["plain"]}
LARGE = {"1.5B"}
CURVE = 20  # steps


def contestants(module: Any, size: str, device: str, ways: list[str]) -> dict[str, Callable[[], nanogpt.Step]]:
    """Who can be built, each with the same weights."""
    layers, heads, width, length, _ = CASES[device][size]
    config, dtype = nanogpt.shape(layers, heads, width, length), torch.bfloat16 if device == "cuda" else torch.float32

    def peer_model() -> Any:
        torch.manual_seed(0)
        return nanogpt.peer_model(module, config, device)

    def headway(way: str) -> nanogpt.Step:
        torch.manual_seed(0)
        with torch.device(device):
            model = GPT(config, nanogpt.VOCABULARY)
        if module:
            nanogpt.copy_weights(model, peer_model())
        return nanogpt.headway_step(model.to(dtype), device, way)

    builders: dict[str, Callable[[], nanogpt.Step]] = {f"headway {way}": partial(headway, way) for way in ways}
    return {"nanoGPT": lambda: nanogpt.peer_step(peer_model(), device)} | builders if module else builders


def curve(step: nanogpt.Step, batches: list[tuple[torch.Tensor, ...]]) -> list[float]:
    return [float(step(*batch)) for batch in batches]


def timed(
    builders: dict[str, Callable[[], nanogpt.Step]], data: list[tuple[torch.Tensor, ...]], device: str, repeats: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Losses of the first steps, and seconds a step, of contestants that are there together."""
    steps = {name: build() for name, build in builders.items()}
    losses = {name: curve(step, data) for name, step in steps.items()}
    works: dict[str, Callable[[], Any]] = {name: partial(step, *data[0]) for name, step in steps.items()}
    return losses, interleaved(works, device, 3 if device == "cuda" else 1, repeats)


def measured(module: Any, size: str, device: str, ways: list[str], repeats: int) -> tuple[list[dict[str, Any]], Any]:
    *_, length, rows = CASES[device][size]
    builders = contestants(module, size, device, ways)
    data = nanogpt.batches(CURVE, rows, length, device)
    losses: dict[str, list[float]] = {}
    times: dict[str, list[float]] = {}
    # Several of the large do not fit into one memory: they take turns.
    for together in [{name: build} for name, build in builders.items()] if size in LARGE else [builders]:
        some_losses, some_times = timed(together, data, device, repeats)
        losses, times = losses | some_losses, times | some_times
        tidy(device)
    first = next(iter(times))
    result = []
    for name, values in times.items():
        apart = max(abs(a - b) / b for a, b in zip(losses[name], losses[first], strict=True))
        result.append(
            {
                "who": name,
                "size": size,
                "tokens_per_second": round(rows * length / median(values)),
                "milliseconds": round(median(values) * 1e3, 2),
                f"times_{first.split()[0]}": round(median(times[first]) / median(values), 3),
                "loss_apart_percent": round(100 * apart, 2),
                "loss_after": round(losses[name][-1], 4),
            }
        )
    return result, {name: [round(loss, 4) for loss in values] for name, values in losses.items()}


def tidy(device: str) -> None:
    gc.collect()
    torch.compiler.reset()
    if device == "cuda":
        torch.cuda.empty_cache()


def profile(module: Any, size: str, device: str, ways: list[str]) -> None:
    *_, length, rows = CASES[device][size]
    batch = nanogpt.batches(1, rows, length, device)[0]
    for name, build in contestants(module, size, device, ways).items():
        step = build()
        for _ in range(4):
            step(*batch)
        kinds = [torch.profiler.ProfilerActivity.CPU]
        if device == "cuda":
            torch.cuda.synchronize()
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=kinds) as seen:
            for _ in range(3):
                step(*batch)
            if device == "cuda":
                torch.cuda.synchronize()
        key = "self_cuda_time_total" if device == "cuda" else "self_cpu_time_total"
        print(f"{size}, {name}: three steps")
        print(seen.key_averages().table(sort_by=key, row_limit=30, max_name_column_width=90), flush=True)
        del step
        tidy(device)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--size", help="only this size")
    parser.add_argument("--ways", nargs="+", help="headway's ways to take a step, such as compile+graphs")
    parser.add_argument("--profile", action="store_true", help="no measurement: name the kernels of every contestant")
    options = parser.parse_args()
    device = options.device
    ways, sizes = options.ways or WAYS[device], [options.size] if options.size else list(CASES[device])
    unknown = [size for size in sizes if size not in CASES[device]]
    if unknown:
        raise SystemExit(f"there is no size '{unknown[0]}' on {device}; there is: {', '.join(CASES[device])}")
    torch.set_float32_matmul_precision("high")
    module = nanogpt.find()
    rows, all_losses = [], {}
    for size in sizes:
        if options.profile:
            profile(module, size, device, ways)
            continue
        found, all_losses[size] = measured(module, size, device, ways, options.repeats or 20)
        rows += found
        print(*found, sep="\n", flush=True)
    if rows:
        case = {size: "{4} × {3:,} tokens".format(*CASES[device][size]) for size in sizes}
        write(f"gpt-{device}", device, rows, options.out, case=case, losses=all_losses)


if __name__ == "__main__":
    main()

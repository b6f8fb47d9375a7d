"""How a training step grows: its time and peak memory against length and against width, headway beside nanoGPT.

Tokens a batch are the same throughout, so that a line that stays level means: no more time for a longer text. Every
point is a model of its own, built, compiled, measured (median) and taken away again; one that does not fit is told.
On a GPU: GPT of 12 layers, 32,768 tokens, bfloat16, compiled and, headway's, captured. On a CPU: a tiny size in
float32, to try the script. Draws `results/growth-DEVICE.svg` beside its JSON.

    PYTHONPATH=src python benchmarks/growth.py --device cuda
    PYTHONPATH=src python benchmarks/growth.py --device cuda --lengths 256 32768 --widths
"""

from __future__ import annotations

from measure import RESULTS, arguments, interleaved, median, write

# isort: split
import gc
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import nanogpt
import torch

from headway.explore.plots import COLOURS, HAIRLINE, INK, QUIET, inches, new_figure, save
from headway.explore.plots import write as label
from headway.models.gpt import GPT

CASES: dict[str, dict[str, Any]] = {
    "cuda": {"layers": 12, "tokens": 32_768, "width": 768, "length": 1024, "head": 64, "vocabulary": 50_304,
             "lengths": [256, 1024, 4096, 8192, 16_384, 32_768], "widths": [256, 512, 768, 1024, 1536, 2048]},
    "cpu": {"layers": 2, "tokens": 512, "width": 64, "length": 64, "head": 16, "vocabulary": 512,
            "lengths": [32, 64, 128], "widths": [32, 64, 128]},
}  # fmt: skip


def built(who: str, module: Any, case: dict[str, Any], width: int, length: int, device: str) -> nanogpt.Step:
    config = nanogpt.shape(case["layers"], width // case["head"], width, length)
    torch.manual_seed(0)
    if who == "nanoGPT":
        return nanogpt.peer_step(nanogpt.peer_model(module, config, device, case["vocabulary"]), device)
    model = GPT(config, case["vocabulary"]).to(device, torch.bfloat16 if device == "cuda" else torch.float32)
    return nanogpt.headway_step(model, device, "compile+graphs" if device == "cuda" else "plain")


def point(
    who: str, module: Any, case: dict[str, Any], width: int, length: int, device: str, repeats: int
) -> dict[str, Any]:
    row: dict[str, Any] = {"who": who, "width": width, "length": length}
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    try:
        batch = nanogpt.batches(1, case["tokens"] // length, length, device, case["vocabulary"])[0]
        step = built(who, module, case, width, length, device)
        times = interleaved({who: partial(step, *batch)}, device, 4, repeats)[who]
        row["milliseconds"] = round(median(times) * 1e3, 3)
        if device == "cuda":
            row["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
        del step
    except torch.cuda.OutOfMemoryError:
        row["out_of_memory"] = True
    gc.collect()
    torch.compiler.reset()
    if device == "cuda":
        torch.cuda.empty_cache()
    print(row, flush=True)
    return row


PANELS = [  # what is along, the rows that belong to it, what is up
    ("length", "milliseconds", "ms a step"), ("width", "milliseconds", "ms a step"),
    ("length", "peak_gib", "peak memory, GiB"), ("width", "peak_gib", "peak memory, GiB"),
]  # fmt: skip


def draw(rows: list[dict[str, Any]], case: dict[str, Any], path: Path) -> None:
    """A panel for time and memory against length and width; times are logarithmic: a power is a straight line."""
    panels = [panel for panel in PANELS if any(panel[1] in row for row in _along(rows, case, panel[0]))]
    figure = new_figure(10.0, 3.6 * (1 + (len(panels) > 2)) + 0.4)
    for number, (along, up, title) in enumerate(panels):
        column, row = number % 2, number // 2
        bottom = 0.6 + 3.6 * (len(panels) > 2 and row == 0)
        axes = figure.add_axes(inches(figure, 0.8 + 4.9 * column, bottom, 3.9, 2.6))
        axes.set_xscale("log", base=2)
        if up == "milliseconds":
            axes.set_yscale("log", base=2)
        for colour, who in zip(COLOURS, dict.fromkeys(r["who"] for r in rows), strict=False):
            points = sorted(
                (r for r in _along(rows, case, along) if r["who"] == who and up in r), key=itemgetter(along)
            )
            axes.plot(
                [r[along] for r in points], [r[up] for r in points],
                color=colour, marker="o", markersize=4, linewidth=1.6, label=who,
            )  # fmt: skip
        if up != "milliseconds":
            axes.set_ylim(bottom=0)
        ticks = sorted({r[along] for r in _along(rows, case, along)})
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=7, color=INK)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.tick_params(labelsize=7, colors=INK)
        axes.grid(color=HAIRLINE, linewidth=0.6)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        fixed = "width" if along == "length" else "length"
        label(axes, 0.0, 1.04, f"{title} against {along}", 9, transform=axes.transAxes)
        said = f"{fixed} {case[fixed]:,}, {case['tokens']:,} tokens"
        label(axes, 1.0, 1.04, said, 7, QUIET, transform=axes.transAxes, ha="right")
        axes.legend(fontsize=7, frameon=False)
    save(figure, path)


def _along(rows: list[dict[str, Any]], case: dict[str, Any], along: str) -> list[dict[str, Any]]:
    other = "width" if along == "length" else "length"
    return [row for row in rows if row[other] == case[other]]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--lengths", type=int, nargs="*", help="only these")
    parser.add_argument("--widths", type=int, nargs="*", help="only these, multiples of a head's width")
    parser.add_argument("--layers", type=int)
    options = parser.parse_args()
    device, case = options.device, dict(CASES[options.device])
    for name in ("lengths", "widths", "layers"):
        if getattr(options, name) is not None:
            case[name] = getattr(options, name)
    for length in case["lengths"]:
        if case["tokens"] % length:
            raise SystemExit(f"a length must divide the {case['tokens']:,} tokens of a batch: {length:,} does not")
    for width in case["widths"]:
        if width % case["head"]:
            raise SystemExit(f"a width must be a multiple of {case['head']}, the width of a head: {width:,} is not")
    torch.set_float32_matmul_precision("high")
    module = nanogpt.find()
    shapes = [(case["width"], length) for length in case["lengths"]]
    shapes += [(width, case["length"]) for width in case["widths"]]
    rows = [
        point(who, module, case, width, length, device, options.repeats or 10)
        for width, length in dict.fromkeys(shapes)
        for who in (["nanoGPT"] if module else []) + ["headway"]
    ]
    write(f"growth-{device}", device, rows, options.out, case=case)
    draw(rows, case, (Path(options.out) if options.out else RESULTS) / f"growth-{device}.svg")


if __name__ == "__main__":
    main()
